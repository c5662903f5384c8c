// Where the report tests run: a device, and memory that it and the host both reach. place_host.cpp is that of the CPU; in tests/device
// place_gpu.cpp is that of a GPU, for the same tests in a second program.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tilewise/tilewise.hpp"

namespace reports {

const tilewise::Device& device();

// Called by every test first. Without the device the test counts as skipped.
void begin_test();
// First in a test about what only the host can do: false, and the test counts as skipped, where the device is another.
bool is_on_host(const char* what);

void* allocate(std::size_t bytes);  // aligned to 64 bytes
void release(void* memory, std::size_t bytes) noexcept;
// Zeros: address space of any size that costs only what is touched.
void* map_zeros(std::size_t bytes);
void unmap(void* memory, std::size_t bytes) noexcept;

template <class T> struct Allocator {
    using value_type = T;
    Allocator() = default;
    template <class U> Allocator(const Allocator<U>&) noexcept {}
    T* allocate(std::size_t count) { return static_cast<T*>(reports::allocate(count * sizeof(T))); }
    void deallocate(T* memory, std::size_t count) noexcept { release(memory, count * sizeof(T)); }
    friend bool operator==(const Allocator&, const Allocator&) { return true; }
};
// What a call may be given as it is.
using Ints = std::vector<std::int32_t, Allocator<std::int32_t>>;
using Bytes = std::vector<std::uint8_t, Allocator<std::uint8_t>>;
using Floats = std::vector<float, Allocator<float>>;

}  // namespace reports
