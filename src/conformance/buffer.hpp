// Bytes on a device, and the host's copy of them: filled here, sent, changed by a call, fetched, looked at. On the CPU, too, the call
// gets memory apart from the copy, so that one way serves every device.
#pragma once

#include <cstddef>
#include <vector>

#include "tilewise/tilewise.hpp"

namespace tilewise::conformance {

class Buffer {
public:
    // Aligned to kAlignment at least; every byte of the host's copy is `value`.
    static constexpr size_t kAlignment = 64;
    Buffer(const Device& device, size_t bytes, unsigned char value)
        : device_(device), bytes_(bytes, value), memory_(device, bytes) {}

    std::vector<unsigned char>& bytes() { return bytes_; }
    const std::vector<unsigned char>& bytes() const { return bytes_; }
    // For the call.
    std::byte* address() const { return memory_.data(); }

    // In the order of the default stream; bytes() must stay as they are until fetch().
    void send() { copy(device_, memory_.data(), bytes_.data(), bytes_.size()); }
    // Waits.
    void fetch() {
        copy(device_, bytes_.data(), memory_.data(), bytes_.size());
        synchronize(device_);
    }

private:
    Device device_;
    std::vector<unsigned char> bytes_;
    DeviceMemory memory_;
};

}  // namespace tilewise::conformance
