// Moves tensors by their extent: from the first element to the last, whatever lies between.
#include "device_call.hpp"

#include <array>

#include "slots.hpp"

namespace tilewise::cli {
namespace {

size_t extent_bytes(const Tensor& tensor) {
    int64_t last = 0;
    for (int32_t axis = 0; axis < tensor.rank(); ++axis) {
        if (tensor.size(axis) == 0) return 0;
        last += (tensor.size(axis) - 1) * (tensor.size(axis) > 1 ? tensor.stride(axis) : 0);
    }
    return static_cast<size_t>((last + 1) * size_of(tensor.dtype()));
}

Tensor at_address(const Tensor& tensor, const void* address) {
    std::array<int64_t, TILEWISE_MAX_RANK> shape{}, stride{};
    const auto rank = static_cast<size_t>(tensor.rank());
    for (size_t axis = 0; axis < rank; ++axis) {
        shape[axis] = tensor.size(static_cast<int32_t>(axis));
        stride[axis] = tensor.stride(static_cast<int32_t>(axis));
    }
    return {address, tensor.dtype(), Shape(std::span<const int64_t>(shape).first(rank)),
            Shape(std::span<const int64_t>(stride).first(rank))};
}

}  // namespace

template <class Visit> void DeviceCall::for_each_tensor(Call& call, Visit&& visit) {
    const auto visit_given = [&](Tensor& tensor) {
        if (tensor.given()) visit(tensor);
    };
    for (const Slot& slot : slots()) visit_given(slot.of(call.attention));
    Combination& c = call.combination;
    for (Tensor* tensor : {&c.partial_o, &c.partial_lse, &c.o, &c.lse}) visit_given(*tensor);
}

DeviceCall::DeviceCall(const Device& device, const Call& host) : DeviceCall(device) {
    call_.op = host.op;
    call_.attention = host.attention;
    call_.combination = host.combination;
    for_each_tensor(call_, [&](Tensor& tensor) {
        const size_t bytes = extent_bytes(tensor);
        Entry& entry = entries_.emplace_back(Entry{tensor, DeviceMemory(device, bytes)});
        copy(device_, entry.memory.data(), tensor.data(), bytes);
    });
    move_to_entries();
    synchronize(device_);
}

DeviceCall DeviceCall::clone() const {
    DeviceCall twin(device_);
    twin.call_.op = call_.op;
    twin.call_.attention = call_.attention;
    twin.call_.combination = call_.combination;
    for (const Entry& entry : entries_) {
        Entry& own = twin.entries_.emplace_back(Entry{entry.host, DeviceMemory(device_, entry.memory.size())});
        copy(device_, own.memory.data(), entry.memory.data(), own.memory.size());
    }
    twin.move_to_entries();
    synchronize(device_);
    return twin;
}

void DeviceCall::move_to_entries() {
    size_t next = 0;
    for_each_tensor(call_, [&](Tensor& tensor) { tensor = at_address(tensor, entries_[next++].memory.data()); });
}

int64_t DeviceCall::bytes() const {
    size_t total = 0;
    for (const Entry& entry : entries_) total += entry.memory.size();
    return static_cast<int64_t>(total);
}

void DeviceCall::fetch() const {
    for (const Entry& entry : entries_) copy(device_, entry.host.data(), entry.memory.data(), entry.memory.size());
    synchronize(device_);
}

}  // namespace tilewise::cli
