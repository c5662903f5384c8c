// Three calls with their tensors on a device: a causal forward, its backward, and a decode with an append and rotary. Sizes lie off
// the tiles' edges.
#pragma once

#include <numeric>

#include "gpu.hpp"

namespace gpu_test {

struct Sizes {
    int64_t b = 2, sq = 203, sk = 331, h = 6, hk = 2, d = 64;
};

// q, k, v and o of a forward.
class Forward {
public:
    Forward(const tilewise::Device& device, uint32_t seed, const Sizes& s = {})
        : sizes(s),
          q(device, values(s.b * s.sq * s.h * s.d, seed)),
          k(device, values(s.b * s.sk * s.hk * s.d, seed + 1)),
          v(device, values(s.b * s.sk * s.hk * s.d, seed + 2)),
          o(device, static_cast<size_t>(s.b * s.sq * s.h * s.d)),
          lse(device, static_cast<size_t>(s.b * s.h * s.sq)) {
        call.q = {q.data(), {s.b, s.sq, s.h, s.d}};
        call.k = {k.data(), {s.b, s.sk, s.hk, s.d}};
        call.v = {v.data(), {s.b, s.sk, s.hk, s.d}};
        call.o = {o.data(), {s.b, s.sq, s.h, s.d}};
        call.lse = {lse.data(), {s.b, s.h, s.sq}};
        call.mask.causal = true;
    }
    Forward(const Forward&) = delete;
    Forward& operator=(const Forward&) = delete;

    Sizes sizes;
    Array<tilewise::BF16> q, k, v, o;
    Array<float> lse;
    tilewise::Attention call;
};

// The gradients of a forward that has run.
class Backward {
public:
    Backward(const tilewise::Device& device, const Forward& forward, uint32_t seed)
        : grad_o(device, values(forward.sizes.b * forward.sizes.sq * forward.sizes.h * forward.sizes.d, seed)),
          grad_q(device, static_cast<size_t>(forward.sizes.b * forward.sizes.sq * forward.sizes.h * forward.sizes.d)),
          grad_k(device, static_cast<size_t>(forward.sizes.b * forward.sizes.sk * forward.sizes.hk * forward.sizes.d)),
          grad_v(device, static_cast<size_t>(forward.sizes.b * forward.sizes.sk * forward.sizes.hk * forward.sizes.d)),
          call(forward.call) {
        const Sizes& s = forward.sizes;
        call.gradients.grad_o = {grad_o.data(), {s.b, s.sq, s.h, s.d}};
        call.gradients.grad_q = {grad_q.data(), {s.b, s.sq, s.h, s.d}};
        call.gradients.grad_k = {grad_k.data(), {s.b, s.sk, s.hk, s.d}};
        call.gradients.grad_v = {grad_v.data(), {s.b, s.sk, s.hk, s.d}};
    }
    Backward(const Backward&) = delete;
    Backward& operator=(const Backward&) = delete;

    Array<tilewise::BF16> grad_o, grad_q, grad_k, grad_v;
    tilewise::Attention call;
};

// One new token a sequence, into a cache of `capacity` rows that holds some.
class Decode {
public:
    Decode(const tilewise::Device& device, uint32_t seed, int64_t capacity = 700)
        : q(device, values(b * h * d, seed)),
          k(device, values(b * capacity * hk * d, seed + 1)),
          v(device, values(b * capacity * hk * d, seed + 2)),
          k_new(device, values(b * hk * d, seed + 3)),
          v_new(device, values(b * hk * d, seed + 4)),
          o(device, static_cast<size_t>(b * h * d)),
          cos(device, angles(capacity, [](float x) { return std::cos(x); })),
          sin(device, angles(capacity, [](float x) { return std::sin(x); })),
          cache_seqlens(device, std::vector<int32_t>{401, 0, 599}) {
        call.q = {q.data(), {b, 1, h, d}};
        call.k = {k.data(), {b, capacity, hk, d}};
        call.v = {v.data(), {b, capacity, hk, d}};
        call.o = {o.data(), {b, 1, h, d}};
        call.mask.causal = true;
        call.cache.cache_seqlens = {cache_seqlens.data(), {b}};
        call.cache.k_new = {k_new.data(), {b, 1, hk, d}};
        call.cache.v_new = {v_new.data(), {b, 1, hk, d}};
        call.cache.rotary_cos = {cos.data(), {capacity, d / 2}};
        call.cache.rotary_sin = {sin.data(), {capacity, d / 2}};
    }
    Decode(const Decode&) = delete;
    Decode& operator=(const Decode&) = delete;

    static constexpr int64_t b = 3, h = 8, hk = 2, d = 128;
    Array<tilewise::BF16> q, k, v, k_new, v_new, o;
    Array<float> cos, sin;
    Array<int32_t> cache_seqlens;
    tilewise::Attention call;

private:
    template <class Function> static std::vector<float> angles(int64_t positions, Function&& function) {
        std::vector<float> table;
        for (int64_t position = 0; position < positions; ++position)
            for (int64_t pair = 0; pair < d / 2; ++pair)
                table.push_back(function(static_cast<float>(position) *
                                         std::pow(10000.0f, -2.0f * static_cast<float>(pair) / static_cast<float>(d))));
        return table;
    }
};

// A plan and its workspace on the device.
class Planned {
public:
    Planned(const tilewise::Device& device, tilewise::Op op, const tilewise::Attention& call)
        : plan_(device, op, call), workspace_(device, plan_.workspace_bytes()) {}
    void launch(const tilewise::Attention& call, void* stream = nullptr) const {
        plan_.launch(call, {std::span<std::byte>(workspace_), stream});
    }
    const tilewise::Plan& plan() const { return plan_; }
    // Someone else used the memory meanwhile: the first `count` bytes of each word hold `bytes` of his.
    void reuse_workspace(const void* bytes, size_t count) const {
        std::vector<std::byte> host(plan_.workspace_bytes());
        if (host.empty()) return;
        auto* const device = std::span<std::byte>(workspace_).data();
        cuda_ok(cudaMemcpy(host.data(), device, host.size(), cudaMemcpyDefault));
        for (size_t i = 0; i + count <= host.size(); i += sizeof(uint64_t)) std::memcpy(host.data() + i, bytes, count);
        cuda_ok(cudaMemcpy(device, host.data(), host.size(), cudaMemcpyDefault));
    }

private:
    tilewise::Plan plan_;
    tilewise::DeviceMemory workspace_;
};

}  // namespace gpu_test
