// Builds the tensors of a call from its flags, one function for each group of them.
#include "synthetic.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "error.hpp"

namespace tilewise::cli {
namespace {

constexpr int64_t kDefaultSeqlen = 1024;
constexpr double kMaskDensity = 0.9;
constexpr double kRotaryBase = 10000.0;

int64_t largest(const std::vector<int64_t>& values) {
    return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}
int64_t total(const std::vector<int64_t>& values) { return std::accumulate(values.begin(), values.end(), int64_t{0}); }
std::vector<int64_t> running_sum(const std::vector<int64_t>& values) {
    std::vector<int64_t> sums(values.size() + 1);
    std::partial_sum(values.begin(), values.end(), sums.begin() + 1);
    return sums;
}

class CallMaker {
public:
    CallMaker(const ProblemFlags& flags, Contents contents, uint64_t seed)
        : flags_(flags), maker_(contents, seed), lengths_(lengths_of(flags)) {
        call_.op = op_of(flags.shape.op);
        dtype_ = dtype_of("dtype", flags.shape.dtype);
        batch_ = static_cast<int64_t>(lengths_.q.size());
        heads_kv_ = flags.shape.heads_kv.value_or(flags.shape.heads);
        head_dim_v_ = flags.shape.head_dim_v.value_or(flags.shape.head_dim);
    }

    Call make() {
        if (call_.op == Op::kCombine) {
            make_combination();
        } else {
            call_.attention.mask = mask_of(flags_.mask);
            call_.attention.score = score_of(flags_.score);
            call_.attention.options = options_of(flags_.exec);
            if (call_.op != Op::kAppend) make_queries();
            make_keys();
            make_optional_tensors();
            if (is_cache()) make_new_tokens();
            if (call_.op == Op::kBackward) make_gradients();
        }
        call_.memory = maker_.take_memory();
        return std::move(call_);
    }

private:
    bool is_ragged() const { return !flags_.lengths.ragged.empty(); }
    bool is_paged() const { return flags_.lengths.page_size > 0; }
    bool is_cache() const { return call_.op == Op::kDecode || call_.op == Op::kAppend; }
    bool keys_are_packed() const { return is_ragged() && !is_paged() && !is_cache(); }
    int64_t pages_of_one() const {
        return (largest(lengths_.k) + flags_.lengths.page_size - 1) / flags_.lengths.page_size;
    }

    // (b, rows, heads, dim), or (total, heads, dim) where `packed` holds the rows of each sequence.
    Form rows_form(const std::vector<int64_t>* packed, int64_t rows, int64_t heads, int64_t dim) const {
        const bool heads_first = flags_.shape.layout == "bhsd";
        Form form{dtype_, {batch_, rows, heads, dim}, {}};
        if (heads_first) form.order = {0, 2, 1, 3};
        if (packed == nullptr) return form;
        form.shape = {total(*packed), heads, dim};
        if (heads_first) form.order = {1, 0, 2};
        return form;
    }
    Form query_form(int64_t dim) const {
        return rows_form(is_ragged() ? &lengths_.q : nullptr, largest(lengths_.q), flags_.shape.heads, dim);
    }
    Form key_form(int64_t dim) const {
        if (is_paged()) return {dtype_, {batch_ * pages_of_one(), flags_.lengths.page_size, heads_kv_, dim}, {}};
        return rows_form(keys_are_packed() ? &lengths_.k : nullptr, largest(lengths_.k), heads_kv_, dim);
    }
    Form lse_form() const {
        const DType dtype = dtype_ == DType::kF64 ? DType::kF64 : DType::kF32;
        if (is_ragged()) return {dtype, {flags_.shape.heads, total(lengths_.q)}, {}};
        return {dtype, {batch_, flags_.shape.heads, largest(lengths_.q)}, {}};
    }
    // "1hqk": axes that are not 1 have their full size.
    Form pair_form(const std::string& argument, const std::string& axes, DType dtype) const {
        constexpr std::string_view kFull = "bhqk";
        Form form{dtype, {batch_, flags_.shape.heads, largest(lengths_.q), largest(lengths_.k)}, {}};
        for (size_t i = 0; i < kFull.size(); ++i) {
            if (axes.size() == kFull.size() && axes[i] == '1')
                form.shape[i] = 1;
            else if (axes.size() != kFull.size() || axes[i] != kFull[i]) {
                throw UsageError(
                    fmt::format("{}: \"{}\"; bhqk with 1 for each axis that is broadcast is allowed", argument, axes));
            }
        }
        return form;
    }
    DType bias_dtype() const { return dtype_ == DType::kF64 ? DType::kF32 : dtype_; }

