// The one-call forms: forward against plain loops; backward, decode, append and combine against what they must agree with. Correctness over
// the whole range of options is the conformance suite's; here the interface is at stake.
#include <cstring>

#include "support.hpp"

namespace {

using namespace api_test;

class Calls : public testing::Test {
protected:
    DevicePtr cpu = open("cpu");
};

TEST_F(Calls, ForwardAgreesWithPlainLoops) {
    for (const bool causal : {false, true}) {
        Forward f;
        f.call.mask.flags = causal ? TILEWISE_MASK_CAUSAL : 0;
        ASSERT_EQ(run_forward(cpu, f.call), TILEWISE_OK) << tilewise_last_error();
        expect_near(f.o, plain_attention(f, causal));
    }
}

TEST_F(Calls, EmptyBatchIsDefined) {
    Forward f(Shape{0, 5, 9, 4, 2, 8, 6});
    EXPECT_EQ(run_forward(cpu, f.call), TILEWISE_OK) << tilewise_last_error();
    Forward no_keys(Shape{2, 3, 0, 4, 2, 8, 6});
    ASSERT_EQ(run_forward(cpu, no_keys.call), TILEWISE_OK) << tilewise_last_error();
    EXPECT_EQ(no_keys.o, std::vector<float>(no_keys.o.size(), 0.0f));
    EXPECT_EQ(no_keys.lse, std::vector<float>(no_keys.lse.size(), -std::numeric_limits<float>::infinity()));
}

// (loss(x + e) - loss(x - e)) / 2e of loss = sum(o * grad_o), for one element of an input.
float difference_quotient(const DevicePtr& cpu, Forward& f, const std::vector<float>& grad_o, float& element) {
    const auto loss = [&] {
        EXPECT_EQ(run_forward(cpu, f.call), TILEWISE_OK) << tilewise_last_error();
        double sum = 0.0;
        for (size_t i = 0; i < grad_o.size(); ++i) sum += double{f.o[i]} * double{grad_o[i]};
        return sum;
    };
    constexpr float kStep = 1e-2f;
    const float kept = element;
    element = kept + kStep;
    const double above = loss();
    element = kept - kStep;
    const double below = loss();
    element = kept;
    return static_cast<float>((above - below) / (2 * double{kStep}));
}

TEST_F(Calls, BackwardIsTheDerivative) {
    Forward f;
    f.call.mask.flags = TILEWISE_MASK_CAUSAL;
    ASSERT_EQ(run_forward(cpu, f.call), TILEWISE_OK) << tilewise_last_error();
    std::vector<float> grad_o = values(static_cast<int64_t>(f.o.size()), 9);
    std::vector<float> grad_q = nans(static_cast<int64_t>(f.q.size())), grad_k = nans(static_cast<int64_t>(f.k.size())),
                       grad_v = nans(static_cast<int64_t>(f.v.size()));
    const Shape& s = f.shape;
    f.call.gradients.grad_o = f32(grad_o, {s.b, s.sq, s.h, s.dv});
    f.call.gradients.grad_q = f32(grad_q, {s.b, s.sq, s.h, s.d});
    f.call.gradients.grad_k = f32(grad_k, {s.b, s.sk, s.hk, s.d});
    f.call.gradients.grad_v = f32(grad_v, {s.b, s.sk, s.hk, s.dv});
    ASSERT_EQ(run(tilewise_backward, TILEWISE_BACKWARD, cpu, f.call), TILEWISE_OK) << tilewise_last_error();

    f.call.gradients = tilewise_gradients{};
    for (const size_t i : {size_t{0}, size_t{77}, size_t{200}}) {
        EXPECT_NEAR(grad_q[i], difference_quotient(cpu, f, grad_o, f.q[i]), 2e-3f) << "grad_q " << i;
        EXPECT_NEAR(grad_k[i], difference_quotient(cpu, f, grad_o, f.k[i]), 2e-3f) << "grad_k " << i;
        EXPECT_NEAR(grad_v[i], difference_quotient(cpu, f, grad_o, f.v[i]), 2e-3f) << "grad_v " << i;
    }
}

// A cache of `capacity` rows a sequence whose first rows are k, v of a Forward; the others are NaN.
struct CacheCall {
    CacheCall(Forward& f, int64_t capacity, std::vector<int32_t> used_rows) : used(std::move(used_rows)) {
        const Shape& s = f.shape;
        k = nans(s.b * capacity * s.hk * s.d);
        v = nans(s.b * capacity * s.hk * s.dv);
        k_new = nans(s.b * s.sq * s.hk * s.d);
        v_new = nans(s.b * s.sq * s.hk * s.dv);
        for (int64_t n = 0; n < s.b; ++n) {
            const int64_t old_rows = used[static_cast<size_t>(n)];
            copy_rows(f.k, n * s.sk, k, n * capacity, old_rows, s.hk * s.d);
            copy_rows(f.v, n * s.sk, v, n * capacity, old_rows, s.hk * s.dv);
            copy_rows(f.k, n * s.sk + old_rows, k_new, n * s.sq, s.sq, s.hk * s.d);
            copy_rows(f.v, n * s.sk + old_rows, v_new, n * s.sq, s.sq, s.hk * s.dv);
        }
        call = f.call;
        call.k = f32(k, {s.b, capacity, s.hk, s.d});
        call.v = f32(v, {s.b, capacity, s.hk, s.dv});
        call.cache.cache_seqlens = i32(used, {s.b});
        call.cache.k_new = f32(k_new, {s.b, s.sq, s.hk, s.d});
        call.cache.v_new = f32(v_new, {s.b, s.sq, s.hk, s.dv});
    }
    static void copy_rows(const std::vector<float>& from, int64_t row, std::vector<float>& to, int64_t to_row,
                          int64_t rows, int64_t width) {
        std::copy_n(from.begin() + row * width, rows * width, to.begin() + to_row * width);
    }

