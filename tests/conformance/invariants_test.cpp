// What must not change a result: the number of splits and threads, pages, packing into a ragged batch, the rest of the batch, the repetition of a call.
// Bitwise where the contract says so, within rounding otherwise. All kernels of the library that run on this machine.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "conformance/compare.hpp"
#include "conformance/kernels.hpp"

namespace tilewise::conformance {
namespace {

struct Subject {
    Kernel kernel;
    DType dtype;
};
void PrintTo(const Subject& subject, std::ostream* out) { *out << subject.kernel.name; }

std::vector<Subject> subjects(const std::string& op) {
    std::vector<Subject> list;
    for (const Kernel& kernel : list_kernels())
        if (kernel.device == "cpu" && kernel.op == op) list.push_back({kernel, kernel.dtypes.front()});
    return list;
}

class Invariants : public testing::TestWithParam<Subject> {
protected:
    // False where the kernel does not run here, or does not take the option.
    bool runs(const Instance& instance, Outcome* outcome) {
        *outcome = run_kernel(device_, instance, GetParam().kernel.name);
        EXPECT_TRUE(outcome->ok() || outcome->status == Status::kUnsupported) << outcome->message;
        return outcome->ok();
    }
    Instance make(const ProblemSpec& spec) const { return make_instance(spec, GetParam().dtype); }

