// Memory with properties: address space of any size that costs only the pages that are touched, and memory that ends where the next byte
// cannot be touched.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

#include "place.hpp"

namespace reports {

// Zeros. Elements far apart in it reach offsets past 2^31 and 2^32 in a few pages.
class SparseMemory {
public:
    explicit SparseMemory(std::int64_t bytes)
        : bytes_(static_cast<std::size_t>(bytes)), data_(map_zeros(static_cast<std::size_t>(bytes))) {}
    SparseMemory(const SparseMemory&) = delete;
    SparseMemory& operator=(const SparseMemory&) = delete;
    ~SparseMemory() { unmap(data_, bytes_); }

    void* data() const { return data_; }
    template <class T> T* at(std::int64_t element) const { return static_cast<T*>(data_) + element; }

private:
    std::size_t bytes_;
    void* data_;
};

// `bytes` bytes whose end is as near to a page that cannot be touched as their alignment allows; all other bytes around them are watched.
class GuardedMemory {
public:
    explicit GuardedMemory(std::size_t bytes, std::size_t alignment = 64) : bytes_(bytes) {
        const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
        const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
        open_ = (rounded + page - 1) / page * page;
        mapped_ = open_ + page;
        void* const mapped = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mapped == MAP_FAILED) throw std::runtime_error(std::string("no guarded memory: ") + std::strerror(errno));
        base_ = static_cast<std::byte*>(mapped);
        if (::mprotect(base_ + open_, page, PROT_NONE) != 0)
            throw std::runtime_error(std::string("no guard page: ") + std::strerror(errno));
        std::memset(base_, kPattern, open_);
        data_ = base_ + open_ - rounded;
    }
    GuardedMemory(const GuardedMemory&) = delete;
    GuardedMemory& operator=(const GuardedMemory&) = delete;
    ~GuardedMemory() { ::munmap(base_, mapped_); }

    std::byte* data() const { return data_; }
    std::size_t size() const { return bytes_; }
    // True while nothing around the memory was written.
    bool is_intact() const {
        const auto kept = [](std::byte value) { return value == std::byte{kPattern}; };
        return std::all_of(base_, data_, kept) && std::all_of(data_ + bytes_, base_ + open_, kept);
    }

private:
    static constexpr unsigned char kPattern = 0xa5;

    std::size_t bytes_, open_ = 0, mapped_ = 0;
    std::byte *base_ = nullptr, *data_ = nullptr;
};

}  // namespace reports