    std::vector<int32_t> used;
    std::vector<float> k, v, k_new, v_new;
    tilewise_attention call{};
};

// sk - sq old rows and sq new ones give what a forward over all sk rows gives.
TEST_F(Calls, DecodeIsAppendThenForward) {
    Forward f;
    f.call.mask.flags = TILEWISE_MASK_CAUSAL;
    CacheCall cache(f, 16, {4, 4});
    ASSERT_EQ(run(tilewise_decode, TILEWISE_DECODE, cpu, cache.call), TILEWISE_OK) << tilewise_last_error();
    expect_near(f.o, plain_attention(f, true));
    EXPECT_EQ(cache.used, (std::vector<int32_t>{4, 4})) << "the caller's lengths are never changed";

    CacheCall again(f, 16, {4, 4});
    tilewise_attention append{};
    append.struct_size = sizeof append;
    append.k = again.call.k;
    append.v = again.call.v;
    append.cache = again.call.cache;
    ASSERT_EQ(run(tilewise_append, TILEWISE_APPEND, cpu, append), TILEWISE_OK) << tilewise_last_error();
    EXPECT_EQ(std::memcmp(again.k.data(), cache.k.data(), cache.k.size() * sizeof(float)), 0);
    EXPECT_EQ(std::memcmp(again.v.data(), cache.v.data(), cache.v.size() * sizeof(float)), 0);

    // Without new keys a decode attends to what the cache holds.
    std::fill(f.o.begin(), f.o.end(), std::numeric_limits<float>::quiet_NaN());
    again.used = {9, 9};
    again.call.cache.k_new = again.call.cache.v_new = tilewise_tensor{};
    ASSERT_EQ(run(tilewise_decode, TILEWISE_DECODE, cpu, again.call), TILEWISE_OK) << tilewise_last_error();
    expect_near(f.o, plain_attention(f, true));
}

TEST_F(Calls, PagedDecodeEqualsDense) {
    Forward f;
    f.call.mask.flags = TILEWISE_MASK_CAUSAL;
    CacheCall cache(f, 12, {4, 4});
    // Three pages of 4 rows a sequence, in a scrambled order.
    std::vector<int32_t> table = {5, 0, 3, 2, 4, 1};
    const Shape& s = f.shape;
    std::vector<float> k = nans(6 * 4 * s.hk * s.d), v = nans(6 * 4 * s.hk * s.dv);
    for (int64_t page = 0; page < 6; ++page) {
        CacheCall::copy_rows(cache.k, page * 4, k, table[static_cast<size_t>(page)] * 4, 4, s.hk * s.d);
        CacheCall::copy_rows(cache.v, page * 4, v, table[static_cast<size_t>(page)] * 4, 4, s.hk * s.dv);
    }
    cache.call.k = f32(k, {6, 4, s.hk, s.d});
    cache.call.v = f32(v, {6, 4, s.hk, s.dv});
    cache.call.cache.page_table = i32(table, {2, 3});
    ASSERT_EQ(run(tilewise_decode, TILEWISE_DECODE, cpu, cache.call), TILEWISE_OK) << tilewise_last_error();
    expect_near(f.o, plain_attention(f, true));
}

TEST_F(Calls, CacheOverflowIsRefusedBeforeAnyWrite) {
    Forward f;
    CacheCall cache(f, 8, {4, 4});
    const std::vector<float> before = cache.k;
    std::vector<int32_t> flag = {0};
    cache.call.cache.error_flag = i32(flag, {1});
    expect_invalid(run(tilewise_decode, TILEWISE_DECODE, cpu, cache.call), "cache_seqlens", "8");
    EXPECT_EQ(flag[0], 0) << "on a CPU the status says it";
    EXPECT_EQ(std::memcmp(before.data(), cache.k.data(), before.size() * sizeof(float)), 0);
    EXPECT_TRUE(all_nan(f.o));
}

// Attention over the first and the last keys, merged, is attention over all of them.
TEST_F(Calls, CombineMergesDisjointKeys) {
    Forward f;
    const Shape& s = f.shape;
    std::vector<float> parts_o = nans(2 * static_cast<int64_t>(f.o.size())),
                       parts_lse = nans(2 * static_cast<int64_t>(f.lse.size()));
    const int64_t first_keys = 4;
    for (int64_t part = 0; part < 2; ++part) {
        tilewise_attention call = f.call;
        const int64_t begin = part == 0 ? 0 : first_keys, end = part == 0 ? first_keys : s.sk;
        call.k.shape[1] = call.v.shape[1] = end - begin;
        call.k.data = f.k.data() + begin * s.hk * s.d;
        call.v.data = f.v.data() + begin * s.hk * s.dv;
        call.o.data = parts_o.data() + part * static_cast<int64_t>(f.o.size());
        call.lse.data = parts_lse.data() + part * static_cast<int64_t>(f.lse.size());
        ASSERT_EQ(run_forward(cpu, call), TILEWISE_OK) << tilewise_last_error();
    }
    tilewise_combination parts{};
    parts.struct_size = sizeof parts;
    parts.partial_o = f32(parts_o, {2, s.b, s.sq, s.h, s.dv});
    parts.partial_lse = f32(parts_lse, {2, s.b, s.h, s.sq});
    parts.o = f.call.o;
    parts.lse = f.call.lse;
    size_t bytes = 1;
    ASSERT_EQ(tilewise_workspace_bytes_combine(cpu.get(), &parts, &bytes), TILEWISE_OK) << tilewise_last_error();
    const Memory workspace(bytes);
    ASSERT_EQ(tilewise_combine(cpu.get(), &parts, workspace.data(), bytes, nullptr), TILEWISE_OK)
        << tilewise_last_error();
    expect_near(f.o, plain_attention(f, false));
    const std::vector<float> merged = f.lse;
    ASSERT_EQ(run_forward(cpu, f.call), TILEWISE_OK) << tilewise_last_error();
    expect_near(merged, f.lse);
}

}  // namespace
