// What the caller asks for, without a pointer in it: hashable, printable, comparable, and all that a plan depends on besides
// the device. `sizes_of` reads the common sizes out of the shapes once.
#pragma once

#include <cstdint>
#include <string>

#include "core/tensor.hpp"
#include "math/cache_fault.hpp"
#include "math/mask.hpp"
#include "math/view.hpp"

namespace tilewise {

enum class Op : uint8_t { kForward, kBackward, kDecode, kAppend, kCombine };
const char* name_of(Op op);

struct ScoreSpec {
    float softmax_scale = 0.0f;
    bool has_softmax_scale = false;  // otherwise head_dim^-0.5
    float softcap = 0.0f;
    float dropout_p = 0.0f;
    uint64_t dropout_seed = 0;
    uint64_t dropout_offset = 0;
    bool operator==(const ScoreSpec&) const = default;
};

struct ExecSpec {
    bool deterministic = false;
    bool batch_invariant = false;
    bool rotary_interleaved = false;
    int32_t num_splits = 0;    // 0: the plan chooses
    int32_t num_threads = 0;   // CPU; 0: one a core
    int64_t max_seqlen_q = 0;  // upper bounds for ragged batches; 0: total rows
    int64_t max_seqlen_k = 0;
    std::string kernel;  // pins a registry row by name; empty: the plan chooses
    bool operator==(const ExecSpec&) const = default;
};

struct Problem {
    Op op = Op::kForward;
    PerArg<TensorDesc> tensors;
    MaskSpec mask;
    ScoreSpec score;
    ExecSpec exec;

    const TensorDesc& operator[](Arg arg) const { return tensors[arg]; }
    TensorDesc& operator[](Arg arg) { return tensors[arg]; }
    bool has(Arg arg) const { return tensors[arg].given(); }
    bool operator==(const Problem&) const = default;
};

Sizes sizes_of(const Problem& problem);
float softmax_scale_of(const Problem& problem);
// True when visibility depends on the position: causal, a window, a chunk, a block (which decides where rotary puts the queries).
bool is_positional(const MaskSpec& mask);

size_t hash_of(const Problem& problem);
// Several lines, one a given tensor and one a feature that is on.
std::string to_string(const Problem& problem);

}  // namespace tilewise
