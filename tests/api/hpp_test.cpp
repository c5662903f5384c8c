// The C++ view: tensors from everything that memory can be, structs to C, objects and exceptions. Numbers are checked where a wrong translation
// would change them.
#include "tilewise/tilewise.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

// A 16-bit float of a user's own.
struct UserHalf {
    std::uint16_t bits = 0;
};
template <> inline constexpr tilewise::DType tilewise::kElementType<UserHalf> = tilewise::DType::kF16;

namespace {

using tilewise::Attention;
using tilewise::Device;
using tilewise::DType;
using tilewise::Error;
using tilewise::Op;
using tilewise::Shape;
using tilewise::Tensor;
using tilewise::Workspace;

// Expects an Error whose message begins with `argument:`.
template <class Body> void expect_error(Body&& body, tilewise::Status status, const std::string& argument) {
    try {
        body();
        FAIL() << "no error; " << argument << " was expected";
    } catch (const Error& e) {
        EXPECT_EQ(e.status(), status) << e.what();
        EXPECT_EQ(std::string(e.what()).rfind(argument + ":", 0), 0u) << e.what();
    }
}
template <class Body> void expect_invalid(Body&& body, const std::string& argument) {
    expect_error(body, tilewise::Status::kInvalidArgument, argument);
}

TEST(Tensors, FromPointers) {
    float data[24] = {};
    const Tensor t(data, {2, 3, 4});
    EXPECT_TRUE(t.given());
    EXPECT_EQ(t.data(), data);
    EXPECT_EQ(t.dtype(), DType::kF32);
    EXPECT_EQ(t.rank(), 3);
    EXPECT_EQ(t.size(1), 3);
    EXPECT_EQ(t.stride(0), 12);
    EXPECT_EQ(t.stride(2), 1);
    const float* constant = data;
    const std::size_t n = 2;
    EXPECT_EQ(Tensor(constant, {n, 3, 4}, {1, 8, 2}).stride(1), 8);
    EXPECT_FALSE(Tensor().given());
    EXPECT_EQ(Tensor(static_cast<float*>(nullptr), {0, 5}).stride(0), 5);
}

TEST(Tensors, FromRanges) {
    std::vector<std::int32_t> lengths = {0, 3, 7};
    const Tensor whole = lengths;
    EXPECT_EQ(whole.dtype(), DType::kI32);
    EXPECT_EQ(whole.rank(), 1);
    EXPECT_EQ(whole.size(0), 3);
    std::array<double, 6> doubles{};
    EXPECT_EQ(Tensor(doubles, {2, 3}).dtype(), DType::kF64);
    EXPECT_EQ(Tensor(std::span<const double>(doubles), {6}).size(0), 6);
    const std::vector<std::uint16_t> bits(8);
    EXPECT_EQ(Tensor(bits, DType::kBF16, {2, 4}).dtype(), DType::kBF16);
    EXPECT_EQ(Tensor(std::as_bytes(std::span(bits)), DType::kF16, {8}).dtype(), DType::kF16);
}

TEST(Tensors, FromElementTypes) {
    EXPECT_EQ(tilewise::kElementType<tilewise::BF16>, DType::kBF16);
    EXPECT_EQ(tilewise::kElementType<tilewise::F16>, DType::kF16);
    EXPECT_EQ(tilewise::kElementType<bool>, DType::kBool);
    EXPECT_EQ(tilewise::kElementType<std::int64_t>, DType::kI64);
    std::vector<UserHalf> user(4);
    EXPECT_EQ(Tensor(user, {2, 2}).dtype(), DType::kF16);
    static_assert(!std::is_constructible_v<Tensor, std::uint16_t*, Shape>, "bits need an explicit dtype");
    static_assert(!std::is_constructible_v<Tensor, std::vector<float>&&, Shape>, "a temporary would dangle");
}

TEST(Tensors, RangesMustHoldEveryElement) {
    std::vector<float> data(24);
    EXPECT_NO_THROW(Tensor(data, {2, 3, 4}));
    EXPECT_NO_THROW(Tensor(data, {2, 3, 4}, {0, 8, 2}));
    EXPECT_NO_THROW(Tensor(data, {1000, 24}, {0, 1}));
    EXPECT_NO_THROW(Tensor(data, {5, 0, 100}));
    expect_invalid([&] { Tensor(data, {2, 3, 5}); }, "tensor");
    expect_invalid([&] { Tensor(data, {2, 3}, {20, 2}); }, "tensor");
    expect_invalid([&] { Tensor(data, {std::numeric_limits<std::int64_t>::max(), 4}); }, "tensor");
    expect_invalid([&] { Tensor(std::span(data).first(0), {1}); }, "tensor");
    expect_invalid([&] { Tensor(std::span<const std::uint16_t>(), DType::kBF16, {1}); }, "tensor");
    expect_invalid([&] { Tensor(data, {2, 3, 4}, {4, 1}); }, "strides");
    const std::vector<std::int64_t> six(6, 1);
    expect_invalid([&] { Shape shape{std::span(six)}; }, "shape");
}

TEST(Structs, MasksBecomeFlags) {
    EXPECT_EQ(tilewise::to_c(Attention{}).mask.flags, 0u);
    EXPECT_EQ(tilewise::to_c(Attention{.mask{.causal = true}}).mask.flags, TILEWISE_MASK_CAUSAL);
    const auto window = tilewise::to_c(Attention{.mask{.window_left = 5, .top_left = true}}).mask;
    EXPECT_EQ(window.flags, static_cast<unsigned>(TILEWISE_MASK_WINDOW) | TILEWISE_MASK_TOP_LEFT);
    EXPECT_EQ(window.window_left, 5);
    EXPECT_EQ(window.window_right, -1);
    const auto causal = tilewise::to_c(Attention{.mask{.causal = true, .window_left = 0}}).mask;
    EXPECT_EQ(causal.window_left, 0);
    EXPECT_EQ(causal.window_right, 0);
    EXPECT_EQ(tilewise::to_c(Attention{.mask{.window_right = 0}}).mask.window_left, -1);
}

TEST(Structs, ScoresAndOptionsBecomeFlags) {
    EXPECT_EQ(tilewise::to_c(Attention{}).score.flags, 0u);
    const auto zero = tilewise::to_c(Attention{.score{.softmax_scale = 0.0f}}).score;
    EXPECT_EQ(zero.flags, static_cast<unsigned>(TILEWISE_SCORE_HAS_SCALE));
    const Attention pinned{.options{.deterministic = true, .num_threads = 3, .kernel = "some_row"}};
    const auto options = tilewise::to_c(pinned).options;
    EXPECT_EQ(options.flags, static_cast<unsigned>(TILEWISE_DETERMINISTIC));
    EXPECT_EQ(options.num_threads, 3);
    EXPECT_STREQ(options.kernel, "some_row");
    EXPECT_EQ(tilewise::to_c(Attention{}).options.kernel, nullptr);
    EXPECT_EQ(tilewise::to_c(Attention{}).struct_size, sizeof(tilewise_attention));
}

// Each tensor of the C++ structs arrives at its own place: the place is told by the length.
TEST(Structs, TensorsKeepTheirPlaces) {
    std::vector<float> data(64);
    int next = 0;
    const auto t = [&] { return Tensor(data, {++next}); };
    Attention a;
    for (Tensor* x : {&a.q, &a.k, &a.v, &a.o, &a.lse}) *x = t();
    for (Tensor* x : {&a.lengths.cu_seqlens_q, &a.lengths.cu_seqlens_k, &a.lengths.seqused_q, &a.lengths.seqused_k,
                      &a.lengths.leftpad_k, &a.mask.prefix_lens, &a.mask.mask, &a.mask.key_begin, &a.mask.key_end,
                      &a.score.alibi_slopes, &a.score.bias, &a.score.sink})
        *x = t();
    for (Tensor* x : {&a.cache.cache_seqlens, &a.cache.cache_batch_idx, &a.cache.page_table, &a.cache.k_new,
                      &a.cache.v_new, &a.cache.cu_seqlens_k_new, &a.cache.rotary_cos, &a.cache.rotary_sin,
                      &a.cache.rotary_seqlens, &a.cache.error_flag})
        *x = t();
    for (Tensor* x : {&a.gradients.grad_o, &a.gradients.grad_lse, &a.gradients.grad_q, &a.gradients.grad_k,
                      &a.gradients.grad_v, &a.gradients.grad_bias, &a.gradients.grad_sink})
        *x = t();
    const tilewise_attention c = tilewise::to_c(a);
    int expected = 0;
    for (const tilewise_tensor* x : {&c.q,
                                     &c.k,
                                     &c.v,
                                     &c.o,
                                     &c.lse,
                                     &c.lengths.cu_seqlens_q,
                                     &c.lengths.cu_seqlens_k,
                                     &c.lengths.seqused_q,
                                     &c.lengths.seqused_k,
                                     &c.lengths.leftpad_k,
                                     &c.mask.prefix_lens,
                                     &c.mask.mask,
                                     &c.mask.key_begin,
                                     &c.mask.key_end,
                                     &c.score.alibi_slopes,
                                     &c.score.bias,
                                     &c.score.sink,
                                     &c.cache.cache_seqlens,
                                     &c.cache.cache_batch_idx,
                                     &c.cache.page_table,
                                     &c.cache.k_new,
                                     &c.cache.v_new,
                                     &c.cache.cu_seqlens_k_new,
                                     &c.cache.rotary_cos,
                                     &c.cache.rotary_sin,
                                     &c.cache.rotary_seqlens,
                                     &c.cache.error_flag,
                                     &c.gradients.grad_o,
                                     &c.gradients.grad_lse,
                                     &c.gradients.grad_q,
                                     &c.gradients.grad_k,
                                     &c.gradients.grad_v,
                                     &c.gradients.grad_bias,
                                     &c.gradients.grad_sink})
        EXPECT_EQ(x->shape[0], ++expected);
    EXPECT_EQ(expected, next);
}

// Zero scores: row i of a causal mask is the mean of the values 0 .. i.
class Objects : public testing::Test {
protected:
    Objects() { std::iota(v.begin(), v.end(), 0.0f); }
    Attention attention() {
        return {.q = {q, {1, 6, 1, 1}},
                .k = {q, {1, 6, 1, 1}},
                .v = {v, {1, 6, 1, 1}},
                .o = {o, {1, 6, 1, 1}},
                .mask{.causal = true}};
    }
    void expect_means() {
        for (std::size_t i = 0; i < o.size(); ++i) EXPECT_NEAR(o[i], static_cast<float>(i) / 2, 1e-6f);
        o.assign(o.size(), std::numeric_limits<float>::quiet_NaN());
    }

