// Runs every head of an instance through exact, naive and rounding (dense.hpp) and puts the pieces where the outputs have them.
#include "conformance/evaluate.hpp"

#include <cmath>

#include "conformance/dense.hpp"
#include "conformance/element.hpp"
#include "conformance/gather.hpp"

namespace tilewise::conformance {

namespace {

// The three answers of one head, side by side.
struct HeadAnswers {
    DenseResult exact, naive, rounding;
};

enum class Fill { kUntouched, kZeros };

Expected& add(Expectation& expectation, Slot slot, const TensorData& tensor, Fill fill) {
    Expected& expected = expectation[slot];
    const auto count = static_cast<size_t>(tensor.num_elements());
    for (auto* values : {&expected.exact, &expected.naive, &expected.rounding}) values->assign(count, 0);
    expected.state.assign(count, fill == Fill::kZeros ? State::kWritten : State::kUntouched);
    return expected;
}

// Adds the element `from` of each answer's `part` to the element `to` of the output.
void add_element(Expected& expected, int64_t to, const HeadAnswers& answers, std::vector<double> DenseResult::*part,
                 int64_t from) {
    const auto source = static_cast<size_t>(from), target = static_cast<size_t>(to);
    expected.exact[target] += (answers.exact.*part)[source];
    expected.naive[target] += (answers.naive.*part)[source];
    expected.rounding[target] += (answers.rounding.*part)[source];
    if (expected.state[target] == State::kUntouched) expected.state[target] = State::kWritten;
}

// One head of a (rows, heads, dim) output.
struct HeadOutput {
    Expected& expected;
    const TensorData& tensor;
    int64_t head;
};

// Rows 0 .. count - 1 of an answer's part (count, dim), added to the rows row_of(i) of the output.
template <class RowOf>
void add_rows(const HeadOutput& output, const HeadAnswers& answers, std::vector<double> DenseResult::*part,
              int64_t count, RowOf&& row_of) {
    const int64_t dim = output.tensor.shape.back(), heads = output.tensor.shape[output.tensor.shape.size() - 2];
    for (int64_t i = 0; i < count; ++i)
        for (int64_t j = 0; j < dim; ++j)
            add_element(output.expected, (row_of(i) * heads + output.head) * dim + j, answers, part, i * dim + j);
}

Roundings roundings_of(const Instance& instance) {
    const double element = unit_roundoff(instance.dtype);
    const double compute = unit_roundoff(instance.dtype == DType::kF64 ? DType::kF64 : DType::kF32);
    // The roundings of a sum of n terms add up like a random walk; a score is scaled (into base 2, perhaps) afterwards.
    const auto sum = [](int64_t n) { return 2 + std::sqrt(static_cast<double>(n)) / 4; };
    const SizesSpec& sizes = instance.spec.sizes;
    // A rotated row is rounded to the element type before its scores are formed.
    const double rotated = instance.has(Slot::kRotaryCos) ? 2 * element : 0;
    return {element, compute, compute * sum(sizes.head_dim_v), compute * sum(sizes.head_dim) + rotated,
            tiny_roundoff(instance.dtype)};
}

HeadAnswers answers_of(const Instance& instance, size_t s, int64_t head_q) {
    const DenseHead head = gather_head(instance, s, head_q, Rotation::kExact);
    HeadAnswers answers;
    answers.exact = exact_attention(head);
    answers.rounding = rounding_of(head, answers.exact, roundings_of(instance));
    // In f64 nothing is rounded but the arithmetic itself, so the unit alone sets the tolerance.
    if (instance.dtype == DType::kF64)
        answers.naive = answers.exact;
    else
        answers.naive = naive_attention(
            instance.has(Slot::kRotaryCos) ? gather_head(instance, s, head_q, Rotation::kRounded) : head,
            instance.dtype);
    return answers;
}

void add_forward(const Instance& instance, size_t s, int64_t head_q, const HeadAnswers& answers,
                 Expectation* expectation) {
    const SequenceData& sequence = instance.sequences[s];
    const auto row_of = [&](int64_t i) { return sequence.first_row + i; };
    add_rows({(*expectation)[Slot::kO], instance.at(Slot::kO), head_q}, answers, &DenseResult::o, sequence.num_rows,
             row_of);
    const auto lse = expectation->find(Slot::kLse);
    if (lse == expectation->end()) return;
    for (int64_t i = 0; i < sequence.num_rows; ++i)
        add_element(lse->second, instance.lse_index(s, head_q, i), answers, &DenseResult::lse, i);
}

void add_backward(const Instance& instance, size_t s, int64_t head_q, const HeadAnswers& answers,
                  Expectation* expectation) {
    const SequenceData& sequence = instance.sequences[s];
    const int64_t head_kv = head_q / (instance.spec.sizes.heads_q / instance.spec.sizes.heads_kv);
    const auto row_of = [&](int64_t i) { return sequence.first_row + i; };
    const auto key_row_of = [&](int64_t j) { return sequence.key_rows[static_cast<size_t>(j)]; };
    add_rows({(*expectation)[Slot::kGradQ], instance.at(Slot::kQ), head_q}, answers, &DenseResult::grad_q,
             sequence.num_rows, row_of);
    add_rows({(*expectation)[Slot::kGradK], instance.at(Slot::kK), head_kv}, answers, &DenseResult::grad_k,
             sequence.num_keys(), key_row_of);
    add_rows({(*expectation)[Slot::kGradV], instance.at(Slot::kV), head_kv}, answers, &DenseResult::grad_v,
             sequence.num_keys(), key_row_of);
    if (instance.has(Slot::kGradBias)) {
        // Where the bias repeats itself by stride 0, its gradient has every element.
        TensorData gradient = instance.at(Slot::kGradBias);
        gradient.shared_axes = 0;
        for (int64_t i = 0; i < sequence.num_rows; ++i)
            for (int64_t j = 0; j < sequence.num_keys(); ++j)
                add_element((*expectation)[Slot::kGradBias], instance.pair_index(gradient, s, head_q, i, j), answers,
                            &DenseResult::grad_s, i * sequence.num_keys() + j);
    }
    if (instance.has(Slot::kGradSink)) {
        Expected& sink = (*expectation)[Slot::kGradSink];
        sink.exact[static_cast<size_t>(head_q)] += answers.exact.grad_sink;
        sink.naive[static_cast<size_t>(head_q)] += answers.naive.grad_sink;
        sink.rounding[static_cast<size_t>(head_q)] += answers.rounding.grad_sink;
    }
}

// Pairs that add up in one element of grad_bias.
double terms_of_bias(const Instance& instance) {
    const std::vector<int64_t>& shape = instance.at(Slot::kGradBias).shape;
    const int64_t full[] = {instance.spec.sizes.batch, instance.spec.sizes.heads_q, instance.max_rows_q,
                            instance.max_rows_k};
    double terms = 1;
    for (size_t axis = 0; axis < 4; ++axis)
        if (shape[axis] == 1) terms *= static_cast<double>(full[axis]);
    return terms;
}

// The last rounding of each output, in the naive answer and in the units; and of a long sum, which the naive answer adds up in double.
void round_outputs(const Instance& instance, Expectation* expectation) {
    for (auto& [slot, expected] : *expectation) {
        const DType dtype = instance.at(slot).dtype;
        const double unit = unit_roundoff(dtype);
        const double walk =
            slot == Slot::kGradBias ? unit_roundoff(DType::kF32) * std::sqrt(terms_of_bias(instance)) / 2 : 0;
        const bool own_included = slot == Slot::kO || slot == Slot::kLse || slot == Slot::kGradQ;
        for (size_t i = 0; i < expected.exact.size(); ++i) {
            expected.naive[i] = rounded(dtype, expected.naive[i]);
            expected.rounding[i] += tiny_roundoff(dtype) + walk * std::fabs(expected.exact[i]);
            if (!own_included) expected.rounding[i] += unit * std::fabs(expected.exact[i]);
        }
    }
}

void mark_poisoned_values(const Instance& instance, Expectation* expectation) {
    if (instance.spec.data != Data::kNaNValue) return;
    for (State& state : (*expectation)[Slot::kO].state)
        if (state == State::kWritten) state = State::kMayBeNaN;
}

void give_forward_outputs(Instance& instance, Expectation* expectation) {
    for (const Slot slot : {Slot::kO, Slot::kLse}) {
        TensorData& tensor = instance.tensors.at(slot);
        const Expected& expected = (*expectation)[slot];
        for (size_t i = 0; i < tensor.values.size(); ++i)
            if (expected.state[i] != State::kUntouched) tensor.values[i] = rounded(tensor.dtype, expected.exact[i]);
        expectation->erase(slot);
    }
}

void add_cache(const Instance& instance, Expectation* expectation) {
    Expected& k = add(*expectation, Slot::kK, instance.at(Slot::kK), Fill::kUntouched);
    Expected& v = add(*expectation, Slot::kV, instance.at(Slot::kV), Fill::kUntouched);
    const TensorData& v_new = instance.at(Slot::kVNew);
    const int64_t heads = instance.spec.sizes.heads_kv, d = instance.spec.sizes.head_dim,
                  dv = instance.spec.sizes.head_dim_v;
    const double unit = unit_roundoff(instance.dtype) + unit_roundoff(DType::kF32);
    for (size_t s = 0; s < instance.sequences.size(); ++s)
        for (int64_t key = instance.sequences[s].num_cached; key < instance.sequences[s].num_keys(); ++key)
            for (int64_t head = 0; head < heads; ++head) {
                const SequenceData& sequence = instance.sequences[s];
                const int64_t row = sequence.key_rows[static_cast<size_t>(key)] * heads + head;
                const int64_t t = key - sequence.num_cached, new_row = (sequence.first_new + t) * heads + head;
                const auto exact = new_key(instance, s, head, t, Rotation::kExact);
                const auto naive = new_key(instance, s, head, t, Rotation::kRounded);
                for (int64_t i = 0; i < d; ++i) {
                    const auto at = static_cast<size_t>(row * d + i), from = static_cast<size_t>(i);
                    const bool rotated = i < instance.spec.cache.rotary_dim;
                    k.exact[at] = exact[from];
                    k.naive[at] = naive[from];
                    k.rounding[at] =
                        rotated ? unit * (std::fabs(exact[from]) + 2) : 0;  // two products of normal numbers
                    k.state[at] = State::kWritten;
                }
                for (int64_t i = 0; i < dv; ++i) {
                    const auto at = static_cast<size_t>(row * dv + i);
                    v.exact[at] = v.naive[at] = v_new.values[static_cast<size_t>(new_row * dv + i)];
                    v.state[at] = State::kWritten;
                }
            }
}

}  // namespace

Expectation evaluate(Instance& instance) {
    Expectation expectation;
    if (instance.spec.cache.appends()) add_cache(instance, &expectation);
    if (instance.spec.op == Op::kAppend) return expectation;
    const bool backward = instance.spec.op == Op::kBackward;
    for (const Slot slot : {Slot::kO, Slot::kLse})
        if (instance.has(slot)) add(expectation, slot, instance.at(slot), Fill::kUntouched);
    for (const Slot slot : {Slot::kGradQ, Slot::kGradK, Slot::kGradV, Slot::kGradBias, Slot::kGradSink})
        if (instance.has(slot)) add(expectation, slot, instance.at(slot), Fill::kZeros);
    for (size_t s = 0; s < instance.sequences.size(); ++s)
        for (int64_t head = 0; head < instance.spec.sizes.heads_q; ++head) {
            const HeadAnswers answers = answers_of(instance, s, head);
            add_forward(instance, s, head, answers, &expectation);
            if (backward) add_backward(instance, s, head, answers, &expectation);
        }
    round_outputs(instance, &expectation);
    mark_poisoned_values(instance, &expectation);
    if (backward) give_forward_outputs(instance, &expectation);
    return expectation;
}

}  // namespace tilewise::conformance
