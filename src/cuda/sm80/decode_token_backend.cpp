// The host side of decode_token.cuh; see decode_token_backend.hpp.
#include "cuda/sm80/decode_token_backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "cuda/shared/parts.hpp"

namespace tilewise::cuda::sm80 {

namespace {

// The kernel counts rows and multiplies them by their distance in 32 bits.
constexpr int64_t kMostRows = int64_t{1} << 31;
constexpr int64_t kMostRowElements = int64_t{1} << 30;

// From one page to the next, if that is a whole number of rows; else 0. Where there is one page, or one row in each, any distance is.
int64_t page_rows_of(const TensorDesc& t) {
    if (t.dim(0) <= 1 || t.dim(1) <= 1) return 1;
    return t.step(1) > 0 && t.step(0) % t.step(1) == 0 ? t.step(0) / t.step(1) : 0;
}

std::string row_refusal(const Problem& problem, Arg arg) {
    const TensorDesc& t = problem[arg];
    const bool pages_of_one = problem.has(Arg::kPageTable) && t.dim(1) == 1;
    const int64_t distance = t.step(pages_of_one ? 0 : t.rank - 3);
    if (distance < kMostRowElements) return {};
    return fmt::format("{}: rows {} elements apart; it serves less than {}", name_of(arg), distance, kMostRowElements);
}

std::string page_refusal(const Problem& problem) {
    const TensorDesc &k = problem[Arg::kK], &v = problem[Arg::kV];
    const int64_t rows = page_rows_of(k);
    if (rows > 0 && rows == page_rows_of(v) && rows * k.dim(0) <= kMostRows) return {};
    return fmt::format(
        "k, v: {} pages {} and {} elements apart, their rows {} and {}; from page to page it needs the "
        "same whole number of rows, at most {} over all pages",
        k.dim(0), k.step(0), v.step(0), k.step(1), v.step(1), kMostRows);
}

std::string mask_refusal(const Problem& problem) {
    for (const Arg arg : {Arg::kPrefixLens, Arg::kKeyBegin, Arg::kKeyEnd})
        if (problem.has(arg)) return fmt::format("{}: it takes the keys from lengths and a window", name_of(arg));
    const MaskSpec& mask = problem.mask;
    if (mask.chunk > 0) return "chunk: it takes the keys from lengths and a window";
    const bool is_limited = mask.window_left >= 0 || mask.window_right >= 0 || mask.block > 0;
    if (mask.top_left && is_limited) return "diagonal: top_left; its query is the last of its sequence";
    return {};
}

// Of `count` columns from `first` on.
TokenKeys keys_of(const ForwardParams& params, const HeadTensor& t, int32_t first, int32_t count) {
    const bool paged = params.view.pages.data != nullptr;
    const bool pages_of_one = paged && t.row_stride == 0;
    TokenKeys keys;
    keys.data = static_cast<const char*>(t.data) + first * 2;
    keys.batch_bytes = paged ? 0 : t.batch_stride * 2;
    keys.head_bytes = t.head_stride * 2;
    keys.row_bytes = static_cast<uint32_t>((pages_of_one ? t.batch_stride : t.row_stride) * 2);
    keys.num_columns = count;
    return keys;
}

TokenLengths lengths_of(const AttentionView& view) {
    const SequenceTable& s = view.sequences;
    const MaskSpec& mask = view.visibility.positional;
    TokenLengths lengths;
    lengths.seqlen_k = static_cast<int32_t>(s.seqlen_k);
    lengths.window_left = mask.prefix > 0 ? kUnlimited : mask.window_left;
    lengths.vary = s.cu_seqlens_q.given() || s.cu_seqlens_k.given() || s.seqused_q.given() || s.seqused_k.given() ||
                   s.leftpad_k.given() || s.cache_batch_idx.given();
    lengths.last_cache_row =
        static_cast<int32_t>(std::min<int64_t>(s.cache_rows - 1, std::numeric_limits<int32_t>::max()));
    lengths.cu_seqlens_q = s.cu_seqlens_q;
    lengths.cu_seqlens_k = s.cu_seqlens_k;
    lengths.seqused_q = s.seqused_q;
    lengths.seqused_k = s.seqused_k;
    lengths.leftpad_k = s.leftpad_k;
    lengths.cache_batch_idx = s.cache_batch_idx;
    return lengths;
}

TokenPages pages_of(const AttentionView& view) {
    TokenPages pages;
    pages.data = view.pages.data;
    pages.row_stride = view.pages.row_stride;
    pages.page_stride = view.pages.page_stride;
    pages.page_size = Divisor::of(view.pages.page_size);
    pages.page_rows = view.k.row_stride > 0 ? static_cast<uint32_t>(view.k.batch_stride / view.k.row_stride) : 1;
    pages.last_page = view.pages.last_page;
    return pages;
}

TokenRows rows_of(const ForwardParams& params) {
    const AttentionView& view = params.view;
    const bool ragged = view.sequences.cu_seqlens_q.given();
    const int32_t first = params.dims.first_column_v;
    TokenRows rows;
    rows.q = static_cast<const char*>(view.q.data);
    rows.o = static_cast<char*>(view.o.data) + first * 2;
    rows.lse = first == 0 ? static_cast<float*>(view.lse.data) : nullptr;
    rows.sink = view.score.sink.data;
    rows.q_row_bytes = (ragged ? view.q.row_stride : view.q.batch_stride) * 2;
    rows.q_head_bytes = view.q.head_stride * 2;
    rows.o_row_bytes = (ragged ? view.o.row_stride : view.o.batch_stride) * 2;
    rows.o_head_bytes = view.o.head_stride * 2;
    rows.lse_row = ragged ? view.lse.row_stride : view.lse.batch_stride;
    rows.lse_head = view.lse.head_stride;
    rows.sink_stride = view.score.sink.head_stride;
    return rows;
}

}  // namespace

std::string token_refusal(const Problem& problem) {
    if (const int64_t queries = sizes_of(problem).max_seqlen_q; queries != 1)
        return fmt::format("q: {} queries a sequence; it serves one", queries);
    if (const char* modifier = modifier_of(problem)) return fmt::format("{}: it only scales scores", modifier);
    if (std::string reason = mask_refusal(problem); !reason.empty()) return reason;
    for (const Arg arg : {Arg::kQ, Arg::kK, Arg::kV, Arg::kO})
        if (!allows_vectors(problem[arg])) return fmt::format("{}: its rows allow no 16-byte accesses", name_of(arg));
    for (const Arg arg : {Arg::kK, Arg::kV})
        if (std::string reason = row_refusal(problem, arg); !reason.empty()) return reason;
    return problem.has(Arg::kPageTable) ? page_refusal(problem) : std::string();
}

TokenParams token_params_of(const ForwardParams& params, int32_t unit_keys, bool clustered) {
    const TileMap& tiles = params.tiles;
    const HeadDims& dims = params.dims;
    TokenParams token;
    token.work.blocks =
        Divisor::of(clustered ? tiles.num_splits : tiles.num_sequences * tiles.num_heads * tiles.num_tiles);
    token.work.tiles = Divisor::of(tiles.num_tiles);
    token.work.heads_kv = Divisor::of(tiles.num_heads);
    token.work.splits = Divisor::of(tiles.num_splits);
    token.work.min_split = Divisor::of(ceil_div(params.partial.min_split_keys, unit_keys));
    token.work.gqa_ratio = tiles.gqa_ratio;
    token.work.clustered = clustered;
    token.work.once = tiles.num_tiles == 1;
    token.lengths = lengths_of(params.view);
    token.k = keys_of(params, params.view.k, 0, dims.head_dim);
    token.v = keys_of(params, params.view.v, dims.first_column_v, dims.head_dim_v);
    token.pages = pages_of(params.view);
    token.score_scale = params.score_scale;
    token.rows = rows_of(params);
    if (tiles.num_splits > 1)
        token.parts = {params.partial.o + dims.first_column_v,
                       params.partial.lse,
                       params.partial.counters,
                       params.partial.num_rows,
                       static_cast<int32_t>(params.view.sizes.head_dim_v),
                       dims.first_column_v == 0};
    return token;
}

}  // namespace tilewise::cuda::sm80
