// A spec as one line of text: what a failing random problem is reported as.
#include "conformance/spec.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "conformance/element.hpp"

namespace tilewise::conformance {

namespace {

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

const char* name_of(Layout layout) {
    switch (layout) {
    case Layout::kContiguous: return "contiguous";
    case Layout::kHeadsFirst: return "heads first";
    case Layout::kPaddedRows: return "padded rows";
    case Layout::kStridedDim: return "strided dim";
    case Layout::kDimFirst: return "dim first";
    case Layout::kUnaligned: return "unaligned";
    case Layout::kSharedHeads: return "shared heads";
    case Layout::kSharedBatch: return "shared batch";
    }
    return "?";
}

const char* name_of(Data data) {
    switch (data) {
    case Data::kNormal: return "normal";
    case Data::kVeryNegative: return "very negative";
    case Data::kOutlier: return "outlier";
    case Data::kZeros: return "zeros";
    case Data::kLarge: return "large";
    case Data::kNaNKey: return "NaN key";
    case Data::kNaNValue: return "NaN value";
    }
    return "?";
}

// Collects "name value" for what is not a default.
class Line {
public:
    template <class T> void add(const char* name, const T& value, bool given) {
        if (given) text_ += fmt::format(" {} {}", name, value);
    }
    void add(const char* name, const std::vector<int>& values) {
        add(name, fmt::format("{}", values), !values.empty());
    }
    void add(const char* name, int value) { add(name, value, value != 0); }
    void add(const char* name, bool value) {
        if (value) text_ += fmt::format(" {}", name);
    }
    void add(const char* name, const PairSpec& pair) {
        add(name,
            fmt::format("(axes {:#x}{} {})", pair.broadcast, pair.stride_zero ? " by stride" : "",
                        conformance::name_of(pair.dtype)),
            pair.given);
    }
    std::string text_;
};

void add_mask(const MaskSpec& mask, Line* line) {
    line->add("causal", mask.causal);
    line->add("top_left", mask.top_left);
    line->add("left", mask.left.value_or(0), mask.left.has_value());
    line->add("right", mask.right.value_or(0), mask.right.has_value());
    line->add("chunk", mask.chunk);
    line->add("block", mask.block);
    line->add("prefix", mask.prefix);
    line->add("prefix_lens", mask.prefix_lens);
    line->add("mask", mask.mask);
    line->add("intervals", mask.intervals);
}

void add_score(const ScoreSpec& score, Line* line) {
    line->add("scale", score.scale.value_or(0), score.scale.has_value());
    line->add("softcap", score.softcap, score.softcap > 0);
    line->add("dropout", fmt::format("{} seed {} offset {}", score.dropout_p, score.dropout_seed, score.dropout_offset),
              score.dropout_p > 0);
    line->add("alibi", score.alibi_rank);
    line->add("bias", score.bias);
    line->add("sink", score.sink);
}

void add_cache(const CacheSpec& cache, Line* line) {
    line->add("page_size", cache.page_size);
    line->add("cache_batch_idx", cache.batch_idx);
    line->add("cache_seqlens", cache.lengths);
    line->add("new", cache.new_rows);
    line->add("ragged_new", cache.ragged_new);
    line->add("rotary",
              fmt::format("{}{}{}", cache.rotary_dim, cache.rotary_interleaved ? " interleaved" : "",
                          cache.rotary_f32 ? "" : " own type"),
              cache.rotary_dim > 0);
    line->add("rotary_seqlens", cache.rotary_seqlens);
}

}  // namespace

std::string to_string(const ProblemSpec& spec) {
    const SizesSpec& n = spec.sizes;
    Line line;
    line.text_ = fmt::format("{} b{} sq{} sk{} h{}/{} d{} dv{}", name_of(spec.op), n.batch, n.seqlen_q, n.seqlen_k,
                             n.heads_q, n.heads_kv, n.head_dim, n.head_dim_v);
    line.add("rows_q", spec.lengths.rows_q);
    line.add("rows_k", spec.lengths.rows_k);
    line.add("used_q", spec.lengths.used_q);
    line.add("used_k", spec.lengths.used_k);
    line.add("leftpad", spec.lengths.leftpad);
    line.add("spare", spec.lengths.spare_rows);
    line.add("bounds", spec.lengths.bounds);
    add_mask(spec.mask, &line);
    add_score(spec.score, &line);
    add_cache(spec.cache, &line);
    line.add("layout", name_of(spec.layout), spec.layout != Layout::kContiguous);
    line.add("output_layout", name_of(spec.output_layout), spec.output_layout != Layout::kContiguous);
    line.add("data", name_of(spec.data), spec.data != Data::kNormal);
    line.add("splits", spec.run.num_splits);
    line.add("threads", spec.run.num_threads);
    line.add("deterministic", spec.run.deterministic);
    line.add("batch_invariant", spec.run.batch_invariant);
    line.add("no_lse", !spec.run.lse);
    line.add("grad_lse", spec.run.grad_lse);
    return line.text_;
}

}  // namespace tilewise::conformance
