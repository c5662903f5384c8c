// Every tensor of a call as an enumeration, so that building, copying, comparing and guarding tensors are loops.
#pragma once

#include "tilewise/tilewise.hpp"

namespace tilewise::conformance {

enum class Slot {
    kQ,
    kK,
    kV,
    kO,
    kLse,
    kCuSeqlensQ,
    kCuSeqlensK,
    kSequsedQ,
    kSequsedK,
    kLeftpadK,
    kPrefixLens,
    kMask,
    kKeyBegin,
    kKeyEnd,
    kAlibiSlopes,
    kBias,
    kSink,
    kCacheSeqlens,
    kCacheBatchIdx,
    kPageTable,
    kKNew,
    kVNew,
    kCuSeqlensKNew,
    kRotaryCos,
    kRotarySin,
    kRotarySeqlens,
    kGradO,
    kGradLse,
    kGradQ,
    kGradK,
    kGradV,
    kGradBias,
    kGradSink,
    kCount
};

// The caller's name of the argument, as in tilewise.h and in the library's messages.
const char* name_of(Slot slot);
Tensor& tensor_of(Attention& attention, Slot slot);

}  // namespace tilewise::conformance
