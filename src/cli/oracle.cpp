// Chooses a part of the call, repeats it in double, and compares element by element.
#include "oracle.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>

#include "element.hpp"
#include "kernel_list.hpp"
#include "slots.hpp"
#include "work.hpp"

namespace tilewise::cli {
namespace {

constexpr int64_t kSampleRows = 32;
// How much longer the oracle may take rather than leave an output unchecked.
constexpr double kPatience = 10;

// Relative to the element plus the root mean square of its tensor. Sums of thousands of terms, P rounded to the input type, and the
// largest of millions of errors: these are 20 to 80 times the spacing of the type.
double tolerance_of(DType dtype) {
    switch (dtype) {
    case DType::kBF16: return 6e-2;
    case DType::kF16: return 1e-2;
    case DType::kF64: return 1e-12;
    default: return 1e-5;
    }
}

// Calls `visit` with the memory offset of each element in both tensors, which have one shape.
void for_each_pair(const Tensor& a, const Tensor& b, const std::function<void(int64_t, int64_t)>& visit) {
    std::array<int64_t, TILEWISE_MAX_RANK> index{};
    for (int32_t axis = 0; axis < a.rank(); ++axis) {
        if (a.size(axis) == 0) return;
    }
    while (true) {
        int64_t at_a = 0, at_b = 0;
        for (int32_t axis = 0; axis < a.rank(); ++axis) {
            at_a += index[static_cast<size_t>(axis)] * a.stride(axis);
            at_b += index[static_cast<size_t>(axis)] * b.stride(axis);
        }
        visit(at_a, at_b);
        int32_t axis = a.rank() - 1;
        while (axis >= 0 && ++index[static_cast<size_t>(axis)] == a.size(axis)) index[static_cast<size_t>(axis--)] = 0;
        if (axis < 0) return;
    }
}

double root_mean_square(const Tensor& tensor) {
    double sum = 0;
    int64_t count = 0;
    for_each_pair(tensor, tensor, [&](int64_t at, int64_t) {
        const double value = load_element(tensor.data(), tensor.dtype(), at);
        if (!std::isfinite(value)) return;
        sum += value * value;
        ++count;
    });
    return count > 0 ? std::sqrt(sum / static_cast<double>(count)) : 0;
}

// A part of a call, and which of its outputs are whole in it.
struct Sample {
    Part part;
    std::vector<std::string> outputs;
    std::string text;
    Part compared{};  // of the part
};

std::vector<std::string> outputs_of(Op op) {
    if (op == Op::kBackward) return {"grad_q", "grad_k", "grad_v", "grad_bias", "grad_sink"};
    return {"o", "lse"};
}

class Sampler {
public:
    Sampler(const Call& call, double max_flops) : call_(call), max_flops_(max_flops), sizes_(sizes_of(call.attention)) {
        flops_ = forward_flops(call.attention) * (call.op == Op::kBackward ? 2.5 : 1);
    }

    // None: too large, and it cannot be cut.
    std::optional<Sample> sample() const {
        if (flops_ <= max_flops_) return Sample{{}, outputs_of(call_.op), "all"};
        Sample one{{}, {}, "first head"};
        if (!sizes_.ragged) one.part.batch = Range{0, 1};
        one.part.heads_kv = Range{0, 1};
        // Gradients that sum over the heads or sequences are not whole here.
        one.outputs =
            call_.op == Op::kBackward ? std::vector<std::string>{"grad_q", "grad_k", "grad_v"} : outputs_of(call_.op);
        const double pieces = static_cast<double>(sizes_.heads_kv * (sizes_.ragged ? 1 : sizes_.batch));
        if (flops_ / pieces <= max_flops_) return one;
        std::optional<Sample> cut = can_cut_rows() ? std::optional(edge(one)) : std::nullopt;
        const bool sees_all = cut && (call_.op != Op::kBackward || cut->compared.keys);
        if (!sees_all && flops_ / pieces <= kPatience * max_flops_) return one;
        return cut;
    }

private:
    // True where the last rows (top-left: the first) see the same keys at the same distances when they are alone.
    bool can_cut_rows() const {
        const Attention& a = call_.attention;
        const Lengths& lengths = a.lengths;
        const Mask& mask = a.mask;
        const bool plain = !sizes_.ragged && !a.cache.page_table.given() && !a.cache.cache_seqlens.given();
        const bool whole = !lengths.seqused_q.given() && !lengths.seqused_k.given() && !lengths.leftpad_k.given();
        const bool relative = mask.chunk == 0 && mask.block == 0 && mask.prefix == 0 && !mask.prefix_lens.given() &&
                              !mask.key_begin.given() && mask.mask.dtype() != DType::kBits && a.score.dropout_p == 0;
        // ALiBi measures from the bottom-right diagonal whatever the mask does.
        return plain && whole && relative && !(mask.top_left && a.score.alibi_slopes.given());
    }
    Sample edge(const Sample& one) const {
        const Mask& mask = call_.attention.mask;
        const int64_t rows = std::min(sizes_.seqlen_q, kSampleRows);
        Sample sample = one;
        sample.part.rows = Range{mask.top_left ? 0 : sizes_.seqlen_q - rows, rows};
        sample.text = fmt::format("{} {} rows", mask.top_left ? "first" : "last", rows);
        if (call_.op != Op::kBackward) return sample;
        sample.outputs = {"grad_q"};
        // The last keys are seen by the last rows alone where the mask has a right side.
        const int64_t right = mask.causal ? 0 : mask.window_right.value_or(-1);
        const int64_t keys = std::min(sizes_.seqlen_k, right < 0 || mask.top_left ? 0 : rows - right);
        if (keys <= 0) {
            sample.text += ", grad_q only";
            return sample;
        }
        sample.outputs = {"grad_q", "grad_k", "grad_v"};
        sample.compared.keys = Range{sizes_.seqlen_k - keys, keys};
        sample.text += fmt::format(" and {} keys", keys);
        return sample;
    }

