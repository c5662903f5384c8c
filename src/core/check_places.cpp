// Where the pointers of a launch lie: asked of the backend in one go, so that it makes its device current once.
#include <fmt/format.h>

#include <array>
#include <string>

#include "core/device_backend.hpp"
#include "core/plan.hpp"

namespace tilewise {
namespace {

constexpr size_t kMaxPointers = kNumArgs + 1;

// The pointers that a launch reads or writes, and their names.
struct Pointers {
    std::array<const void*, kMaxPointers> addresses{};
    std::array<const char*, kMaxPointers> names{};
    size_t count = 0;

    void add(const char* name, const void* address) {
        if (address == nullptr) return;
        names[count] = name;
        addresses[count++] = address;
    }
};

Pointers pointers_of(const Plan& plan, const Arguments& arguments) {
    Pointers pointers;
    for (size_t i = 0; i < kNumArgs; ++i) {
        const Arg arg = static_cast<Arg>(i);
        const bool is_used = plan.problem.has(arg) && plan.problem[arg].num_elements() > 0;
        if (is_used) pointers.add(name_of(arg), arguments.pointers[arg]);
    }
    if (plan.workspace_bytes > 0) pointers.add("workspace", arguments.workspace);
    return pointers;
}

}  // namespace

Status check_places(const Plan& plan, const Arguments& arguments, const DeviceBackend& backend) {
    if (backend.memory.locate == nullptr) return {};
    const Pointers pointers = pointers_of(plan, arguments);
    std::array<PointerPlace, kMaxPointers> places;
    const int32_t device = plan.device.index;
    if (Status status = backend.memory.locate(device, std::span(pointers.addresses).first(pointers.count),
                                              std::span(places).first(pointers.count));
        !status.ok())
        return status;
    for (size_t i = 0; i < pointers.count; ++i) {
        if (places[i].kind == PointerPlace::Kind::kHost)
            return Status::invalid(
                fmt::format("{}: the pointer is host memory; device cuda:{} needs device memory (tilewise_allocate, "
                            "cudaMalloc), managed memory, or host memory that is registered with CUDA",
                            pointers.names[i], device));
        if (places[i].kind == PointerPlace::Kind::kOtherDevice)
            return Status::invalid(fmt::format("{}: the pointer is memory of cuda:{}; the plan was made for cuda:{}",
                                               pointers.names[i], places[i].device, device));
    }
    return {};
}

}  // namespace tilewise
