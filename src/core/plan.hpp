// A plan: which kernels a problem runs on a device, with which tiles, in how much workspace, and why every other kernel was
// refused. A pure function of (Problem, DeviceInfo, registry). Launch packs parameters and runs; it decides and allocates nothing.
//
// A decode is two steps: append (new keys into the cache; rotated queries and new lengths into the workspace) and a plain forward
// that reads those. So no attention kernel knows of appending or rotary.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/device.hpp"
#include "core/problem.hpp"
#include "core/status.hpp"

namespace tilewise {

struct KernelRow;
class Registry;

// The pointers of a launch. `workspace` is at least the plan's bytes, aligned to kWorkspaceAlignment.
constexpr int64_t kWorkspaceAlignment = 64;
struct Arguments {
    PerArg<void*> pointers;
    void* workspace = nullptr;
    int64_t workspace_bytes = 0;
    void* stream = nullptr;  // CUDA stream of the caller; unused on a CPU
    int32_t device = 0;      // index of the plan's device; launch sets it

    template <class T> T* get(Arg arg) const { return static_cast<T*>(pointers[arg]); }
    template <class T> T* at(int64_t offset) const {
        return reinterpret_cast<T*>(static_cast<unsigned char*>(workspace) + offset);
    }
};

struct Tiling {
    int32_t tile_m = 0;  // query rows of a tile (of the GQA group packed together)
    int32_t tile_n = 0;  // keys of a tile
    int32_t num_stages = 0;
    int32_t packed_heads = 1;    // CUDA: query heads whose rows lie in one tile: 1, or the GQA ratio
    int32_t min_split_keys = 0;  // CUDA decode: a sequence with fewer keys a split uses fewer splits
    int32_t num_blocks = 0;  // CUDA: of a launch whose blocks take row tiles one after the other; 0: a block a row tile
    bool clustered = false;  // CUDA decode: the splits of a row tile are a cluster of blocks, which merges them
    int64_t heads_per_section =
        0;  // CUDA: (sequence, head) pairs whose tiles run side by side, so that their keys share the L2 cache
};

// Named pieces of the workspace, laid out by WorkspaceLayout (workspace.hpp).
struct WorkspaceBlock {
    std::string name;
    int64_t offset = 0;
    int64_t bytes = 0;
};

struct Step {
    const KernelRow* row = nullptr;
    Problem problem;  // as this kernel sees it
    Sizes sizes;
    Tiling tiling;
    int32_t num_splits = 1;
    int32_t num_threads = 1;
    int32_t num_chunks = 1;  // backward: key chunks with an own dQ accumulator
    PerArg<int64_t>
        redirected;  // 1 + workspace offset where a tensor of this step lies in the workspace; 0: the caller's pointer
    int64_t workspace_base = 0;  // bytes that belong to the whole plan; this step's own blocks lie behind them
    std::vector<WorkspaceBlock> workspace;
    // Offset of a named block; the block must exist.
    int64_t block(const char* name) const;
};

struct Refusal {
    std::string kernel;
    std::string reason;
};

struct Plan {
    Problem problem;
    DeviceInfo device;
    std::vector<Step> steps;
    std::vector<WorkspaceBlock>
        shared_blocks;  // what one step leaves for a later one; they lie before every step's own blocks
    int64_t workspace_bytes = 0;
    std::vector<Refusal> refused;
    std::vector<std::string> notes;  // what a user would want to know: a slower path and its cause
    double predicted_seconds = 0;
};

// Validates, chooses and lays out. On kUnsupported the message lists each kernel of the device's kind with its reason, and
// `plan->refused` holds them all.
Status make_plan(const Problem& problem, const DeviceInfo& device, const Registry& registry, Plan* plan);
// Checks pointers, workspace and device, then runs the steps.
Status launch(const Plan& plan, const Arguments& arguments);

std::string to_text(const Plan& plan);
std::string to_json(const Plan& plan);

}  // namespace tilewise
