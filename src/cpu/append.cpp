// Append to a cache, with rotary; see append.hpp. A task is one row of k_new or q with all its heads; a ragged row finds its sequence by
// bisection, so the number of tasks follows the rows and not sequences times the longest one.
#include "cpu/append.hpp"

#include <cstring>

#include "cpu/parallel.hpp"
#include "cpu/threads.hpp"
#include "cpu/view.hpp"
#include "math/rotary.hpp"

namespace tilewise::cpu {

namespace {

constexpr int64_t kElementsOfOneThread = 1 << 15;  // about 20 us of work, several times the waking of a thread

// fp32 arithmetic for every element type but f64.
template <class T> struct Cell {
    using Real = float;
    static float load(T x) { return Element<T>::load(x); }
    static T store(float x) { return Element<T>::store(x); }
};
template <> struct Cell<double> {
    using Real = double;
    static double load(double x) { return x; }
    static double store(double x) { return x; }
};

// cos and sin (positions, rotary_dim / 2).
struct Rotary {
    const void* cos = nullptr;
    const void* sin = nullptr;
    DType dtype = DType::kNone;
    int64_t cos_stride[2] = {0, 0};
    int64_t sin_stride[2] = {0, 0};
    int32_t dim = 0;  // 0: no rotation
    bool interleaved = false;
};

Rotary rotary_of(const Step& step, const Arguments& arguments) {
    const TensorDesc& cos = step.problem[Arg::kRotaryCos];
    const TensorDesc& sin = step.problem[Arg::kRotarySin];
    if (!cos.given()) return {};
    Rotary rotary;
    rotary.cos = pointer_of(step, arguments, Arg::kRotaryCos);
    rotary.sin = pointer_of(step, arguments, Arg::kRotarySin);
    rotary.dtype = cos.dtype;
    for (int axis = 0; axis < 2; ++axis) {
        rotary.cos_stride[axis] = stride_of(cos, axis);
        rotary.sin_stride[axis] = stride_of(sin, axis);
    }
    rotary.dim = static_cast<int32_t>(2 * cos.dim(1));
    rotary.interleaved = step.problem.exec.rotary_interleaved;
    return rotary;
}

// One head of one row: `from` and `to` have their own element strides.
template <class T> struct HeadRow {
    const T* from;
    int64_t from_stride;
    T* to;
    int64_t to_stride;
};

template <class T> void copy_head(const HeadRow<T>& row, int64_t begin, int64_t end) {
    if (row.from_stride == 1 && row.to_stride == 1) {
        if (end > begin) std::memcpy(row.to + begin, row.from + begin, static_cast<size_t>(end - begin) * sizeof(T));
        return;
    }
    for (int64_t i = begin; i < end; ++i) row.to[i * row.to_stride] = row.from[i * row.from_stride];
}

template <class T> void rotate_head(const Rotary& rotary, int64_t position, const HeadRow<T>& row) {
    using Real = typename Cell<T>::Real;
    for (int32_t t = 0; t < rotary.dim / 2; ++t) {
        const auto cos = static_cast<Real>(
            load_element(rotary.cos, rotary.dtype, position * rotary.cos_stride[0] + t * rotary.cos_stride[1]));
        const auto sin = static_cast<Real>(
            load_element(rotary.sin, rotary.dtype, position * rotary.sin_stride[0] + t * rotary.sin_stride[1]));
        const RotaryPair pair = rotary_pair(t, rotary.dim, rotary.interleaved);
        const Rotated<Real> rotated = rotate<Real>(Cell<T>::load(row.from[pair.first * row.from_stride]),
                                                   Cell<T>::load(row.from[pair.second * row.from_stride]), cos, sin);
        row.to[pair.first * row.to_stride] = Cell<T>::store(rotated.first);
        row.to[pair.second * row.to_stride] = Cell<T>::store(rotated.second);
    }
}

// A row of a tensor (batch, rows, ...) or (total_rows, ...), and the sequence and place in it that it belongs to.
struct NewRow {
    int64_t batch = -1;  // -1: of no sequence
    int64_t row = 0;     // within the sequence
    int64_t tensor_batch = 0;
    int64_t tensor_row = 0;
};

int64_t rows_of(const TensorDesc& tensor) { return tensor.rank == 3 ? tensor.dim(0) : tensor.dim(0) * tensor.dim(1); }

NewRow locate(const TensorDesc& tensor, const IntVector& cu_seqlens, int64_t num_sequences, int64_t index) {
    if (!cu_seqlens.given()) {
        const int64_t batch = index / tensor.dim(1), row = index % tensor.dim(1);
        return {batch, row, batch, row};
    }
    if (index < cu_seqlens[0] || index >= cu_seqlens[num_sequences]) return {};
    // The last sequence that starts at or before the row; empty ones before it start there too.
    int64_t low = 0, high = num_sequences;
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (cu_seqlens[middle] <= index)
            low = middle;
        else
            high = middle;
    }
    return {low, index - cu_seqlens[low], 0, index};
}

struct Append {
    const Step* step = nullptr;
    View view;
    Rotary rotary;
    HeadTensor k_new, v_new, q_rotated;
    IntVector cu_seqlens_k_new, cache_seqlens, rotary_seqlens;

