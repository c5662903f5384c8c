// The oracle's gradients against central differences of its forward pass, feature by feature, in f64; and the rows whose gradient is
// zero by contract.
#include <cmath>

#include "kernel_call.hpp"

namespace tilewise::test {
namespace {

constexpr DType kF64 = DType::kF64;

struct Feature {
    const char* name;
    void (*configure)(KernelCall&);
    bool ragged = false;
};

void PrintTo(const Feature& feature, std::ostream* out) { *out << feature.name; }

// Dense: batch 2, 3 queries, 5 keys. Ragged: sequences of (3, 5), (0, 2) and (4, 2) rows. 4 query heads on 2 key heads, d 3, dv 2.
KernelCall forward_call(const Feature& feature) {
    KernelCall call(Op::kForward);
    const auto head_tensor = [&](Arg arg, int64_t dense_rows, int64_t ragged_rows, int64_t heads, int64_t dim) {
        const std::vector<int64_t> shape = feature.ragged ? std::vector<int64_t>{ragged_rows, heads, dim}
                                                          : std::vector<int64_t>{2, dense_rows, heads, dim};
        const int64_t rows = feature.ragged ? ragged_rows : 2 * dense_rows;
        call.set(arg, kF64, shape, random_values(static_cast<size_t>(rows * heads * dim), static_cast<uint64_t>(arg)));
    };
    head_tensor(Arg::kQ, 3, 7, 4, 3);
    head_tensor(Arg::kK, 5, 9, 2, 3);
    head_tensor(Arg::kV, 5, 9, 2, 2);
    head_tensor(Arg::kO, 3, 7, 4, 2);
    if (feature.ragged) {
        call.set_ints(Arg::kCuSeqlensQ, {0, 3, 3, 7}).set_ints(Arg::kCuSeqlensK, {0, 5, 7, 9});
        call.set(Arg::kLse, kF64, {4, 7});
    } else {
        call.set(Arg::kLse, kF64, {2, 4, 3});
    }
    feature.configure(call);
    return call;
}

// Weights of the loss: sum of weight * output, over o and (with grad_lse) over lse where it is finite.
struct Loss {
    Values o, lse;
};

double loss_of(KernelCall& call, const Loss& loss) {
    for (const Arg arg : {Arg::kO, Arg::kLse})
        for (int64_t i = 0; i < call.count(arg); ++i) call.put(arg, i, 0.0);  // rows of no sequence stay so
    call.run("cpu_reference_forward");
    double sum = 0;
    for (size_t i = 0; i < loss.o.size(); ++i) sum += loss.o[i] * call.at(Arg::kO, static_cast<int64_t>(i));
    for (size_t i = 0; i < loss.lse.size(); ++i) {
        const double lse = call.at(Arg::kLse, static_cast<int64_t>(i));
        if (lse != -kInf) sum += loss.lse[i] * lse;
    }
    return sum;
}

void expect_gradient(KernelCall& forward, const Loss& loss, Arg input, const Values& gradient, double step) {
    ASSERT_EQ(static_cast<int64_t>(gradient.size()), forward.count(input));
    for (int64_t i = 0; i < forward.count(input); ++i) {
        const double value = forward.at(input, i);
        forward.put(input, i, value + step);
        const double above = loss_of(forward, loss);
        forward.put(input, i, value - step);
        const double below = loss_of(forward, loss);
        forward.put(input, i, value);
        const double expected = (above - below) / (2 * step);
        EXPECT_NEAR(gradient[static_cast<size_t>(i)], expected, 1e-7 + step * step + 1e-6 * std::abs(expected))
            << name_of(input) << " at " << i;
    }
}

KernelCall backward_call(const KernelCall& forward, const Loss& loss) {
    KernelCall call = forward;
    call.problem.op = Op::kBackward;
    const auto like = [&](Arg arg, Arg of, const Values& values) {
        const TensorDesc& tensor = forward.problem[of];
        call.set(arg, tensor.dtype, {tensor.shape.begin(), tensor.shape.begin() + tensor.rank}, values);
    };
    like(Arg::kGradO, Arg::kO, loss.o);
    if (!loss.lse.empty()) like(Arg::kGradLse, Arg::kLse, loss.lse);
    like(Arg::kGradQ, Arg::kQ, {});
    like(Arg::kGradK, Arg::kK, {});
    like(Arg::kGradV, Arg::kV, {});
    if (forward.problem.has(Arg::kBias)) like(Arg::kGradBias, Arg::kBias, {});
    if (forward.problem.has(Arg::kSink)) like(Arg::kGradSink, Arg::kSink, {});
    return call;
}

class ReferenceGradient : public testing::TestWithParam<Feature> {};

TEST_P(ReferenceGradient, EqualsCentralDifferences) {
    KernelCall forward = forward_call(GetParam());
    for (const bool with_lse : {false, true}) {
        Loss loss{random_values(static_cast<size_t>(forward.count(Arg::kO)), 91), {}};
        if (with_lse) loss.lse = random_values(static_cast<size_t>(forward.count(Arg::kLse)), 92);
        KernelCall backward = backward_call(forward, loss);
        backward.run("cpu_reference_backward");
        expect_gradient(forward, loss, Arg::kQ, backward.values(Arg::kGradQ), 1e-5);
        expect_gradient(forward, loss, Arg::kK, backward.values(Arg::kGradK), 1e-5);
        expect_gradient(forward, loss, Arg::kV, backward.values(Arg::kGradV), 1e-5);
        if (forward.problem.has(Arg::kBias))
            expect_gradient(forward, loss, Arg::kBias, backward.values(Arg::kGradBias), 1e-5);
        // The sink is fp32, so its step is a power of two; the difference then has an error of step^2.
        if (forward.problem.has(Arg::kSink))
            expect_gradient(forward, loss, Arg::kSink, backward.values(Arg::kGradSink), 0x1p-8);
    }
}

void set_bias(KernelCall& call, const std::vector<int64_t>& shape) {
    int64_t count = 1;
    for (const int64_t n : shape) count *= n;
    call.set(Arg::kBias, kF64, shape, random_values(static_cast<size_t>(count), 33));
}

const Feature kFeatures[] = {
    {"plain", [](KernelCall&) {}},
    {"causal", [](KernelCall& c) { c.problem.mask.window_right = 0; }},
    {"causal_top_left",
     [](KernelCall& c) {
         c.problem.mask.window_right = 0;
         c.problem.mask.top_left = true;
     }},
    {"window",
     [](KernelCall& c) {
         c.problem.mask.window_left = 1;
         c.problem.mask.window_right = 1;
     }},
    {"chunk", [](KernelCall& c) { c.problem.mask.chunk = 2; }},
    {"prefix",
     [](KernelCall& c) {
         c.problem.mask.window_right = 0;
         c.problem.mask.prefix = 4;
     }},
    {"mask",
     [](KernelCall& c) {
         c.set(Arg::kMask, DType::kBool, {1, 1, 3, 5}, {1, 0, 1, 0, 1, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1});
     }},
    {"softcap", [](KernelCall& c) { c.problem.score.softcap = 0.75f; }},
    {"alibi",
     [](KernelCall& c) {
         c.set(Arg::kAlibiSlopes, DType::kF32, {2, 4}, {1, .5, .25, 2, 0, .1, .2, .3});
     }},
    {"bias_full",
     [](KernelCall& c) {
         set_bias(c, {2, 4, 3, 5});
     }},
    {"bias_of_heads",
     [](KernelCall& c) {
         set_bias(c, {1, 4, 3, 5});
     }},
    {"bias_of_keys",
     [](KernelCall& c) {
         set_bias(c, {2, 1, 1, 5});
     }},
    {"bias_of_rows",
     [](KernelCall& c) {
         set_bias(c, {1, 1, 3, 1});
     }},
    {"bias_behind_softcap",
     [](KernelCall& c) {
         c.problem.score.softcap = 1.5f;
         set_bias(c, {1, 4, 3, 5});
     }},
    {"sink",
     [](KernelCall& c) {
         c.set(Arg::kSink, DType::kF32, {4}, {0.5, -1, 2, 0});
     }},
    {"dropout",
     [](KernelCall& c) {
         c.problem.score.dropout_p = 0.3f;
         c.problem.score.dropout_seed = 5;
     }},
    {"dropout_softcap_sink_causal",
     [](KernelCall& c) {
         c.problem.score.dropout_p = 0.3f;
         c.problem.score.softcap = 1.0f;
         c.problem.mask.window_right = 0;
         c.set(Arg::kSink, DType::kF32, {4}, {0.5, -1, 2, 0});
     }},
    {"seqused",
     [](KernelCall& c) {
         c.set_ints(Arg::kSequsedQ, {2, 3}).set_ints(Arg::kSequsedK, {4, 0});
     }},
    {"left_padding",
     [](KernelCall& c) {
         c.problem.mask.window_right = 0;
         c.set_ints(Arg::kLeftpadK, {2, 4});
     }},
    {"ragged", [](KernelCall&) {}, true},
    {"ragged_causal_alibi_bias",
     [](KernelCall& c) {
         c.problem.mask.window_right = 0;
         c.set(Arg::kAlibiSlopes, DType::kF32, {4}, {1, .5, .25, 2});
         set_bias(c, {1, 4, 4, 5});
     },
     true},
};

INSTANTIATE_TEST_SUITE_P(Features, ReferenceGradient, testing::ValuesIn(kFeatures),
                         [](const auto& feature) { return std::string(feature.param.name); });

TEST(ReferenceBackward, OneKeyGivesTheKeyNoGradient) {  // R022: softmax over one key is constant
    KernelCall forward(Op::kForward);
    forward.set(Arg::kQ, kF64, {1, 1, 1, 16}, random_values(16, 1))
        .set(Arg::kK, kF64, {1, 1, 1, 16}, random_values(16, 2));
    forward.set(Arg::kV, kF64, {1, 1, 1, 16}, random_values(16, 3)).set(Arg::kO, kF64, {1, 1, 1, 16});
    forward.set(Arg::kLse, kF64, {1, 1, 1});
    KernelCall backward = backward_call(forward, {Values(16, 1.0), {}});
    backward.run("cpu_reference_backward");
    expect_near(backward.values(Arg::kGradQ), Values(16, 0.0), 0);
    expect_near(backward.values(Arg::kGradK), Values(16, 0.0), 0);
    expect_near(backward.values(Arg::kGradV), Values(16, 1.0), 0);
}

TEST(ReferenceBackward, RowsOfNoSequenceGetZeros) {
    KernelCall forward(Op::kForward);
    forward.set(Arg::kQ, kF64, {4, 1, 1}, {1, 2, kNaN, kNaN})
        .set(Arg::kK, kF64, {5, 1, 1}, {kNaN, 1, kNaN, kNaN, kNaN});
    forward.set(Arg::kV, kF64, {5, 1, 1}, {kNaN, 3, kNaN, kNaN, kNaN}).set(Arg::kO, kF64, {4, 1, 1});
    forward.set(Arg::kLse, kF64, {1, 4}).set_ints(Arg::kCuSeqlensQ, {0, 3}).set_ints(Arg::kCuSeqlensK, {0, 4});
    forward.set_ints(Arg::kSequsedQ, {2}).set_ints(Arg::kSequsedK, {2}).set_ints(Arg::kLeftpadK, {1});
    KernelCall backward = backward_call(forward, {{1, 10, kNaN, kNaN}, {}});
    backward.run("cpu_reference_backward");
    expect_near(backward.values(Arg::kGradQ), {0, 0, 0, 0}, 0);
    expect_near(backward.values(Arg::kGradK), {0, 0, 0, 0, 0}, 0);
    expect_near(backward.values(Arg::kGradV), {0, 11, 0, 0, 0}, 0);
}

TEST(ReferenceBackward, GroupsAccumulateInDoubleAndRoundOnce) {
    // 300 query heads add 1 each; a bf16 sum would stop at 256, where its step becomes 2.
    const int64_t heads = 300;
    KernelCall forward(Op::kForward);
    for (const Arg arg : {Arg::kQ, Arg::kO}) forward.set(arg, DType::kBF16, {1, 1, heads, 1}, Values(300, 0.0));
    for (const Arg arg : {Arg::kK, Arg::kV}) forward.set(arg, DType::kBF16, {1, 1, 1, 1}, {1});
    forward.set(Arg::kLse, DType::kF32, {1, heads, 1});
    KernelCall backward = backward_call(forward, {Values(300, 1.0), {}});
    backward.run("cpu_reference_backward");
    EXPECT_EQ(backward.at(Arg::kGradV, 0), 300.0);
}

}  // namespace
}  // namespace tilewise::test
