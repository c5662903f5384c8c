// Rows and keys to addresses and intervals; see tiled_rows.hpp.
#include "cpu/tiled_rows.hpp"

namespace tilewise::cpu {

namespace {

RowGroup make_group(const View& view, int64_t batch, int64_t first_head_q, int64_t num_heads) {
    RowGroup group;
    group.view = &view;
    group.batch = batch;
    group.head_kv = first_head_q / view.sizes.gqa_ratio();
    group.first_head_q = first_head_q;
    group.num_heads = num_heads;
    group.sequence = resolve_sequence(view.sequences, batch);
    group.mask = view.mask_of(batch, group.sequence);
    return group;
}

void* address(const HeadTensor& tensor, int64_t offset) {
    return static_cast<unsigned char*>(tensor.data) + offset * size_of(tensor.dtype);
}

}  // namespace

RowGroup group_of(const View& view, int64_t batch, int64_t head_kv) {
    const int64_t ratio = view.sizes.gqa_ratio();
    return make_group(view, batch, head_kv * ratio, ratio);
}

RowGroup group_of_head(const View& view, int64_t batch, int64_t head_q) { return make_group(view, batch, head_q, 1); }

void query_addresses(const RowGroup& group, const HeadTensor& tensor, int64_t first_row, int count, void** rows) {
    const Sequence& s = group.sequence;
    for (int i = 0; i < count; ++i) {
        const int64_t row = first_row + i;
        const bool exists = row < group.num_rows();
        rows[i] = exists ? address(tensor, tensor.offset(s.q_batch, s.q_row + group.query_of(row), group.head_of(row)))
                         : nullptr;
    }
}

void key_addresses(const RowGroup& group, const HeadTensor& tensor, int32_t first_key, int count, void** rows) {
    if (group.view->pages.data == nullptr) {
        const KeyPlace place = group.view->place_of(group.sequence, first_key);
        auto* row = static_cast<unsigned char*>(address(tensor, tensor.offset(place.page, place.slot, group.head_kv)));
        for (int i = 0; i < count; ++i) rows[i] = row + i * tensor.row_stride * size_of(tensor.dtype);
        return;
    }
    for (int i = 0; i < count; ++i) {
        const KeyPlace place = group.view->place_of(group.sequence, int64_t{first_key} + i);
        rows[i] = address(tensor, tensor.offset(place.page, place.slot, group.head_kv));
    }
}

Interval row_intervals(const RowGroup& group, int64_t first_row, int count, Interval* intervals) {
    int32_t query = -1;
    Interval keys;
    for (int i = 0; i < count; ++i) {
        const int64_t row = first_row + i;
        if (row >= group.num_rows()) {
            intervals[i] = {};
            continue;
        }
        if (group.query_of(row) != query) {
            query = group.query_of(row);
            keys = group.view->keys_of(group.mask, group.batch, group.sequence, query);
        }
        intervals[i] = keys;
    }
    return hull_of(intervals, count);
}

Interval hull_of(const Interval* intervals, int count) {
    Interval hull;
    for (int i = 0; i < count; ++i) {
        if (is_empty(intervals[i])) continue;
        if (is_empty(hull)) hull = intervals[i];
        hull = {min_of(hull.begin, intervals[i].begin), max_of(hull.end, intervals[i].end)};
    }
    return hull;
}

void intervals_in_tile(const Interval* intervals, const TileSpan& span, Interval* visible) {
    for (int i = 0; i < span.num_rows; ++i) {
        // Differences, not sums: first_key + num_keys may pass the longest sequence.
        const int32_t begin = clamp_to(intervals[i].begin - span.first_key, 0, span.num_keys);
        visible[i] = {begin, clamp_to(intervals[i].end - span.first_key, begin, span.num_keys)};
    }
}

}  // namespace tilewise::cpu
