// Tilewise for C++20: a header-only view of tilewise.h. Objects that release themselves, designated initialisers, exceptions.
//
//   tilewise::Device cpu("cpu");
//   tilewise::forward(cpu, {.q = {q.data(), {b, sq, h, d}}, .k = {k.data(), {b, sk, hk, d}}, .v = {v.data(), {b, sk, hk, dv}},
//                           .o = {o.data(), {b, sq, h, dv}}, .mask{.causal = true}});
//
// Everything here is a thin translation: shapes, units, ownership, threads and semantics are those that tilewise.h documents.
// The names live in an inline namespace, so that programs built with different versions of this header can be linked together.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tilewise/attention.hpp"
#include "tilewise/device.hpp"
#include "tilewise/tensor.hpp"
#include "tilewise/tilewise.h"

namespace tilewise {
inline namespace v0 {

// ---- Workspaces ---------------------------------------------------------------------------------------------------

// Memory for the workspaces of successive calls: grows to the largest one and is kept. One thread at a time, and on a GPU one stream
// at a time. Move-only.
class Workspace {
public:
    static constexpr std::size_t kAlignment = 64;
    Workspace() = default;                                         // in host memory
    explicit Workspace(const Device& device) : device_(device) {}  // in the device's memory
    // At least `bytes` bytes, aligned to kAlignment; their content does not survive a growth.
    std::span<std::byte> reserve(std::size_t bytes) {
        if (bytes > size_) {
            memory_.reset();
            on_device_ = {};
            size_ = 0;
            if (device_)
                on_device_ = DeviceMemory(*device_, bytes);
            else
                memory_.reset(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kAlignment})));
            size_ = bytes;
        }
        return {device_ ? on_device_.data() : memory_.get(), size_};
    }
    std::size_t size() const noexcept { return size_; }
    bool is_host() const noexcept { return !device_ || device_->is_host(); }

private:
    struct Free {
        void operator()(std::byte* memory) const noexcept { ::operator delete (memory, std::align_val_t{kAlignment}); }
    };
    std::optional<Device> device_{};
    std::unique_ptr<std::byte, Free> memory_;
    DeviceMemory on_device_{};
    std::size_t size_ = 0;
};

// Where a call finds its workspace, and on which stream it runs; the last argument of every call below:
//   nothing               a host workspace that lives for the call (CPU only)
//   a Workspace           its memory, which is kept for the next call
//   {workspace, stream}   the same on a stream
//   {memory, stream}      the caller's memory, of the size that Plan::workspace_bytes or workspace_bytes() says
class Scratch {
public:
    Scratch() = default;
    Scratch(Workspace& kept, void* stream = nullptr) : kept_(&kept), stream_(stream) {}
    template <class Memory>
    requires std::convertible_to<Memory&&, std::span<std::byte>> Scratch(Memory&& memory, void* stream = nullptr)
        : memory_(memory), stream_(stream), given_(true) {}

    bool given() const noexcept { return given_; }
    void* stream() const noexcept { return stream_; }
    // The caller's memory, or `bytes` bytes out of the kept workspace or else out of `own`.
    std::span<std::byte> take(std::size_t bytes, bool is_host, Workspace& own) const {
        if (given_) return memory_;
        if (bytes == 0) return {};
        if (kept_ == nullptr && !is_host)
            detail::refuse("workspace: none is given, and " + std::to_string(bytes) +
                           " bytes of device memory are needed");
        if (kept_ != nullptr && kept_->is_host() != is_host)
            detail::refuse(is_host ? "workspace: it is a GPU's, and the call runs on the CPU"
                                   : "workspace: it is host memory, and the call runs on a GPU; Workspace(device) is "
                                     "the device's");
        return (kept_ != nullptr ? *kept_ : own).reserve(bytes);
    }

private:
    Workspace* kept_ = nullptr;
    std::span<std::byte> memory_{};
    void* stream_ = nullptr;
    bool given_ = false;
};

// ---- Plans --------------------------------------------------------------------------------------------------------

enum class Op : std::int32_t {
    kForward = TILEWISE_FORWARD,
    kBackward = TILEWISE_BACKWARD,
    kDecode = TILEWISE_DECODE,
    kAppend = TILEWISE_APPEND,
    kCombine = TILEWISE_COMBINE,
};

// How a problem runs on a device: depends on shapes, strides and options, not on pointers. Several threads may launch one plan
// at the same time with distinct workspaces and outputs. Move-only.
class Plan {
public:
    // Throws Error: kInvalidArgument for an ill-formed problem; kUnsupported, with every kernel's reason, if none serves it.
    Plan(const Device& device, Op op, const Attention& attention) : is_host_(device.is_host()) {
        const tilewise_attention c = to_c(attention);
        tilewise_plan* plan = nullptr;
        detail::check(tilewise_plan_create(device.c(), static_cast<tilewise_op>(op), &c, &plan));
        plan_.reset(plan);
    }
    Plan(const Device& device, const Combination& combination) : is_host_(device.is_host()) {
        const tilewise_combination c = to_c(combination);
        tilewise_plan* plan = nullptr;
        detail::check(tilewise_plan_create_combine(device.c(), &c, &plan));
        plan_.reset(plan);
    }

