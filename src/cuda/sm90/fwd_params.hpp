// What a launch of the forward hands to its kernel.
#pragma once

#include <cuda.h>

#include "cuda/common/params.hpp"

namespace tilewise::cuda::sm90 {

// The order in which persistent blocks take row tiles. Sections of heads; in a section, tiles of equal number of all its heads are neighbours.
struct Schedule {
    uint64_t* ticket = nullptr;  // see work.cuh; null: each block takes every gridDim.x-th tile
    uint32_t total = 0;          // row tiles of the launch
    uint32_t section_heads = 1;
    uint32_t final_heads = 0;  // the last heads are one larger section, so that a launch ends on many short tiles
    bool longest_first = false;
};

struct BulkForwardParams {
    // (column, head, row, batch); boxes: panels of a row tile, of a key tile, of a warpgroup's rows. o: all zeros where it cannot be a map.
    CUtensorMap q, k, v, o;
    ForwardParams base;
    Schedule schedule;
    float score_slack = 0.0f;  // by which a row's largest raw score may pass its reference
    int64_t mapped_keys = 0;   // rows of k's map: keys from there on are zeros without help
    bool bulk_keys = true;     // tiles of keys are boxes
    bool bulk_output = false;
    bool has_modifiers = false;
};

}  // namespace tilewise::cuda::sm90
