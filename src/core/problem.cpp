// Reads a Problem: its common sizes, its hash for plan caches, and its text form for people.
// Sizes trust the shapes, which validate has checked. The text form trusts nothing: wrong problems are printed too.
#include "core/problem.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

namespace tilewise {

namespace {

// Extent of the axis `back` places from the last one; 0 where there is none.
int64_t dim_from_end(const TensorDesc& tensor, int back) {
    const int axis = tensor.rank - 1 - back;
    return axis >= 0 && axis < kMaxRank ? tensor.dim(axis) : 0;
}

// Rows and lengths of the query side, from q or, for combine, from o.
void read_query_sizes(const Problem& problem, Sizes& sizes) {
    const TensorDesc& rows = problem.has(Arg::kQ) ? problem[Arg::kQ] : problem[Arg::kO];
    if (rows.rank == 4) {
        sizes.batch = rows.dim(0);
        sizes.max_seqlen_q = rows.dim(1);
        sizes.total_q = rows.dim(0) * rows.dim(1);
    } else if (rows.rank == 3) {
        sizes.batch = problem.has(Arg::kCuSeqlensQ) ? problem[Arg::kCuSeqlensQ].dim(0) - 1 : 1;
        sizes.total_q = rows.dim(0);
        const int64_t bound = problem.exec.max_seqlen_q;
        sizes.max_seqlen_q = bound > 0 ? std::min(bound, sizes.total_q) : sizes.total_q;
    } else {
        return;
    }
    sizes.num_heads_q = dim_from_end(rows, 1);
    if (problem.has(Arg::kQ)) sizes.head_dim = dim_from_end(rows, 0);
    sizes.head_dim_v = dim_from_end(problem[Arg::kO], 0);
}

// Rows and lengths of the key side; the batch must be known.
void read_key_sizes(const Problem& problem, Sizes& sizes) {
    const TensorDesc& k = problem[Arg::kK];
    if (problem.has(Arg::kPageTable)) {
        sizes.page_size = k.dim(1);
        sizes.max_seqlen_k = problem[Arg::kPageTable].dim(1) * sizes.page_size;
        sizes.total_k = sizes.batch * sizes.max_seqlen_k;
    } else if (problem.has(Arg::kCuSeqlensK)) {
        const int64_t bound = problem.exec.max_seqlen_k;
        sizes.total_k = k.dim(0);
        sizes.max_seqlen_k = bound > 0 ? std::min(bound, sizes.total_k) : sizes.total_k;
    } else {
        sizes.max_seqlen_k = k.dim(1);
        sizes.total_k = k.dim(0) * k.dim(1);
    }
    sizes.num_heads_kv = dim_from_end(k, 1);
    sizes.head_dim = dim_from_end(k, 0);
    if (problem.has(Arg::kV)) sizes.head_dim_v = dim_from_end(problem[Arg::kV], 0);
}

// Mixes a value into a hash (the finalizer of splitmix64).
void mix(uint64_t& hash, uint64_t value) {
    uint64_t x = hash + 0x9E3779B97F4A7C15ull + value;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    hash = x ^ (x >> 31);
}
// 0 and -0 are equal and must hash alike.
void mix(uint64_t& hash, float value) { mix(hash, uint64_t{bits_of(value == 0.0f ? 0.0f : value)}); }
void mix(uint64_t& hash, int64_t value) { mix(hash, static_cast<uint64_t>(value)); }

void mix(uint64_t& hash, const TensorDesc& tensor) {
    mix(hash, static_cast<uint64_t>(tensor.dtype));
    mix(hash, int64_t{tensor.rank});
    mix(hash, int64_t{tensor.alignment});
    for (const int64_t n : tensor.shape) mix(hash, n);
    for (const int64_t n : tensor.stride) mix(hash, n);
}

void add_line(std::string& text, const char* name, const std::string& value) {
    text += fmt::format("  {:<16} {}\n", name, value);
}

std::string window_side(int32_t side) { return side < 0 ? "unlimited" : fmt::format("{}", side); }

void add_mask_lines(std::string& text, const Problem& problem) {
    const MaskSpec& mask = problem.mask;
    if (mask.window_left < 0 && mask.window_right == 0) {
        add_line(text, "causal", "on");
    } else if (mask.window_left >= 0 || mask.window_right >= 0) {
        add_line(text, "window",
                 fmt::format("left {}, right {}", window_side(mask.window_left), window_side(mask.window_right)));
    }
    if (mask.chunk > 0) add_line(text, "chunk", fmt::format("{} keys", mask.chunk));
    if (mask.block > 0) add_line(text, "block", fmt::format("{} keys", mask.block));
    if (mask.prefix > 0) add_line(text, "prefix", fmt::format("{} keys", mask.prefix));
    if (is_positional(mask)) add_line(text, "diagonal", mask.top_left ? "top_left" : "bottom_right");
}

void add_score_lines(std::string& text, const Problem& problem) {
    const ScoreSpec& score = problem.score;
    if (problem.has(Arg::kQ) || score.has_softmax_scale)
        add_line(text, "softmax_scale",
                 fmt::format("{:.6g}{}", softmax_scale_of(problem), score.has_softmax_scale ? "" : " (head_dim^-0.5)"));
    if (score.softcap > 0.0f) add_line(text, "softcap", fmt::format("{:.6g}", score.softcap));
    if (score.dropout_p > 0.0f)
        add_line(text, "dropout",
                 fmt::format("{:.6g} (seed {}, offset {})", score.dropout_p, score.dropout_seed, score.dropout_offset));
}

void add_exec_lines(std::string& text, const Problem& problem) {
    const ExecSpec& exec = problem.exec;
    if (exec.max_seqlen_q > 0) add_line(text, "max_seqlen_q", fmt::format("{}", exec.max_seqlen_q));
    if (exec.max_seqlen_k > 0) add_line(text, "max_seqlen_k", fmt::format("{}", exec.max_seqlen_k));
    if (problem.has(Arg::kRotaryCos))
        add_line(text, "rotary pairs", exec.rotary_interleaved ? "interleaved" : "half-split");
    if (exec.deterministic) add_line(text, "deterministic", "on");
    if (exec.batch_invariant) add_line(text, "batch_invariant", "on");
    if (exec.num_splits > 0) add_line(text, "num_splits", fmt::format("{}", exec.num_splits));
    if (exec.num_threads > 0) add_line(text, "num_threads", fmt::format("{}", exec.num_threads));
    if (!exec.kernel.empty()) add_line(text, "kernel", exec.kernel);
}

}  // namespace

const char* name_of(Op op) {
    switch (op) {
    case Op::kForward: return "forward";
    case Op::kBackward: return "backward";
    case Op::kDecode: return "decode";
    case Op::kAppend: return "append";
    case Op::kCombine: return "combine";
    }
    return "?";
}

Sizes sizes_of(const Problem& problem) {
    Sizes sizes;
    read_query_sizes(problem, sizes);
    if (!problem.has(Arg::kQ) && problem.has(Arg::kCacheSeqlens)) sizes.batch = problem[Arg::kCacheSeqlens].dim(0);
    if (problem.has(Arg::kK)) read_key_sizes(problem, sizes);
    return sizes;
}

float softmax_scale_of(const Problem& problem) {
    if (problem.score.has_softmax_scale) return problem.score.softmax_scale;
    const int64_t head_dim = std::max<int64_t>(dim_from_end(problem[problem.has(Arg::kQ) ? Arg::kQ : Arg::kK], 0), 1);
    return static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
}

bool is_positional(const MaskSpec& mask) {
    return mask.window_left >= 0 || mask.window_right >= 0 || mask.chunk > 0 || mask.block > 0;
}

size_t hash_of(const Problem& problem) {
    uint64_t hash = static_cast<uint64_t>(problem.op);
    for (size_t i = 0; i < kNumArgs; ++i) {
        if (!problem.tensors.values[i].given()) continue;
        mix(hash, static_cast<uint64_t>(i));
        mix(hash, problem.tensors.values[i]);
    }
    const MaskSpec& mask = problem.mask;
    for (const int32_t n : {mask.window_left, mask.window_right, mask.chunk, mask.block, mask.prefix})
        mix(hash, int64_t{n});
    const ScoreSpec& score = problem.score;
    for (const float x : {score.softmax_scale, score.softcap, score.dropout_p}) mix(hash, x);
    mix(hash, score.dropout_seed);
    mix(hash, score.dropout_offset);
    const ExecSpec& exec = problem.exec;
    for (const bool flag :
         {mask.top_left, score.has_softmax_scale, exec.deterministic, exec.batch_invariant, exec.rotary_interleaved})
        mix(hash, static_cast<uint64_t>(flag));
    for (const int64_t n : {int64_t{exec.num_splits}, int64_t{exec.num_threads}, exec.max_seqlen_q, exec.max_seqlen_k})
        mix(hash, n);
    mix(hash, static_cast<uint64_t>(std::hash<std::string>{}(exec.kernel)));
    return static_cast<size_t>(hash);
}

std::string to_string(const Problem& problem) {
    std::string text = fmt::format("{}\n", name_of(problem.op));
    for (size_t i = 0; i < kNumArgs; ++i) {
        const Arg arg = static_cast<Arg>(i);
        if (problem.has(arg)) add_line(text, name_of(arg), to_string(problem[arg]));
    }
    add_mask_lines(text, problem);
    add_score_lines(text, problem);
    add_exec_lines(text, problem);
    return text;
}

}  // namespace tilewise
