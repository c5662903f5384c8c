// POSIX mapping of a whole file; every failure names the path and the system's reason.
#include "mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>

namespace tilewise::generate {

namespace {

[[noreturn]] void fail(const std::string& path, const char* action) {
    const int code = errno;
    throw std::runtime_error(path + ": cannot " + action + ": " + std::generic_category().message(code));
}

struct Descriptor {
    int value;
    ~Descriptor() { ::close(value); }
};

}  // namespace

MappedFile::MappedFile(const std::string& path) {
    const int opened = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (opened < 0) {
        fail(path, "open the file");
    }
    const Descriptor descriptor{opened};
    struct stat status {};
    if (::fstat(descriptor.value, &status) != 0) {
        fail(path, "read the file's size");
    }
    if (!S_ISREG(status.st_mode)) {
        throw std::runtime_error(path + ": is no regular file");
    }
    size_ = static_cast<std::size_t>(status.st_size);
    if (size_ == 0) {
        return;  // an empty mapping is an error to the system; an empty span is one to the reader of the format
    }
    address_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor.value, 0);
    if (address_ == MAP_FAILED) {
        address_ = nullptr;
        fail(path, "map the file");
    }
}

MappedFile::~MappedFile() {
    if (address_ != nullptr) {
        ::munmap(address_, size_);
    }
}

}  // namespace tilewise::generate