    int64_t first_position(int64_t batch) const {
        return rotary_seqlens.given() ? rotary_seqlens[batch] : cache_seqlens[batch];
    }
    int64_t num_new(int64_t batch) const {
        if (cu_seqlens_k_new.given()) return cu_seqlens_k_new[batch + 1] - cu_seqlens_k_new[batch];
        return step->problem[Arg::kKNew].dim(1);
    }
    // Place of a cache row, counted from the cache's first one: here left padding is like any row.
    KeyPlace cache_place(int64_t batch, int64_t row) const {
        Sequence cache;
        const IntVector& index = view.sequences.cache_batch_idx;
        cache.k_batch = index.given() ? index[batch] : batch;
        return view.place_of(cache, row);
    }

    template <class T> void append_row(int64_t index) const;
    template <class T> void rotate_query(int64_t index) const;
};

Append append_of(const Step& step, const Arguments& arguments) {
    Append append;
    append.step = &step;
    append.view = make_view(step, arguments);
    append.rotary = rotary_of(step, arguments);
    append.k_new = head_tensor(step, arguments, Arg::kKNew);
    append.v_new = head_tensor(step, arguments, Arg::kVNew);
    append.q_rotated = head_tensor(step, arguments, Arg::kQRotated);
    append.cu_seqlens_k_new = int_vector(step, arguments, Arg::kCuSeqlensKNew);
    append.cache_seqlens = int_vector(step, arguments, Arg::kCacheSeqlens);
    append.rotary_seqlens = int_vector(step, arguments, Arg::kRotarySeqlens);
    return append;
}

template <class T> void Append::append_row(int64_t index) const {
    const NewRow source = locate(step->problem[Arg::kKNew], cu_seqlens_k_new, step->sizes.batch, index);
    if (source.batch < 0) return;
    const KeyPlace place = cache_place(source.batch, cache_seqlens[source.batch] + source.row);
    for (int64_t head = 0; head < step->sizes.num_heads_kv; ++head) {
        const HeadRow<T> key{
            static_cast<const T*>(k_new.data) + k_new.offset(source.tensor_batch, source.tensor_row, head),
            k_new.dim_stride, static_cast<T*>(view.k.data) + view.k.offset(place.page, place.slot, head),
            view.k.dim_stride};
        rotate_head(rotary, first_position(source.batch) + source.row, key);
        copy_head(key, rotary.dim, step->sizes.head_dim);
        copy_head<T>({static_cast<const T*>(v_new.data) + v_new.offset(source.tensor_batch, source.tensor_row, head),
                      v_new.dim_stride, static_cast<T*>(view.v.data) + view.v.offset(place.page, place.slot, head),
                      view.v.dim_stride},
                     0, step->sizes.head_dim_v);
    }
}

template <class T> void Append::rotate_query(int64_t index) const {
    const NewRow source = locate(step->problem[Arg::kQ], view.sequences.cu_seqlens_q, step->sizes.batch, index);
    if (source.batch < 0) return;
    const int64_t position =
        rotary_query_position(first_position(source.batch), source.row, is_positional(step->problem.mask));
    for (int64_t head = 0; head < step->sizes.num_heads_q; ++head) {
        const HeadRow<T> query{
            static_cast<const T*>(view.q.data) + view.q.offset(source.tensor_batch, source.tensor_row, head),
            view.q.dim_stride,
            static_cast<T*>(q_rotated.data) + q_rotated.offset(source.tensor_batch, source.tensor_row, head),
            q_rotated.dim_stride};
        rotate_head(rotary, position, query);
        copy_head(query, rotary.dim, step->sizes.head_dim);
    }
}

template <class T> Status run(const Append& append, const Arguments& arguments) {
    const Step& step = *append.step;
    parallel_for(rows_of(step.problem[Arg::kKNew]), step.num_threads,
                 [&](int64_t row, int) noexcept { append.append_row<T>(row); });
    if (append.q_rotated.given())
        parallel_for(rows_of(step.problem[Arg::kQ]), step.num_threads,
                     [&](int64_t row, int) noexcept { append.rotate_query<T>(row); });
    if (step.problem.has(Arg::kTotalSeqlens)) {
        auto* totals = static_cast<int32_t*>(pointer_of(step, arguments, Arg::kTotalSeqlens));
        for (int64_t batch = 0; batch < step.sizes.batch; ++batch)
            totals[batch] = static_cast<int32_t>(append.cache_seqlens[batch] + append.num_new(batch));
    }
    return {};
}

int64_t elements_of(const Problem& problem) {
    int64_t count = 0;
    for (const Arg arg : {Arg::kKNew, Arg::kVNew, Arg::kQRotated})
        if (problem.has(arg)) count += problem[arg].num_elements();
    return count;
}

}  // namespace

void layout_append(Step& step, const DeviceInfo& device) {
    const int64_t useful = ceil_div(elements_of(step.problem), kElementsOfOneThread);
    step.num_threads = threads_up_to(useful, step, device);
}

double cost_append(const Step& step, const DeviceInfo&) {
    return 1e-6 + 5e-10 * static_cast<double>(elements_of(step.problem)) / static_cast<double>(step.num_threads);
}

Status launch_append(const Step& step, const Arguments& arguments) {
    const Append append = append_of(step, arguments);
    switch (step.problem[Arg::kKNew].dtype) {
    case DType::kF32: return run<float>(append, arguments);
    case DType::kF16: return run<F16>(append, arguments);
    case DType::kBF16: return run<BF16>(append, arguments);
    case DType::kF64: return run<double>(append, arguments);
    default: return {StatusCode::kInternal, "append: the plan holds an element type that no append kernel has"};
    }
}

}  // namespace tilewise::cpu