    std::size_t workspace_bytes() const noexcept { return tilewise_plan_workspace_bytes(plan_.get()); }
    std::string kernel() const { return tilewise_plan_kernel(plan_.get()); }  // name of the main kernel
    std::string text() const { return tilewise_plan_text(plan_.get()); }      // for people
    std::string json() const { return tilewise_plan_json(plan_.get()); }
    const tilewise_plan* c() const noexcept { return plan_.get(); }

    // Runs the plan on tensors of its shapes and strides; data pointers may differ from those it was made with.
    void launch(const Attention& attention, const Scratch& scratch = {}) const {
        const tilewise_attention c = to_c(attention);
        Workspace own;
        const auto memory = scratch.take(workspace_bytes(), is_host_, own);
        detail::check(tilewise_launch(plan_.get(), &c, memory.data(), memory.size(), scratch.stream()));
    }
    void launch(const Combination& combination, const Scratch& scratch = {}) const {
        const tilewise_combination c = to_c(combination);
        Workspace own;
        const auto memory = scratch.take(workspace_bytes(), is_host_, own);
        detail::check(tilewise_launch_combine(plan_.get(), &c, memory.data(), memory.size(), scratch.stream()));
    }

private:
    struct Destroy {
        void operator()(tilewise_plan* plan) const noexcept { tilewise_plan_destroy(plan); }
    };
    std::unique_ptr<tilewise_plan, Destroy> plan_;
    bool is_host_;
};

inline Plan plan(const Device& device, Op op, const Attention& attention) { return {device, op, attention}; }
inline Plan plan(const Device& device, const Combination& combination) { return {device, combination}; }

// ---- One-call forms: plan (cached by problem and device), then launch ---------------------------------------------

// Bytes of workspace that the one-call form needs.
inline std::size_t workspace_bytes(const Device& device, Op op, const Attention& attention) {
    const tilewise_attention c = to_c(attention);
    std::size_t bytes = 0;
    detail::check(tilewise_workspace_bytes(device.c(), static_cast<tilewise_op>(op), &c, &bytes));
    return bytes;
}
inline std::size_t workspace_bytes(const Device& device, const Combination& combination) {
    const tilewise_combination c = to_c(combination);
    std::size_t bytes = 0;
    detail::check(tilewise_workspace_bytes_combine(device.c(), &c, &bytes));
    return bytes;
}

namespace detail {
inline void run(decltype(tilewise_forward)* call, Op op, const Device& device, const Attention& attention,
                const Scratch& scratch) {
    const tilewise_attention c = to_c(attention);
    std::size_t bytes = 0;
    if (!scratch.given()) check(tilewise_workspace_bytes(device.c(), static_cast<tilewise_op>(op), &c, &bytes));
    Workspace own;
    const auto memory = scratch.take(bytes, device.is_host(), own);
    check(call(device.c(), &c, memory.data(), memory.size(), scratch.stream()));
}
}  // namespace detail

// o, and lse if given, from q, k, v.
inline void forward(const Device& device, const Attention& attention, const Scratch& scratch = {}) {
    detail::run(tilewise_forward, Op::kForward, device, attention, scratch);
}
// gradients.grad_* from q, k, v, o, lse and grad_o.
inline void backward(const Device& device, const Attention& attention, const Scratch& scratch = {}) {
    detail::run(tilewise_backward, Op::kBackward, device, attention, scratch);
}
// Appends cache.k_new, v_new to the cache k, v (if given), then attends to it.
inline void decode(const Device& device, const Attention& attention, const Scratch& scratch = {}) {
    detail::run(tilewise_decode, Op::kDecode, device, attention, scratch);
}
// Appends cache.k_new, v_new to the cache k, v, rotated if rotary_cos is given.
inline void append(const Device& device, const Attention& attention, const Scratch& scratch = {}) {
    detail::run(tilewise_append, Op::kAppend, device, attention, scratch);
}
// o and lse of attention over the union of disjoint key sets.
inline void combine(const Device& device, const Combination& combination, const Scratch& scratch = {}) {
    const tilewise_combination c = to_c(combination);
    Workspace own;
    const std::size_t bytes = scratch.given() ? 0 : workspace_bytes(device, combination);
    const auto memory = scratch.take(bytes, device.is_host(), own);
    detail::check(tilewise_combine(device.c(), &c, memory.data(), memory.size(), scratch.stream()));
}

// ---- What there is ------------------------------------------------------------------------------------------------

// "0.1.0", of the library that is loaded.
inline std::string version() { return tilewise_version(); }

// Names to open: this machine's devices, then "recorded:..." descriptions if asked for.
inline std::vector<std::string> devices(bool include_recorded = false) {
    std::vector<std::string> names;
    const std::int32_t count = tilewise_device_count(include_recorded ? 1 : 0);
    for (std::int32_t i = 0; i < count; ++i) names.emplace_back(tilewise_device_name(i));
    return names;
}
// One JSON object a kernel of this build: name, device, op, dtypes, max_head_dim, max_head_dim_v, isa, features.
inline std::vector<std::string> kernels() {
    std::vector<std::string> objects;
    const std::int32_t count = tilewise_kernel_count();
    for (std::int32_t i = 0; i < count; ++i) objects.emplace_back(tilewise_kernel_json(i));
    return objects;
}

}  // namespace v0
}  // namespace tilewise
