// The report tests on the CPU; see place.hpp.
#include "place.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

namespace reports {

namespace {

constexpr std::align_val_t kAlignment{64};

// An empty file in memory: it costs only what is touched even where the kernel is told never to overcommit.
void* map_file(std::size_t bytes) {
    void* data = MAP_FAILED;
    const int file = ::memfd_create("tilewise_reports", MFD_CLOEXEC);
    if (file < 0) return data;
    if (::ftruncate(file, static_cast<off_t>(bytes)) == 0)
        data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    return data;
}

}  // namespace

const tilewise::Device& device() {
    static const tilewise::Device cpu("cpu");
    return cpu;
}

void begin_test() {}
bool is_on_host(const char*) { return true; }

void* allocate(std::size_t bytes) { return ::operator new(bytes, kAlignment); }
void release(void* memory, std::size_t) noexcept { ::operator delete(memory, kAlignment); }

void* map_zeros(std::size_t bytes) {
    void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED && errno == ENOMEM) data = map_file(bytes);
    if (data == MAP_FAILED)
        throw std::runtime_error("no address space of " + std::to_string(bytes) + " bytes: " + std::strerror(errno));
    return data;
}
void unmap(void* memory, std::size_t bytes) noexcept { ::munmap(memory, bytes); }

}  // namespace reports
