// A problem as command-line flags, shared by `plan`, `run` and `bench` (whose grid files use the same names as keys).
// The flags check only what the program itself has to understand; whether the problem makes sense is the library's to say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tilewise/tilewise.hpp"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's own
class App;
}

namespace tilewise::cli {

// Sizes; what is left out follows from its neighbour.
struct ShapeFlags {
    std::string op = "forward";
    int64_t batch = 1;
    std::optional<int64_t> seqlen_q;  // 1024; decode: the new tokens, or 1
    std::optional<int64_t> seqlen_k;  // keys that are attended to; seqlen_q, or 1024 where there are new tokens
    int64_t heads = 8;
    std::optional<int64_t> heads_kv;  // heads
    int64_t head_dim = 64;
    std::optional<int64_t> head_dim_v;  // head_dim
    std::string dtype = "f32";
    std::string layout = "bshd";  // order of the axes in memory
};

// Lengths of the sequences, and the cache.
struct LengthFlags {
    std::vector<int64_t> ragged;    // queries of each sequence, packed
    std::vector<int64_t> ragged_k;  // keys of each sequence; the same as `ragged`
    int64_t leftpad = 0;
    int64_t page_size = 0;
    std::optional<int64_t> new_tokens;
    int64_t rotary_dim = 0;
    bool rotary_interleaved = false;
};

struct MaskFlags {
    bool causal = false;
    std::vector<int64_t> window;  // left, right
    int64_t chunk = 0;
    int64_t block = 0;
    int64_t prefix = 0;
    bool top_left = false;
};

struct ScoreFlags {
    std::optional<float> scale;
    float softcap = 0;
    float dropout = 0;
    uint64_t seed = 0;
    uint64_t offset = 0;
};

// Optional tensors of a problem that is made up; `run` takes them from files instead.
struct TensorFlags {
    std::string alibi;      // "h" or "bh": its axes
    std::string bias;       // "bhqk", 1 for each axis that is broadcast
    std::string bool_mask;  // likewise
    bool sink = false;
    bool no_lse = false;
    bool grad_bias = false;
    bool grad_sink = false;
};

struct ExecFlags {
    int32_t splits = 0;
    int32_t threads = 0;
    std::string kernel;
    bool deterministic = false;
    bool batch_invariant = false;
};

struct ProblemFlags {
    ShapeFlags shape;
    LengthFlags lengths;
    MaskFlags mask;
    ScoreFlags score;
    TensorFlags tensors;
    ExecFlags exec;
};

void add_flags(CLI::App& app, MaskFlags& flags);
void add_flags(CLI::App& app, ScoreFlags& flags);
void add_flags(CLI::App& app, ExecFlags& flags);
void add_flags(CLI::App& app, ProblemFlags& flags);

// The options of a call. Throws UsageError for a window that is not two numbers.
Mask mask_of(const MaskFlags& flags);
Score score_of(const ScoreFlags& flags);
Options options_of(const ExecFlags& flags);

// Throw UsageError for an unknown name, listing those that are known.
Op op_of(const std::string& name);
const char* name_of(Op op);
DType dtype_of(const std::string& argument, const std::string& name);

// "cpu", "cuda:0", "recorded:h200", or just "h200". Throws UsageError for an unknown name, listing those that are known.
Device open_device(const std::string& name);

}  // namespace tilewise::cli
