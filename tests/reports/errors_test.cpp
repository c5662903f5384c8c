// What is refused, and in which words: nothing that has no effect is accepted in silence, nothing falls back in silence.
#include <nlohmann/json.hpp>

#include "call.hpp"

namespace reports {
namespace {

using Json = nlohmann::json;

// A softcap and a window are honoured by every operation that attends, and refused by the one that does not.
TEST_F(Reports, R085_arguments_are_honoured_or_refused) {
    const Ints used = {30}, begin = {20};
    Call call(DType::kF32, {.sq = 3, .sk = 30, .h = 2, .hk = 2, .d = 16});
    call.q.randomize(1, 5.0);
    call.score.softcap = 2.0f;
    call.mask.window_left = 9;
    const Rules rules{.softcap = 2.0, .visible = band(3, 30, {.left = 9})};
    expect_backward(call, rules);
    call.cache.cache_seqlens = used;
    expect_decode(call, rules);

    const Array k_new = random(DType::kF32, {1, 4, 2, 16}, 4), v_new = random(DType::kF32, {1, 4, 2, 16}, 5);
    const auto append = [&](const tilewise::Mask& mask, const tilewise::Score& score) {
        tilewise::append(device(), {.k = call.k.view(),
                                    .v = call.v.view(),
                                    .mask = mask,
                                    .score = score,
                                    .cache = {.cache_seqlens = begin, .k_new = k_new.view(), .v_new = v_new.view()}});
    };
    expect_invalid([&] { append({}, {.softcap = 2.0f}); }, "softcap", {"no effect on append"});
    expect_invalid([&] { append({.window_left = 9}, {}); }, "window_left", {"no effect on append"});
    append({}, {});
    Call seeded(DType::kF32, {.sq = 2, .sk = 2});
    seeded.score.dropout_seed = 7;
    expect_invalid([&] { seeded.forward(); }, "dropout_seed", {"7", "no effect without dropout_p"});
}

// Place of an instruction set in the order in which each contains the one before.
std::ptrdiff_t level_of(const std::string& isa) {
    static const std::vector<std::string> levels = {"scalar", "avx2", "avx512", "avx512_bf16"};
    const auto found = std::find(levels.begin(), levels.end(), isa);
    EXPECT_NE(found, levels.end()) << isa;
    return found - levels.begin();
}

// On every device that can be described, a plan takes a kernel made for that device, or says in words that there is none.
TEST_F(Reports, R138_a_plan_takes_only_kernels_that_exist_for_the_device) {
    const Call call(DType::kBF16, {.sq = 64, .sk = 64, .h = 8, .hk = 8, .d = 128});
    for (const std::string& name : tilewise::devices(true)) {
        SCOPED_TRACE(name);
        const tilewise::Device device(name);
        const Json described = Json::parse(device.json());
        try {
            const tilewise::Plan plan(device, Op::kForward, call.attention(Op::kForward));
            for (const std::string& text : tilewise::kernels()) {
                const Json kernel = Json::parse(text);
                if (kernel["name"] != plan.kernel()) continue;
                EXPECT_EQ(kernel["device"], described["kind"]);
                if (described["kind"] == "cpu") {
                    EXPECT_LE(level_of(kernel["isa"]), level_of(described["isa"]));
                }
            }
        } catch (const tilewise::Error& error) {
            EXPECT_EQ(error.status(), tilewise::Status::kUnsupported);
            EXPECT_NE(std::string(error.what()).find("compute capability"), std::string::npos) << error.what();
        }
    }
}

TEST_F(Reports, R140_an_older_gpu_is_told_so_before_anything_runs) {
    const Call call(DType::kF16, {.sq = 64, .sk = 64, .h = 8, .hk = 8, .d = 128});
    const tilewise::Device t4("recorded:t4");
    expect_refusal([&] { tilewise::Plan(t4, Op::kForward, call.attention(Op::kForward)); },
                   tilewise::Status::kUnsupported, "device", {"T4", "compute capability 7.5", "8.0 or newer"});
}

TEST_F(Reports, R145_fp32_is_served_and_a_mixture_of_types_is_named) {
    expect_backward(Call(DType::kF32, {.b = 2, .sq = 33, .sk = 65, .h = 4, .hk = 2, .d = 64}));
    Call mixed(DType::kF32, {.sq = 5, .sk = 5, .d = 64});
    mixed.v = random(DType::kBF16, mixed.v.shape(), 3);
    expect_invalid([&] { mixed.forward(); }, "v", {"bf16", "f32", "q, k and v have one dtype"});
    mixed.v = random(DType::kF32, mixed.v.shape(), 3);
    mixed.q = random(DType::kBF16, mixed.q.shape(), 3);
    expect_invalid([&] { mixed.forward(); }, "q", {"bf16", "f32"});
}

TEST_F(Reports, R147_a_refusal_says_why_for_every_kernel) {
    Call flat(DType::kF32, {.sq = 4, .sk = 4, .h = 2, .hk = 2, .d = 8});
    tilewise::Attention call = flat.attention(Op::kForward);
    call.q = flat.q.view(1);  // three axes without cu_seqlens_q
    expect_invalid([&] { tilewise::forward(device(), call); }, "q",
                   {"3 axes", "(batch, seqlen_q, num_heads_q, head_dim)"});

    const Call doubles(DType::kF64, {.sq = 4, .sk = 4, .d = 8});
    const std::string plan = tilewise::Plan(device(), Op::kForward, doubles.attention(Op::kForward)).text();
    for (const std::string& kernel : kernels_of(Op::kForward, DType::kF32))
        EXPECT_NE(plan.find(kernel), std::string::npos) << "the plan is silent about " << kernel << "\n" << plan;
    expect_refusal([&] { doubles.forward("cpu_tiled_forward_f32_scalar"); }, tilewise::Status::kUnsupported, "kernel",
                   {"cpu_tiled_forward_f32_scalar", "f64 elements; it serves f32"});
}

// Keys and values of different types, or of a type that is no attention type: refused, not moved to a slower path.
TEST_F(Reports, R154_cache_types_that_are_not_served_are_refused) {
    const Ints used = {8};
    Call call(DType::kBF16, {.sk = 8, .h = 4, .hk = 4, .d = 64});
    call.cache.cache_seqlens = used;
    call.v = random(DType::kF16, call.v.shape(), 3);
    expect_invalid([&] { call.decode(); }, "v", {"f16", "bf16"});
    std::vector<std::int32_t> quantised(8 * 4 * 64);
    tilewise::Attention attention = call.attention(Op::kDecode);
    attention.k = attention.v = {quantised, {1, 8, 4, 64}};
    expect_invalid([&] { tilewise::decode(device(), attention); }, "k", {"i32"});
}

}  // namespace
}  // namespace reports