    void make_queries() {
        Attention& a = call_.attention;
        a.q = maker_.make("q", query_form(flags_.shape.head_dim), maker_.normal());
        a.o = maker_.make("o", query_form(head_dim_v_), TensorMaker::unwritten);
        if (!flags_.tensors.no_lse || call_.op == Op::kBackward) {
            a.lse = maker_.make("lse", lse_form(), TensorMaker::unwritten);
        }
        if (is_ragged()) {
            a.lengths.cu_seqlens_q = maker_.integers("cu_seqlens_q", running_sum(lengths_.q));
            a.lengths.max_seqlen_q = largest(lengths_.q);
        }
    }

    void make_keys() {
        Attention& a = call_.attention;
        a.k = maker_.make("k", key_form(flags_.shape.head_dim), maker_.normal());
        a.v = maker_.make("v", key_form(head_dim_v_), maker_.normal());
        if (keys_are_packed()) {
            a.lengths.cu_seqlens_k = maker_.integers("cu_seqlens_k", running_sum(lengths_.k));
            a.lengths.max_seqlen_k = largest(lengths_.k);
        } else if (is_paged() && !is_cache()) {
            a.lengths.seqused_k = maker_.integers("seqused_k", lengths_.k);
        }
        if (is_paged()) {
            // Pages in a shuffled order, as a cache that has lived for a while has them.
            a.cache.page_table = maker_.make("page_table", {DType::kI32, {batch_, pages_of_one()}, {}},
                                             maker_.shuffled(batch_ * pages_of_one()));
        }
        if (flags_.lengths.leftpad > 0) {
            const std::vector<int64_t> padding(static_cast<size_t>(batch_), flags_.lengths.leftpad);
            a.lengths.leftpad_k = maker_.integers("leftpad_k", padding);
        }
    }

    void make_optional_tensors() {
        const TensorFlags& given = flags_.tensors;
        const int64_t heads = flags_.shape.heads;
        Attention& a = call_.attention;
        if (!given.bias.empty()) {
            a.score.bias = maker_.make("bias", pair_form("bias", given.bias, bias_dtype()), maker_.normal());
        }
        if (!given.bool_mask.empty()) {
            const Form form = pair_form("bool-mask", given.bool_mask, DType::kBool);
            a.mask.mask = maker_.make("mask", form, maker_.visible(kMaskDensity));
        }
        if (given.sink) a.score.sink = maker_.make("sink", {DType::kF32, {heads}, {}}, maker_.normal());
        if (!given.alibi.empty()) {
            const std::vector<int64_t> shape = given.alibi == "bh" ? std::vector{batch_, heads} : std::vector{heads};
            // The usual slopes: a geometric series from 2^(-8 / h) to 2^-8.
            a.score.alibi_slopes = maker_.make("alibi_slopes", {DType::kF32, shape, {}}, [heads](int64_t i) {
                return std::exp2(-8.0 * static_cast<double>(i % heads + 1) / static_cast<double>(heads));
            });
        }
    }

    void make_new_tokens() {
        Cache& cache = call_.attention.cache;
        const int64_t fresh = flags_.lengths.new_tokens.value_or(call_.op == Op::kAppend ? 1 : 0);
        std::vector<int64_t> before = lengths_.k;
        for (int64_t& length : before) {
            length -= fresh;
            if (length < 0) {
                throw UsageError(
                    fmt::format("new-tokens: {} is more than the {} keys of a sequence", fresh, length + fresh));
            }
        }
        cache.cache_seqlens = maker_.integers("cache_seqlens", before);
        if (flags_.lengths.new_tokens || fresh > 0) {
            cache.k_new =
                maker_.make("k_new", rows_form(nullptr, fresh, heads_kv_, flags_.shape.head_dim), maker_.normal());
            cache.v_new = maker_.make("v_new", rows_form(nullptr, fresh, heads_kv_, head_dim_v_), maker_.normal());
        }
        cache.rotary_interleaved = flags_.lengths.rotary_interleaved;
        if (flags_.lengths.rotary_dim == 0) return;
        const int64_t pairs = flags_.lengths.rotary_dim / 2;
        const auto angle = [pairs](int64_t i) {
            const int64_t position = i / pairs;
            const double exponent = -static_cast<double>(i % pairs) / static_cast<double>(pairs);
            return static_cast<double>(position) * std::pow(kRotaryBase, exponent);
        };
        const Form form{DType::kF32, {largest(lengths_.k), pairs}, {}};
        cache.rotary_cos = maker_.make("rotary_cos", form, [&](int64_t i) { return std::cos(angle(i)); });
        cache.rotary_sin = maker_.make("rotary_sin", form, [&](int64_t i) { return std::sin(angle(i)); });
    }