    const Call& call_;
    double max_flops_;
    double flops_ = 0;
    CallSizes sizes_;
};

// The call in double: floating-point tensors that follow q's type are converted, outputs get memory of their own.
class DoubleCall {
public:
    DoubleCall(const Attention& source, const Sample& sample, Op op) : attention_(source) {
        static constexpr std::array kConverted{"q", "k", "v", "k_new", "v_new", "o", "lse", "grad_o", "grad_lse"};
        const std::vector<std::string> outputs = outputs_of(op);
        for (const Slot& slot : slots()) {
            Tensor& tensor = slot.of(attention_);
            if (!tensor.given()) continue;
            const std::string name = slot.name;
            const bool is_output = std::count(outputs.begin(), outputs.end(), name) > 0;
            const bool is_compared = std::count(sample.outputs.begin(), sample.outputs.end(), name) > 0;
            const bool is_float_input = std::count(kConverted.begin(), kConverted.end(), name) > 0;
            // The gradients of q, k and v are required, the others are left out where they would not be whole.
            const bool is_optional = name == "grad_bias" || name == "grad_sink";
            if (is_output && is_optional && !is_compared)
                tensor = Tensor();
            else if (is_output && is_optional)
                tensor = own(name, tensor, tensor.dtype(), false);
            else if (is_output)
                tensor = own(name, tensor, DType::kF64, false);
            else if (is_float_input)
                tensor = own(name, tensor, DType::kF64, true);
        }
        attention_.options = {.kernel = oracle_kernel(op).value_or("")};
    }
    const Attention& attention() const { return attention_; }

private:
    Tensor own(const std::string& name, const Tensor& source, DType dtype, bool copies) {
        std::vector<int64_t> shape;
        for (int32_t axis = 0; axis < source.rank(); ++axis) shape.push_back(source.size(axis));
        HostTensor& memory = memory_[name] = HostTensor(name, dtype, shape);
        const Tensor tensor = memory.view(name);
        for_each_pair(tensor, source, [&](int64_t to, int64_t from) {
            const double value = copies ? load_element(source.data(), source.dtype(), from) : std::nan("");
            store_element(tensor.data(), dtype, to, value);
        });
        return tensor;
    }

    Attention attention_;
    std::map<std::string, HostTensor> memory_;
};

}  // namespace

double worst_error(const Tensor& actual, const Tensor& expected, DType precision) {
    const double size = root_mean_square(expected);
    const double scale = size > 0 ? size : 1;
    const double tolerance = tolerance_of(precision);
    double worst = 0;
    for_each_pair(actual, expected, [&](int64_t at, int64_t expected_at) {
        const double x = load_element(actual.data(), actual.dtype(), at);
        const double y = load_element(expected.data(), expected.dtype(), expected_at);
        if (x == y || (std::isnan(x) && std::isnan(y))) return;
        const double error = std::abs(x - y) / (tolerance * (std::abs(y) + scale));
        worst = std::isfinite(error) ? std::max(worst, error) : std::numeric_limits<double>::infinity();
    });
    return worst;
}

OracleCheck check_with_oracle(const Call& call, double max_flops) {
    OracleCheck result;
    if (!oracle_kernel(call.op)) {
        result.what = fmt::format("no oracle for {}", name_of(call.op));
        return result;
    }
    const std::optional<Sample> sample = Sampler(call, max_flops).sample();
    if (!sample) {
        result.what = "too large, and its rows cannot be checked alone";
        return result;
    }
    result.what = sample->text;
    const Attention part = part_of(call.attention, sample->part);
    const DoubleCall oracle(part, *sample, call.op);
    Plan(Device("cpu"), call.op, oracle.attention()).launch(oracle.attention());
    Attention actual = part_of(part, sample->compared);
    Attention expected = part_of(oracle.attention(), sample->compared);
    for (const Slot& slot : slots()) {
        const Tensor& tensor = slot.of(actual);
        const bool is_compared = std::count(sample->outputs.begin(), sample->outputs.end(), slot.name) > 0;
        if (!is_compared || !tensor.given()) continue;
        // Rotated queries and keys are rounded to their type before the scores, so lse has no more than that precision.
        const bool rotates = actual.cache.rotary_cos.given();
        const double error = worst_error(tensor, slot.of(expected), rotates ? actual.q.dtype() : tensor.dtype());
        if (!result.done || error > result.worst) result.where = slot.name;
        result.worst = std::max(result.worst, error);
        result.done = true;
    }
    return result;
}

}  // namespace tilewise::cli
