// The rows that one unit of work sees: the queries of one key-value head of one sequence, with the query heads that
// share it packed together. Packed row r is query r / num_heads of head first_head_q + r % num_heads, so a block of
// rows spans few queries (tight mask ranges) and one packed tile of keys serves the whole group. Everything here turns
// rows and keys into addresses, intervals and per-row numbers; the tile functions know none of it.
#pragma once

#include "cpu/simd/tile_ops.hpp"
#include "cpu/view.hpp"

namespace tilewise::cpu {

constexpr double kLog2E = 1.44269504088896340736;

struct RowGroup {
    const View* view = nullptr;
    int64_t batch = 0;
    int64_t head_kv = 0;
    int64_t first_head_q = 0;
    int64_t num_heads = 1;
    Sequence sequence;
    IntervalMask mask;

    int64_t num_rows() const { return int64_t{sequence.seqlen_q} * num_heads; }
    int32_t query_of(int64_t row) const { return static_cast<int32_t>(row / num_heads); }
    int64_t head_of(int64_t row) const { return first_head_q + row % num_heads; }
};

// All query heads of a key-value head, or one of them.
RowGroup group_of(const View& view, int64_t batch, int64_t head_kv);
RowGroup group_of_head(const View& view, int64_t batch, int64_t head_q);

// Part of a score matrix: rows [first_row, first_row + num_rows) x keys [first_key, first_key + num_keys).
struct TileSpan {
    int64_t first_row = 0;
    int num_rows = 0;
    int32_t first_key = 0;
    int num_keys = 0;
};

// Addresses of `count` rows of a (batch, row, head, dim) tensor; null for rows past the group's last one.
void query_addresses(const RowGroup& group, const HeadTensor& tensor, int64_t first_row, int count, void** rows);
// Addresses of keys first_key ... in k, v or their gradients, through the page table where there is one.
void key_addresses(const RowGroup& group, const HeadTensor& tensor, int32_t first_key, int count, void** rows);

// The keys that each of `count` rows sees by position; empty for rows past the group's last one. Returns their hull.
Interval row_intervals(const RowGroup& group, int64_t first_row, int count, Interval* intervals);
// Hull of intervals that are not empty; {0, 0} if all are.
Interval hull_of(const Interval* intervals, int count);
// Intervals relative to first_key, cut to num_keys.
void intervals_in_tile(const Interval* intervals, const TileSpan& span, Interval* visible);

inline RowSource source_of(const HeadTensor& tensor, const void* const* rows, int num_rows, int64_t num_columns) {
    return {rows, tensor.dim_stride, tensor.dtype, num_rows, static_cast<int>(num_columns)};
}
inline RowTarget target_of(const HeadTensor& tensor, void* const* rows, int num_rows, int64_t num_columns) {
    return {rows, tensor.dim_stride, tensor.dtype, num_rows, static_cast<int>(num_columns)};
}

// Hands out aligned pieces of one block of memory. Run on a null base it only counts, so the code that places a
// kernel's scratch is also the code that sizes it.
class Carver {
public:
    explicit Carver(unsigned char* base = nullptr) : base_(base) {}
    template <class T> T* take(int64_t count) {
        const int64_t offset = used_;
        used_ = round_up(used_ + count * static_cast<int64_t>(sizeof(T)), 64);
        return base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + offset);
    }
    int64_t bytes() const { return used_; }

private:
    unsigned char* base_;
    int64_t used_ = 0;
};

// Row strides of scratch tiles: whole vector pairs, plus one cache line so that equal columns of neighbouring rows do
// not fall into the same set of the cache.
inline int64_t tile_stride(int64_t columns, const TileOps& ops) { return round_up(columns, 2 * ops.width) + 16; }
// Keys of a tile, for a register tile of this width: K and V of a tile fill about a quarter of the second-level cache.
inline int32_t keys_of_tile(const Sizes& sizes, const TileOps& ops) {
    const int64_t keys = ops.width >= 16 && sizes.head_dim + sizes.head_dim_v <= 256 ? 256 : 128;
    // A shorter capacity has one tile either way, so this changes no result.
    return static_cast<int32_t>(min_of(keys, round_up(max_of<int64_t>(sizes.max_seqlen_k, 1), 2 * ops.width)));
}

}  // namespace tilewise::cpu