    void make_gradients() {
        const TensorFlags& given = flags_.tensors;
        Gradients& g = call_.attention.gradients;
        g.grad_o = maker_.make("grad_o", query_form(head_dim_v_), maker_.normal());
        g.grad_q = maker_.make("grad_q", query_form(flags_.shape.head_dim), TensorMaker::unwritten);
        g.grad_k = maker_.make("grad_k", key_form(flags_.shape.head_dim), TensorMaker::unwritten);
        g.grad_v = maker_.make("grad_v", key_form(head_dim_v_), TensorMaker::unwritten);
        if (given.grad_bias) {
            if (given.bias.empty()) throw UsageError("grad-bias: there is no bias; --bias gives one");
            g.grad_bias = maker_.make("grad_bias", pair_form("bias", given.bias, bias_dtype()), TensorMaker::unwritten);
        }
        if (given.grad_sink) {
            g.grad_sink = maker_.make("grad_sink", {DType::kF32, {flags_.shape.heads}, {}}, TensorMaker::unwritten);
        }
    }

    void make_combination() {
        const int64_t parts = flags_.exec.splits > 0 ? flags_.exec.splits : 2;
        const int64_t heads = flags_.shape.heads;
        const int64_t rows = largest(lengths_.q);
        Combination& c = call_.combination;
        c.partial_o =
            maker_.make("partial_o", {dtype_, {parts, batch_, rows, heads, head_dim_v_}, {}}, maker_.normal());
        c.partial_lse = maker_.make("partial_lse", {DType::kF32, {parts, batch_, heads, rows}, {}}, maker_.normal());
        c.o = maker_.make("o", {dtype_, {batch_, rows, heads, head_dim_v_}, {}}, TensorMaker::unwritten);
        if (!flags_.tensors.no_lse)
            c.lse = maker_.make("lse", {DType::kF32, {batch_, heads, rows}, {}}, TensorMaker::unwritten);
        c.options = options_of(flags_.exec);
        c.options.num_splits = 0;  // the flag was the number of parts
    }

    const ProblemFlags& flags_;
    TensorMaker maker_;
    SequenceLengths lengths_;
    DType dtype_ = DType::kNone;
    int64_t batch_ = 0;
    int64_t heads_kv_ = 0;
    int64_t head_dim_v_ = 0;
    Call call_;
};

void check_lengths(const char* argument, const std::vector<int64_t>& lengths) {
    for (const int64_t length : lengths) {
        if (length < 0) throw UsageError(fmt::format("{}: {} is not a length", argument, length));
    }
}

}  // namespace

SequenceLengths lengths_of(const ProblemFlags& flags) {
    const LengthFlags& given = flags.lengths;
    const bool decodes = op_of(flags.shape.op) == Op::kDecode;
    SequenceLengths lengths{given.ragged, given.ragged_k};
    if (given.ragged.empty()) {
        if (flags.shape.batch < 0)
            throw UsageError(fmt::format("batch: {} is not a number of sequences", flags.shape.batch));
        const int64_t rows = flags.shape.seqlen_q.value_or(decodes ? std::max<int64_t>(given.new_tokens.value_or(1), 1)
                                                                   : kDefaultSeqlen);
        lengths.q.assign(static_cast<size_t>(flags.shape.batch), rows);
    }
    if (given.ragged_k.empty()) {
        lengths.k = lengths.q;
        if (flags.shape.seqlen_k || (decodes && given.ragged.empty())) {
            lengths.k.assign(lengths.q.size(), flags.shape.seqlen_k.value_or(kDefaultSeqlen));
        }
    }
    if (lengths.k.size() != lengths.q.size()) {
        throw UsageError(
            fmt::format("ragged-k: {} sequences, but ragged or batch gives {}", lengths.k.size(), lengths.q.size()));
    }
    check_lengths("seqlen-q", lengths.q);
    check_lengths("seqlen-k", lengths.k);
    return lengths;
}

Call make_call(const ProblemFlags& flags, Contents contents, uint64_t seed) {
    return CallMaker(flags, contents, seed).make();
}

Plan plan_of(const Device& device, const Call& call) {
    if (call.op == Op::kCombine) return {device, call.combination};
    return {device, call.op, call.attention};
}

void prepare(const Device& device, const Call& call) {
    if (call.op != Op::kBackward) return;
    Attention attention = call.attention;
    attention.gradients = {};
    attention.options.kernel.clear();  // it names a backward kernel
    Workspace workspace(device);
    forward(device, attention, workspace);
    synchronize(device);
}

void launch(const Plan& plan, const Call& call, Workspace& workspace) {
    if (call.op == Op::kCombine)
        plan.launch(call.combination, workspace);
    else
        plan.launch(call.attention, workspace);
}

}  // namespace tilewise::cli
