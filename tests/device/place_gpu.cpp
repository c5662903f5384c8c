// The report tests on a GPU, every kernel of it; see tests/reports/place.hpp. Tensors lie in managed memory, which both sides reach and which
// costs what is touched, so that offsets past 2^32 elements need no more memory here than on a CPU.
//
//   TILEWISE_TEST_DEVICE  whose kernels are tested (cuda:0)
#include "../reports/place.hpp"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <string>

#include "gpu.hpp"

namespace reports {

namespace {

void* allocate_managed(std::size_t bytes) {
    void* data = nullptr;
    if (cudaMallocManaged(&data, bytes, cudaMemAttachGlobal) != cudaSuccess) throw std::bad_alloc();
    return data;
}

// The tests make tens of thousands of small tensors, and the driver takes its time for each allocation: blocks of powers of two are cut from
// slabs and kept for the next taker.
class Pool {
public:
    void* take(std::size_t size) {
        const std::lock_guard lock(mutex_);
        std::vector<std::byte*>& blocks = free_[size];
        if (blocks.empty()) {
            auto* const slab = static_cast<std::byte*>(allocate_managed(kSlab));
            for (std::size_t at = 0; at < kSlab; at += size) blocks.push_back(slab + at);
        }
        std::byte* const block = blocks.back();
        blocks.pop_back();
        return block;
    }
    void give_back(void* block, std::size_t size) {
        const std::lock_guard lock(mutex_);
        free_[size].push_back(static_cast<std::byte*>(block));
    }
    static constexpr std::size_t kSlab = std::size_t{16} << 20, kLargest = kSlab / 4;

private:
    std::mutex mutex_;
    std::map<std::size_t, std::vector<std::byte*>> free_;
};
Pool& pool() {
    static Pool* const never_destroyed = new Pool;  // tensors of static life outlast it otherwise
    return *never_destroyed;
}
std::size_t block_size(std::size_t bytes) { return std::bit_ceil(std::max<std::size_t>(bytes, 256)); }

}  // namespace

const tilewise::Device& device() {
    static const tilewise::Device gpu = [] {
        const char* const name = std::getenv("TILEWISE_TEST_DEVICE");
        return tilewise::Device(name != nullptr ? name : "cuda:0");
    }();
    return gpu;
}

void begin_test() { TILEWISE_NEEDS_GPUS(1); }
bool is_on_host(const char* what) {
    const auto skip = [what] { GTEST_SKIP() << "a test of the host: " << what; };
    skip();
    return false;
}

void* allocate(std::size_t bytes) {
    const std::size_t size = block_size(bytes);
    return size <= Pool::kLargest ? pool().take(size) : allocate_managed(bytes);
}
void release(void* memory, std::size_t bytes) noexcept {
    const std::size_t size = block_size(bytes);
    if (size <= Pool::kLargest)
        pool().give_back(memory, size);
    else
        static_cast<void>(cudaFree(memory));
}

// A page of managed memory is zero where it is first touched.
void* map_zeros(std::size_t bytes) { return allocate_managed(bytes); }
void unmap(void* memory, std::size_t) noexcept { static_cast<void>(cudaFree(memory)); }

}  // namespace reports