    Device cpu{"cpu"};
    std::vector<float> q = std::vector<float>(6), v = q, o = q;
};

TEST_F(Objects, ForwardWithEveryKindOfScratch) {
    tilewise::forward(cpu, attention());
    expect_means();
    Workspace kept;
    tilewise::forward(cpu, attention(), kept);
    expect_means();
    EXPECT_EQ(kept.size(), tilewise::workspace_bytes(cpu, Op::kForward, attention()));
    const auto memory = kept.reserve(kept.size() + 1);
    tilewise::forward(cpu, attention(), {memory, nullptr});
    expect_means();
    tilewise::forward(cpu, attention(), memory);
    expect_means();
}

TEST_F(Objects, PlansMoveAndLaunch) {
    tilewise::Plan first = tilewise::plan(cpu, Op::kForward, attention());
    const tilewise::Plan plan = std::move(first);
    Workspace kept;
    plan.launch(attention());
    expect_means();
    plan.launch(attention(), kept);
    expect_means();
    EXPECT_NE(plan.text().find(plan.kernel()), std::string::npos);
    EXPECT_EQ(nlohmann::json::parse(plan.json()).at("op"), "forward");
    EXPECT_EQ(plan.workspace_bytes(), kept.size());
}

TEST_F(Objects, ErrorsCarryStatusAndArgument) {
    expect_invalid([] { Device("gpu"); }, "device");
    Attention wrong = attention();
    wrong.k = {q, {1, 3, 1, 2}};
    expect_invalid([&] { tilewise::forward(cpu, wrong); }, "k");
    expect_invalid([&] { (void)tilewise::plan(cpu, Op::kBackward, attention()); }, "lse");
    const Device h200("recorded:h200");
    EXPECT_FALSE(h200.is_host());
    try {
        tilewise::forward(h200, attention(), std::span<std::byte>());
        ADD_FAILURE() << "a description ran";
    } catch (const tilewise::Error& error) {  // for want of a kernel, or of a device
        EXPECT_NE(error.status(), tilewise::Status::kInternal);
        EXPECT_NE(std::string(error.what()).find("device"), std::string::npos) << error.what();
    }
}

TEST_F(Objects, DeviceMemoryStreamsAndEvents) {
    const std::vector<float> sent = {1, 2, 3, 4};
    std::vector<float> back(4);
    tilewise::DeviceMemory memory;
    EXPECT_EQ(memory.size(), 0u);
    {
        const Device opened("cpu");  // what is made on it keeps it open
        memory = tilewise::DeviceMemory(opened, sizeof(float) * sent.size());
    }
    const tilewise::Stream stream(cpu);
    tilewise::Event begin(cpu), end(cpu);
    begin.record(stream.c());
    tilewise::copy(cpu, memory.data(), sent.data(), memory.size(), stream.c());
    tilewise::copy(cpu, back.data(), memory.data(), memory.size(), stream.c());
    end.record(stream.c());
    stream.synchronize();
    EXPECT_EQ(back, sent);
    EXPECT_GE(tilewise::seconds_between(begin, end), 0);
    tilewise::fill(cpu, memory.data(), 0, memory.size());
    tilewise::copy(cpu, back.data(), memory.data(), memory.size());
    tilewise::synchronize(cpu);
    EXPECT_EQ(back, std::vector<float>(4));
    expect_invalid([&] { tilewise::copy(cpu, nullptr, back.data(), 4); }, "to");
    expect_invalid([&] { tilewise::DeviceMemory(Device("recorded:h200"), 4); }, "device");
}

TEST_F(Objects, AWorkspaceCanBeTheDevices) {
    Workspace workspace(cpu);
    tilewise::forward(cpu, attention(), {workspace, nullptr});
    expect_means();
    Workspace other(Device("recorded:h200"));
    if (tilewise::workspace_bytes(cpu, Op::kForward, attention()) > 0)
        expect_invalid([&] { tilewise::forward(cpu, attention(), other); }, "workspace");
}

TEST_F(Objects, DecodeAppendsAndAttends) {
    std::vector<float> k_cache(8, NAN), v_cache(8, NAN), one_k(1, 0.0f), one_v(1, 9.0f), one_o(1);
    std::vector<std::int32_t> used = {0};
    Attention append{.k = {k_cache, {1, 8, 1, 1}},
                     .v = {v_cache, {1, 8, 1, 1}},
                     .cache{.cache_seqlens = used, .k_new = {q, {1, 6, 1, 1}}, .v_new = {v, {1, 6, 1, 1}}}};
    tilewise::append(cpu, append);
    EXPECT_EQ(v_cache[5], 5.0f);
    EXPECT_TRUE(std::isnan(v_cache[6]));
    used[0] = 6;
    tilewise::decode(cpu,
                     {.q = {q, {1, 1, 1, 1}},
                      .k = append.k,
                      .v = append.v,
                      .o = {one_o, {1, 1, 1, 1}},
                      .cache{.cache_seqlens = used, .k_new = {one_k, {1, 1, 1, 1}}, .v_new = {one_v, {1, 1, 1, 1}}}});
    EXPECT_NEAR(one_o[0], 24.0f / 7, 1e-6f);
}

TEST_F(Objects, BackwardAndCombine) {
    std::vector<float> lse(6), grad_o(6, 1.0f), grad_q(6, NAN), grad_k(6, NAN), grad_v(6, NAN);
    Attention a = attention();
    a.lse = {lse, {1, 1, 6}};
    tilewise::forward(cpu, a);
    a.gradients = {.grad_o = {grad_o, {1, 6, 1, 1}},
                   .grad_q = {grad_q, {1, 6, 1, 1}},
                   .grad_k = {grad_k, {1, 6, 1, 1}},
                   .grad_v = {grad_v, {1, 6, 1, 1}}};
    tilewise::backward(cpu, a);
    EXPECT_NEAR(grad_v[5], 1.0f / 6, 1e-6f);
    EXPECT_NEAR(std::accumulate(grad_v.begin(), grad_v.end(), 0.0f), 6.0f, 1e-5f) << "each row's weights sum to 1";

    std::vector<float> parts_o = {1.0f, 3.0f}, parts_lse = {0.0f, 0.0f}, merged(1);
    const tilewise::Combination parts{
        .partial_o = {parts_o, {2, 1, 1, 1, 1}}, .partial_lse = {parts_lse, {2, 1, 1, 1}}, .o = {merged, {1, 1, 1, 1}}};
    tilewise::combine(cpu, parts);
    EXPECT_NEAR(merged[0], 2.0f, 1e-6f);
    tilewise::plan(cpu, parts).launch(parts);
    EXPECT_NEAR(merged[0], 2.0f, 1e-6f);
}

TEST(Lists, TellWhatThereIs) {
    EXPECT_EQ(tilewise::devices().front(), "cpu");
    EXPECT_GT(tilewise::devices(true).size(), tilewise::devices().size());
    ASSERT_FALSE(tilewise::kernels().empty());
    EXPECT_TRUE(nlohmann::json::parse(tilewise::kernels().front()).contains("name"));
    EXPECT_FALSE(tilewise::version().empty());
    EXPECT_EQ(nlohmann::json::parse(Device("cpu").json()).at("kind"), "cpu");
}

}  // namespace
