// A call on a device: every tensor of a host's call in memory of the device, with the same strides and bytes.
#pragma once

#include <vector>

#include "synthetic.hpp"

namespace tilewise::cli {

class DeviceCall {
public:
    // Copies every tensor; `host` must outlive fetch().
    DeviceCall(const Device& device, const Call& host);
    // The same on memory of its own, copied on the device.
    DeviceCall clone() const;

    const Call& call() const { return call_; }
    int64_t bytes() const;
    // Waits, and brings every tensor back to where it came from.
    void fetch() const;

private:
    struct Entry {
        Tensor host;
        DeviceMemory memory;
    };

    explicit DeviceCall(const Device& device) : device_(device) {}
    // Calls visit(tensor) for every given tensor of a call, always in one order.
    template <class Visit> static void for_each_tensor(Call& call, Visit&& visit);
    void move_to_entries();

    Device device_;
    std::vector<Entry> entries_;
    Call call_;
};

}  // namespace tilewise::cli
