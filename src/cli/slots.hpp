// Every tensor of an attention call in one list, with what each of its axes counts, so that printing and slicing are loops.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tilewise/tilewise.hpp"

namespace tilewise::cli {

// Letters: b batch, q query, k key, h query head, g key-value head, n new key; '.' is never sliced.
struct Slot {
    const char* name;
    Tensor& (*of)(Attention&);
    const char*
        axes[2];  // by rank: the plain form, and the other one (ragged, or with a batch); null where there is none
};
std::span<const Slot> slots();

// "q  f32 (2, 128, 8, 64)", with strides where the tensor is not contiguous.
std::string to_text(const Tensor& tensor);
// One line a given tensor.
std::string tensors_text(const Attention& attention);

struct Range {
    int64_t begin = 0;
    int64_t count = 0;
};
// What to keep of a call; an axis without a range is kept whole. Heads are key-value heads, and the queries' follow.
struct Part {
    std::optional<Range> batch;
    std::optional<Range> heads_kv;
    std::optional<Range> rows;  // queries
    std::optional<Range> keys;
};
// The same call on a part of its tensors. The caller makes sure that the part can be computed alone (rows and keys
// move the mask's diagonal; a batch needs sequences that are not packed; dropout counts absolute heads and rows).
Attention part_of(const Attention& attention, const Part& part);

// Cuts a forward into at most `count` independent parts: whole sequences where they are not packed, then groups of heads. Dropout counts
// absolute heads and sequences, so a call with it stays whole.
std::vector<Part> parts_of(const Attention& attention, int64_t count);

// Sizes that several commands need.
struct CallSizes {
    int64_t batch = 0;
    int64_t heads = 0;
    int64_t heads_kv = 0;
    int64_t seqlen_q = 0;  // the longest sequence
    int64_t seqlen_k = 0;
    int64_t head_dim = 0;
    int64_t head_dim_v = 0;
    bool ragged = false;
};
CallSizes sizes_of(const Attention& attention);

}  // namespace tilewise::cli
