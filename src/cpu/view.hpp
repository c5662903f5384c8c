// A launch as the CPU kernels see it: every tensor with named strides, every length resolved, pages looked up. Built once a launch
// from (Step, Arguments) and read by all threads; both CPU implementations start from it.
//
// Tensors keep their element type here (void pointers with strides in elements); who reads them knows or asks the type.
#pragma once

#include "core/plan.hpp"
#include "math/mask.hpp"
#include "math/paging.hpp"
#include "math/philox.hpp"
#include "math/score.hpp"
#include "math/sequence.hpp"

namespace tilewise::cpu {

// q, k, v, o and their gradients: (batch, row, head, dim); ragged: batch stride 0; paged: (page, slot, head, dim).
struct HeadTensor {
    void* data = nullptr;
    DType dtype = DType::kNone;
    int64_t batch_stride = 0;
    int64_t row_stride = 0;
    int64_t head_stride = 0;
    int64_t dim_stride = 0;
    bool given() const { return data != nullptr; }
    int64_t offset(int64_t batch, int64_t row, int64_t head) const {
        return batch * batch_stride + row * row_stride + head * head_stride;
    }
};

// lse and its gradient: (batch, head, row), f32 (f64 in the reference); ragged: batch stride 0.
struct RowTensor {
    void* data = nullptr;
    DType dtype = DType::kNone;
    int64_t batch_stride = 0;
    int64_t head_stride = 0;
    int64_t row_stride = 0;
    bool given() const { return data != nullptr; }
    int64_t offset(int64_t batch, int64_t head, int64_t row) const {
        return batch * batch_stride + head * head_stride + row * row_stride;
    }
};

// bias, its gradient and the boolean mask: (batch, head, row, key), stride 0 where broadcast (size 1 included).
struct PairTensor {
    void* data = nullptr;
    DType dtype = DType::kNone;
    int64_t batch_stride = 0;
    int64_t head_stride = 0;
    int64_t row_stride = 0;
    int64_t key_stride = 0;
    bool given() const { return data != nullptr; }
    int64_t offset(int64_t batch, int64_t head, int64_t row, int64_t key) const {
        return batch * batch_stride + head * head_stride + row * row_stride + key * key_stride;
    }
};

// int32 (batch, row) or (total rows): explicit key intervals.
struct RowIntTensor {
    const int32_t* data = nullptr;
    int64_t batch_stride = 0;
    int64_t row_stride = 0;
    bool given() const { return data != nullptr; }
    int32_t at(int64_t batch, int64_t row) const { return data[batch * batch_stride + row * row_stride]; }
};

// What hides keys besides position: a flag a (row, key) pair, and explicit intervals [key_begin, key_end) of the rows.
struct Visibility {
    PairTensor mask;
    RowIntTensor key_begin, key_end;
};

struct PageTable {
    const int32_t* data = nullptr;  // (rows, max_pages); null: not paged
    int64_t row_stride = 0;
    int64_t page_stride = 0;
    int64_t page_size = 0;
};

struct Dropout {
    PhiloxKey key;
    uint32_t threshold = 0;   // 0: no dropout
    float keep_scale = 1.0f;  // 1 / (1 - dropout_p)
};

// What is launched; both live as long as the launch that made the view.
struct Launch {
    const Step* step = nullptr;
    const Arguments* arguments = nullptr;
};

struct View {
    Sizes sizes;
    SequenceTable sequences;
    PageTable pages;
    HeadTensor q, k, v, o;
    RowTensor lse;
    PairTensor bias;
    Visibility visibility;
    Dropout dropout;
    Launch launch;

    // Place of key `key` (counted from the first valid one) of a sequence in k and v.
    KeyPlace place_of(const Sequence& s, int64_t key) const {
        const int64_t row = s.first_key + key;
        if (pages.data == nullptr) return {s.k_batch, row};
        return paged_key(pages.data + s.k_batch * pages.row_stride, pages.page_stride, pages.page_size, row);
    }
    // The positional mask of one sequence, its own prefix included.
    IntervalMask mask_of(int64_t batch, const Sequence& s) const;
    // Keys that a row sees by position and by key_begin, key_end; the boolean mask comes on top.
    Interval keys_of(const IntervalMask& interval_mask, int64_t batch, const Sequence& s, int32_t row) const;
    // False where the boolean mask hides the key; true without one.
    bool mask_allows(int64_t batch, int64_t head_q, int64_t row, int64_t key) const;
    ScoreModifier modifier_of(int64_t batch, int64_t head_q, const Sequence& s) const;
    // Sink of a query head; -inf without one.
    float sink_of(int64_t head_q) const;
};

View make_view(const Step& step, const Arguments& arguments);
HeadTensor head_tensor(const Step& step, const Arguments& arguments, Arg arg);
RowTensor row_tensor(const Step& step, const Arguments& arguments, Arg arg);
PairTensor pair_tensor(const Step& step, const Arguments& arguments, Arg arg);
IntVector int_vector(const Step& step, const Arguments& arguments, Arg arg);
// The pointer of a tensor for this step: the caller's, or its place in the workspace.
void* pointer_of(const Step& step, const Arguments& arguments, Arg arg);

// One element as double and back (rounded once), for code where speed does not matter.
double load_element(const void* data, DType dtype, int64_t offset);
void store_element(void* data, DType dtype, int64_t offset, double value);

}  // namespace tilewise::cpu