    Device device_{"cpu"};
};
class ForwardInvariants : public Invariants {};
class BackwardInvariants : public Invariants {};

// Bits, not numbers: NaN equals itself and 0 differs from -0.
bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}
void expect_same_bits(const Outcome& a, const Outcome& b, const std::string& what) {
    for (const auto& [slot, output] : a.outputs)
        EXPECT_TRUE(same_bits(output.values, b.outputs.at(slot).values)) << name_of(slot) << ", " << what;
}

ProblemSpec forward_spec() {
    ProblemSpec spec;
    spec.sizes = {3, 19, 400, 4, 2, 40, 24};  // several tiles of keys
    spec.mask.causal = true;
    spec.score.softcap = 8;
    spec.score.sink = true;
    spec.run.num_threads = 3;
    return spec;
}

ProblemSpec backward_spec() {
    ProblemSpec spec = forward_spec();
    spec.op = Op::kBackward;
    spec.sizes = {2, 17, 600, 2, 1, 24, 16};
    spec.score.bias = {true, kBatchAxis | kHeadAxis, false, DType::kF32};
    spec.score.dropout_p = 0.1f;
    return spec;
}

Instance backward_instance(const ProblemSpec& spec, DType dtype) {
    Instance instance = make_instance(spec, dtype);
    evaluate(instance);  // gives it o and lse
    return instance;
}

// Sequence `s` of an instance as a dense problem of its own, with the same numbers: no pages, no packing, no neighbours.
Instance alone(const Instance& instance, size_t s) {
    const SequenceData& sequence = instance.sequences[s];
    ProblemSpec spec = instance.spec;
    spec.sizes.batch = 1;
    spec.sizes.seqlen_q = sequence.num_rows;
    spec.sizes.seqlen_k = sequence.num_keys();
    spec.lengths = {};
    spec.cache = {};
    Instance single = make_instance(spec, instance.dtype);
    const auto copy_row = [&](Slot slot, int64_t from, int64_t to) {
        const TensorData& source = instance.at(slot);
        const int64_t width = source.shape[source.shape.size() - 2] * source.shape.back();
        std::copy_n(source.values.begin() + from * width, width, single.tensors.at(slot).values.begin() + to * width);
    };
    for (int64_t row = 0; row < sequence.num_rows; ++row) copy_row(Slot::kQ, sequence.first_row + row, row);
    for (int64_t key = 0; key < sequence.num_keys(); ++key)
        for (const Slot slot : {Slot::kK, Slot::kV}) copy_row(slot, sequence.key_rows[static_cast<size_t>(key)], key);
    if (instance.has(Slot::kSink)) single.tensors.at(Slot::kSink).values = instance.values(Slot::kSink);
    return single;
}

// Rows of one sequence out of o.
std::vector<double> rows_of(const Instance& instance, const Outcome& outcome, size_t s) {
    const SequenceData& sequence = instance.sequences[s];
    const int64_t width = instance.spec.sizes.heads_q * instance.spec.sizes.head_dim_v;
    const auto first = outcome.outputs.at(Slot::kO).values.begin() + sequence.first_row * width;
    return {first, first + sequence.num_rows * width};
}

void expect_near(const std::vector<double>& a, const std::vector<double>& b, double tolerance,
                 const std::string& what) {
    ASSERT_EQ(a.size(), b.size());
    double worst = 0;
    for (size_t i = 0; i < a.size(); ++i)
        worst = std::max(worst, std::isnan(a[i]) == std::isnan(b[i]) ? std::fabs(a[i] - b[i]) : 1e30);
    EXPECT_LE(worst, tolerance) << what;
}

// Two roundings of o, whose elements are below 4.
double tolerance_of(DType dtype) {
    switch (dtype) {
    case DType::kF32: return 4e-6;
    case DType::kF16: return 4e-3;
    default: return 3.2e-2;
    }
}

TEST_P(ForwardInvariants, SplitsDoNotMatter) {
    ProblemSpec spec = forward_spec();
    Outcome whole, split;
    if (!runs(make(spec), &whole)) return;
    for (const int splits : {2, 3, 5, 16}) {
        spec.run.num_splits = splits;
        if (!runs(make(spec), &split)) continue;
        for (const auto& [slot, output] : whole.outputs)
            expect_near(split.outputs.at(slot).values, output.values, tolerance_of(GetParam().dtype), name_of(slot));
    }
}

TEST_P(ForwardInvariants, ThreadsDoNotMatter) {
    ProblemSpec spec = forward_spec();
    spec.run.num_threads = 1;
    Outcome one, many;
    if (!runs(make(spec), &one)) return;
    for (const int threads : {2, 3, 8}) {
        spec.run.num_threads = threads;
        ASSERT_TRUE(runs(make(spec), &many));
        expect_same_bits(one, many, std::to_string(threads) + " threads");
    }
}

TEST_P(ForwardInvariants, RepeatsAreBitwiseEqual) {
    for (const int splits : {0, 3}) {
        ProblemSpec spec = forward_spec();
        spec.run.num_splits = splits;
        const Instance instance = make(spec);
        Outcome first, again;
        if (!runs(instance, &first)) continue;
        for (int repeat = 1; repeat < 50; ++repeat) {
            ASSERT_TRUE(runs(instance, &again));
            expect_same_bits(first, again, "repeat " + std::to_string(repeat));
            if (HasFailure()) return;
        }
    }
}

TEST_P(ForwardInvariants, PagedAndPaddedEqualDense) {
    for (const int page_size : {1, 7, 64, 200}) {
        ProblemSpec spec = forward_spec();
        spec.cache.page_size = page_size;
        spec.cache.batch_idx = true;
        spec.lengths.used_k = {400, 3, 277};
        spec.lengths.leftpad = {0, 1, 40};
        const Instance paged = make(spec);
        Outcome outcome, dense;
        if (!runs(paged, &outcome)) return;
        for (size_t s = 0; s < paged.sequences.size(); ++s) {
            ASSERT_TRUE(runs(alone(paged, s), &dense));
            expect_near(rows_of(paged, outcome, s), dense.outputs.at(Slot::kO).values, tolerance_of(GetParam().dtype),
                        "page size " + std::to_string(page_size));
        }
    }
}

TEST_P(ForwardInvariants, RaggedEqualsEachSequence) {
    ProblemSpec spec = forward_spec();
    spec.lengths.rows_q = {19, 0, 5};
    spec.lengths.rows_k = {20, 6, 350};
    const Instance ragged = make(spec);
    Outcome outcome, single;
    if (!runs(ragged, &outcome)) return;
    for (size_t s = 0; s < ragged.sequences.size(); ++s) {
        ASSERT_TRUE(runs(alone(ragged, s), &single));
        expect_near(rows_of(ragged, outcome, s), single.outputs.at(Slot::kO).values, tolerance_of(GetParam().dtype),
                    "sequence " + std::to_string(s));
    }
}

// R013, R117: a row's bits do not depend on its batch, on pages, on splits or threads.
TEST_P(ForwardInvariants, BatchInvariantMeansBitwise) {
    ProblemSpec spec = forward_spec();
    spec.run.batch_invariant = true;
    spec.lengths.rows_q = {19, 1, 5};
    spec.lengths.rows_k = {400, 340, 77};
    const Instance together = make(spec);
    Outcome outcome, other;
    if (!runs(together, &outcome)) return;
    for (size_t s = 0; s < together.sequences.size(); ++s) {
        ASSERT_TRUE(runs(alone(together, s), &other));
        EXPECT_TRUE(same_bits(rows_of(together, outcome, s), other.outputs.at(Slot::kO).values))
            << "sequence " << s << " alone";
    }
    for (const int splits : {1, 2, 5}) {
        spec.run.num_splits = splits;
        spec.run.num_threads = splits;
        if (runs(make(spec), &other)) expect_same_bits(outcome, other, std::to_string(splits) + " splits");
    }
}

// The last row of a causal problem sees what it would see as the only query.
TEST_P(ForwardInvariants, BatchInvariantAcrossRows) {
    ProblemSpec spec = forward_spec();
    spec.run.batch_invariant = true;
    spec.sizes.batch = 1;
    const Instance many = make(spec);
    Instance last = many;
    last.spec.sizes.seqlen_q = 1;
    last = make(last.spec);
    const int64_t width_q = spec.sizes.heads_q * spec.sizes.head_dim,
                  width_o = spec.sizes.heads_q * spec.sizes.head_dim_v;
    for (const Slot slot : {Slot::kK, Slot::kV, Slot::kSink}) last.tensors.at(slot).values = many.values(slot);
    std::copy_n(many.values(Slot::kQ).end() - width_q, width_q, last.tensors.at(Slot::kQ).values.begin());
    Outcome outcome, single;
    if (!runs(many, &outcome)) return;
    ASSERT_TRUE(runs(last, &single));
    const auto& o = outcome.outputs.at(Slot::kO).values;
    EXPECT_TRUE(same_bits({o.end() - width_o, o.end()}, single.outputs.at(Slot::kO).values));
}

TEST_P(BackwardInvariants, RepeatsAreBitwiseEqual) {
    ProblemSpec spec = backward_spec();
    spec.run.deterministic = true;
    const Instance instance = backward_instance(spec, GetParam().dtype);
    Outcome first, again;
    if (!runs(instance, &first)) return;
    for (int repeat = 1; repeat < 50; ++repeat) {
        ASSERT_TRUE(runs(instance, &again));
        expect_same_bits(first, again, "repeat " + std::to_string(repeat));
        if (HasFailure()) return;
    }
}

// grad_q alone may depend on the order of threads, and only without deterministic.
TEST_P(BackwardInvariants, OthersAreBitwiseEqualAnyway) {
    const Instance instance = backward_instance(backward_spec(), GetParam().dtype);
    Outcome first, again;
    if (!runs(instance, &first)) return;
    for (int repeat = 1; repeat < 50; ++repeat) {
        ASSERT_TRUE(runs(instance, &again));
        for (const Slot slot : {Slot::kGradK, Slot::kGradV, Slot::kGradBias, Slot::kGradSink})
            ASSERT_TRUE(same_bits(first.outputs.at(slot).values, again.outputs.at(slot).values)) << name_of(slot);
        expect_near(first.outputs.at(Slot::kGradQ).values, again.outputs.at(Slot::kGradQ).values,
                    tolerance_of(GetParam().dtype), "grad_q");
    }
}

TEST_P(BackwardInvariants, DeterministicDoesNotDependOnThreads) {
    ProblemSpec spec = backward_spec();
    spec.run.deterministic = true;
    spec.run.num_threads = 1;
    Outcome one, many;
    if (!runs(backward_instance(spec, GetParam().dtype), &one)) return;
    for (const int threads : {2, 3, 8}) {
        spec.run.num_threads = threads;
        ASSERT_TRUE(runs(backward_instance(spec, GetParam().dtype), &many));
        expect_same_bits(one, many, std::to_string(threads) + " threads");
    }
}

const auto kKernelName = [](const auto& subject) { return subject.param.kernel.name; };
INSTANTIATE_TEST_SUITE_P(Kernels, ForwardInvariants, testing::ValuesIn(subjects("forward")), kKernelName);
INSTANTIATE_TEST_SUITE_P(Kernels, BackwardInvariants, testing::ValuesIn(subjects("backward")), kKernelName);

}  // namespace
}  // namespace tilewise::conformance
