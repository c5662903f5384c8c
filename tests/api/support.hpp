// What the tests of the public interface share: tensors of the C header, a small attention call with its buffers, and the answer by three
// plain loops. Nothing of src/ is included here: these tests see what a user sees.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "tilewise/tilewise.h"

namespace api_test {

inline tilewise_tensor tensor(void* data, tilewise_dtype dtype, std::initializer_list<int64_t> shape) {
    tilewise_tensor t{};
    t.data = data;
    t.dtype = dtype;
    t.rank = static_cast<int32_t>(shape.size());
    std::copy(shape.begin(), shape.end(), t.shape);
    int64_t stride = 1;
    for (int32_t axis = t.rank - 1; axis >= 0; --axis) {
        t.stride[axis] = stride;
        stride *= t.shape[axis];
    }
    return t;
}
inline tilewise_tensor f32(std::vector<float>& data, std::initializer_list<int64_t> shape) {
    return tensor(data.data(), TILEWISE_F32, shape);
}
inline tilewise_tensor i32(std::vector<int32_t>& data, std::initializer_list<int64_t> shape) {
    return tensor(data.data(), TILEWISE_I32, shape);
}

// Values in [-1, 1) that depend on the seed and the place only.
inline std::vector<float> values(int64_t count, uint32_t seed) {
    std::vector<float> x(static_cast<size_t>(count));
    uint32_t state = seed * 2654435761u + 1;
    for (float& value : x) {
        state = state * 1664525u + 1013904223u;
        value = static_cast<float>(state >> 8) / static_cast<float>(1 << 23) - 1.0f;
    }
    return x;
}
inline std::vector<float> nans(int64_t count) {
    return std::vector<float>(static_cast<size_t>(count), std::numeric_limits<float>::quiet_NaN());
}

struct Shape {
    int64_t b = 2, sq = 5, sk = 9, h = 4, hk = 2, d = 8, dv = 6;
};

// A forward of `shape` with its own buffers; outputs start as NaN. Not copyable: the call points into it.
struct Forward {
    explicit Forward(const Shape& s = {}, uint32_t seed = 1)
        : shape(s),
          q(values(s.b * s.sq * s.h * s.d, seed)),
          k(values(s.b * s.sk * s.hk * s.d, seed + 1)),
          v(values(s.b * s.sk * s.hk * s.dv, seed + 2)),
          o(nans(s.b * s.sq * s.h * s.dv)),
          lse(nans(s.b * s.h * s.sq)) {
        call.struct_size = sizeof call;
        call.q = f32(q, {s.b, s.sq, s.h, s.d});
        call.k = f32(k, {s.b, s.sk, s.hk, s.d});
        call.v = f32(v, {s.b, s.sk, s.hk, s.dv});
        call.o = f32(o, {s.b, s.sq, s.h, s.dv});
        call.lse = f32(lse, {s.b, s.h, s.sq});
    }
    Forward(const Forward&) = delete;
    Forward& operator=(const Forward&) = delete;

