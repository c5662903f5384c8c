// Valid problems that the tests of validate and check_values start from. Every size is different, so that a message that
// shows one cannot mean another:
//   batch 3, seqlen_q 5, seqlen_k 7, num_heads_q 6, num_heads_kv 2, head_dim 8, head_dim_v 10, total_q 9, total_k 11.
#pragma once

#include <algorithm>

#include "core/problem.hpp"

namespace tilewise::samples {

// A contiguous tensor like `tensor` with another size of one axis.
inline TensorDesc resized(TensorDesc tensor, int axis, int64_t size) {
    tensor.shape[static_cast<size_t>(axis)] = size;
    int64_t stride = 1;
    for (int i = tensor.rank - 1; i >= 0; --i) {
        tensor.stride[static_cast<size_t>(i)] = stride;
        stride *= std::max<int64_t>(tensor.dim(i), 1);
    }
    return tensor;
}

inline Problem forward() {
    Problem p;
    p.op = Op::kForward;
    p[Arg::kQ] = contiguous(DType::kBF16, {3, 5, 6, 8});
    p[Arg::kK] = contiguous(DType::kBF16, {3, 7, 2, 8});
    p[Arg::kV] = contiguous(DType::kBF16, {3, 7, 2, 10});
    p[Arg::kO] = contiguous(DType::kBF16, {3, 5, 6, 10});
    p[Arg::kLse] = contiguous(DType::kF32, {3, 6, 5});
    return p;
}

inline void make_ragged(Problem& p) {
    p[Arg::kQ] = contiguous(DType::kBF16, {9, 6, 8});
    p[Arg::kK] = contiguous(DType::kBF16, {11, 2, 8});
    p[Arg::kV] = contiguous(DType::kBF16, {11, 2, 10});
    p[Arg::kO] = contiguous(DType::kBF16, {9, 6, 10});
    p[Arg::kLse] = contiguous(DType::kF32, {6, 9});
    p[Arg::kCuSeqlensQ] = contiguous(DType::kI32, {4});
    p[Arg::kCuSeqlensK] = contiguous(DType::kI32, {4});
}

inline Problem ragged_forward() {
    Problem p = forward();
    make_ragged(p);
    return p;
}

// 13 pages of 4 rows; each sequence has up to 5 pages, 20 keys.
inline void make_paged(Problem& p) {
    p[Arg::kK] = contiguous(DType::kBF16, {13, 4, 2, 8});
    p[Arg::kV] = contiguous(DType::kBF16, {13, 4, 2, 10});
    p[Arg::kPageTable] = contiguous(DType::kI32, {3, 5});
}

inline Problem paged_forward() {
    Problem p = forward();
    make_paged(p);
    p[Arg::kSequsedK] = contiguous(DType::kI32, {3});
    return p;
}

// With every optional tensor of attention.
inline Problem full_forward() {
    Problem p = forward();
    for (const Arg arg : {Arg::kSequsedQ, Arg::kSequsedK, Arg::kLeftpadK, Arg::kPrefixLens})
        p[arg] = contiguous(DType::kI32, {3});
    p.mask.window_right = 0;
    p[Arg::kKeyBegin] = contiguous(DType::kI32, {3, 5});
    p[Arg::kKeyEnd] = contiguous(DType::kI32, {3, 5});
    p[Arg::kMask] = contiguous(DType::kBool, {3, 6, 5, 7});
    p[Arg::kBias] = contiguous(DType::kF32, {3, 6, 5, 7});
    p[Arg::kAlibiSlopes] = contiguous(DType::kF32, {3, 6});
    p[Arg::kSink] = contiguous(DType::kF32, {6});
    return p;
}

inline void add_gradients(Problem& p) {
    p.op = Op::kBackward;
    p[Arg::kGradO] = p[Arg::kO];
    p[Arg::kGradLse] = p[Arg::kLse];
    p[Arg::kGradQ] = p[Arg::kQ];
    p[Arg::kGradK] = p[Arg::kK];
    p[Arg::kGradV] = p[Arg::kV];
    if (p.has(Arg::kBias)) p[Arg::kGradBias] = p[Arg::kBias];
    if (p.has(Arg::kSink)) p[Arg::kGradSink] = p[Arg::kSink];
}

inline Problem backward() {
    Problem p = full_forward();
    add_gradients(p);
    return p;
}

inline Problem ragged_backward() {
    Problem p = ragged_forward();
    add_gradients(p);
    return p;
}

// A cache of 4 rows of 7 keys that takes 2 new keys a sequence, rotated by tables of 16 positions and rotary_dim 6.
inline void add_new_keys(Problem& p) {
    p[Arg::kK] = contiguous(DType::kBF16, {4, 7, 2, 8});
    p[Arg::kV] = contiguous(DType::kBF16, {4, 7, 2, 10});
    p[Arg::kCacheSeqlens] = contiguous(DType::kI32, {3});
    p[Arg::kCacheBatchIdx] = contiguous(DType::kI32, {3});
    p[Arg::kKNew] = contiguous(DType::kBF16, {3, 2, 2, 8});
    p[Arg::kVNew] = contiguous(DType::kBF16, {3, 2, 2, 10});
    p[Arg::kRotaryCos] = contiguous(DType::kF32, {16, 3});
    p[Arg::kRotarySin] = contiguous(DType::kF32, {16, 3});
    p[Arg::kRotarySeqlens] = contiguous(DType::kI32, {3});
}

inline Problem decode() {
    Problem p = forward();
    p.op = Op::kDecode;
    add_new_keys(p);
    p[Arg::kLeftpadK] = contiguous(DType::kI32, {3});
    return p;
}

inline Problem paged_decode() {
    Problem p = decode();
    make_paged(p);
    p[Arg::kPageTable] = contiguous(DType::kI32, {4, 5});
    return p;
}

inline Problem append() {
    Problem p;
    p.op = Op::kAppend;
    add_new_keys(p);
    return p;
}

inline Problem combine() {
    Problem p;
    p.op = Op::kCombine;
    p[Arg::kPartialO] = contiguous(DType::kF32, {4, 3, 5, 6, 10});
    p[Arg::kPartialLse] = contiguous(DType::kF32, {4, 3, 6, 5});
    p[Arg::kO] = contiguous(DType::kBF16, {3, 5, 6, 10});
    p[Arg::kLse] = contiguous(DType::kF32, {3, 6, 5});
    return p;
}

inline Problem ragged_combine() {
    Problem p = combine();
    p[Arg::kPartialO] = contiguous(DType::kF32, {4, 9, 6, 10});
    p[Arg::kPartialLse] = contiguous(DType::kF32, {4, 6, 9});
    p[Arg::kO] = contiguous(DType::kBF16, {9, 6, 10});
    p[Arg::kLse] = contiguous(DType::kF32, {6, 9});
    return p;
}

struct Sample {
    const char* name;
    Problem (*make)();
};
inline constexpr Sample kAll[] = {
    {"forward", forward},
    {"ragged_forward", ragged_forward},
    {"paged_forward", paged_forward},
    {"full_forward", full_forward},
    {"backward", backward},
    {"ragged_backward", ragged_backward},
    {"decode", decode},
    {"paged_decode", paged_decode},
    {"append", append},
    {"combine", combine},
    {"ragged_combine", ragged_combine},
};

}  // namespace tilewise::samples