    Shape shape;
    std::vector<float> q, k, v, o, lse;
    tilewise_attention call{};
};

// softmax(q k^T / sqrt(d)) v in double; causal is bottom-right.
inline std::vector<float> plain_attention(const Forward& f, bool causal) {
    const Shape& s = f.shape;
    std::vector<float> o(f.o.size(), 0.0f);
    const auto at = [](const std::vector<float>& x, int64_t index) { return double{x[static_cast<size_t>(index)]}; };
    for (int64_t row = 0; row < s.b * s.sq * s.h; ++row) {
        const int64_t batch = row / (s.sq * s.h), i = row / s.h % s.sq, head = row % s.h / (s.h / s.hk);
        const int64_t seen = std::clamp<int64_t>(causal ? i + s.sk - s.sq + 1 : s.sk, 0, s.sk);
        double sum = 0.0;
        std::vector<double> numerator(static_cast<size_t>(s.dv), 0.0);
        for (int64_t j = 0; j < seen; ++j) {
            const int64_t key = (batch * s.sk + j) * s.hk + head;
            double score = 0.0;
            for (int64_t c = 0; c < s.d; ++c) score += at(f.q, row * s.d + c) * at(f.k, key * s.d + c);
            const double p = std::exp(score / std::sqrt(static_cast<double>(s.d)));
            sum += p;
            for (int64_t c = 0; c < s.dv; ++c) numerator[static_cast<size_t>(c)] += p * at(f.v, key * s.dv + c);
        }
        for (int64_t c = 0; c < s.dv && seen > 0; ++c)
            o[static_cast<size_t>(row * s.dv + c)] = static_cast<float>(numerator[static_cast<size_t>(c)] / sum);
    }
    return o;
}

inline void expect_near(const std::vector<float>& actual, const std::vector<float>& expected, float tolerance = 2e-5f) {
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) ASSERT_NEAR(actual[i], expected[i], tolerance) << "element " << i;
}
inline bool all_nan(const std::vector<float>& x) {
    return std::all_of(x.begin(), x.end(), [](float value) { return std::isnan(value); });
}

// Exactly `bytes` bytes of workspace; null for 0.
class Memory {
public:
    explicit Memory(size_t bytes) : size_(bytes) {
        if (bytes > 0) data_.reset(::operator new (bytes, std::align_val_t{64}));
    }
    void* data() const { return data_.get(); }
    size_t size() const { return size_; }

private:
    struct Free {
        void operator()(void* data) const { ::operator delete (data, std::align_val_t{64}); }
    };
    std::unique_ptr<void, Free> data_;
    size_t size_;
};

struct CloseDevice {
    void operator()(tilewise_device* device) const { tilewise_device_close(device); }
};
using DevicePtr = std::unique_ptr<tilewise_device, CloseDevice>;
inline DevicePtr open(const char* name) {
    tilewise_device* device = nullptr;
    EXPECT_EQ(tilewise_device_open(name, &device), TILEWISE_OK) << tilewise_last_error();
    return DevicePtr(device);
}

struct DestroyPlan {
    void operator()(tilewise_plan* plan) const { tilewise_plan_destroy(plan); }
};
using PlanPtr = std::unique_ptr<tilewise_plan, DestroyPlan>;
inline PlanPtr make_plan(const DevicePtr& device, tilewise_op op, const tilewise_attention& call) {
    tilewise_plan* plan = nullptr;
    EXPECT_EQ(tilewise_plan_create(device.get(), op, &call, &plan), TILEWISE_OK) << tilewise_last_error();
    return PlanPtr(plan);
}

using OneCall = decltype(tilewise_forward)*;

// Runs a one-call form with the workspace that it asks for.
inline tilewise_status run(OneCall one_call, tilewise_op op, const DevicePtr& device, const tilewise_attention& call) {
    size_t bytes = 0;
    if (const auto status = tilewise_workspace_bytes(device.get(), op, &call, &bytes); status != TILEWISE_OK)
        return status;
    const Memory workspace(bytes);
    return one_call(device.get(), &call, workspace.data(), bytes, nullptr);
}
inline tilewise_status run_forward(const DevicePtr& device, const tilewise_attention& call) {
    return run(tilewise_forward, TILEWISE_FORWARD, device, call);
}

// Expects `status` with a message that begins with the argument's name and holds `part`.
inline void expect_refusal(tilewise_status actual, tilewise_status expected, const std::string& argument,
                           const std::string& part = "") {
    const std::string message = tilewise_last_error();
    EXPECT_EQ(actual, expected) << message;
    EXPECT_EQ(message.rfind(argument + ":", 0), 0u) << "\"" << message << "\" should begin with " << argument;
    EXPECT_NE(message.find(part), std::string::npos) << "\"" << message << "\" should hold \"" << part << "\"";
}
inline void expect_invalid(tilewise_status actual, const std::string& argument, const std::string& part = "") {
    expect_refusal(actual, TILEWISE_INVALID_ARGUMENT, argument, part);
}

}  // namespace api_test
