// Problems that validate accepts: empty sizes, every combination of dense, ragged and paged, odd strides; and the hint that a valid
// problem gets when its layout looks swapped.
#include <cstdint>

#include "rule_case.hpp"

namespace tilewise {
namespace {

using samples::resized;

struct Variant {
    const char* name;
    Problem (*make)();
    void (*change)(Problem&);
};

const Variant kVariants[] = {
    {"empty batch", samples::forward,
     [](Problem& p) {
         for (const Arg arg : {Arg::kQ, Arg::kK, Arg::kV, Arg::kO, Arg::kLse}) p[arg] = resized(p[arg], 0, 0);
     }},
    {"no queries", samples::forward,
     [](Problem& p) {
         for (const Arg arg : {Arg::kQ, Arg::kO}) p[arg] = resized(p[arg], 1, 0);
         p[Arg::kLse] = resized(p[Arg::kLse], 2, 0);
     }},
    {"no keys", samples::forward,
     [](Problem& p) {
         for (const Arg arg : {Arg::kK, Arg::kV}) p[arg] = resized(p[arg], 1, 0);
     }},
    {"no pages", samples::paged_forward,
     [](Problem& p) {
         for (const Arg arg : {Arg::kK, Arg::kV}) p[arg] = resized(p[arg], 0, 0);
         p[Arg::kPageTable] = resized(p[Arg::kPageTable], 1, 0);
     }},
    {"no ragged sequences", samples::ragged_forward,
     [](Problem& p) {
         for (const Arg arg : {Arg::kCuSeqlensQ, Arg::kCuSeqlensK}) p[arg] = contiguous(DType::kI32, {1});
     }},
    {"double precision", samples::backward,
     [](Problem& p) {
         for (const Arg arg : {Arg::kQ, Arg::kK, Arg::kV, Arg::kO, Arg::kLse, Arg::kBias, Arg::kGradO, Arg::kGradLse,
                               Arg::kGradQ, Arg::kGradK, Arg::kGradV, Arg::kGradBias, Arg::kGradSink})
             p[arg].dtype = DType::kF64;
         p.score.dropout_p = 0.5f;
     }},
    {"dense q, ragged k", samples::forward,
     [](Problem& p) {
         p[Arg::kK] = contiguous(DType::kBF16, {11, 2, 8});
         p[Arg::kV] = contiguous(DType::kBF16, {11, 2, 10});
         p[Arg::kCuSeqlensK] = contiguous(DType::kI32, {4});
     }},
    {"ragged q, dense k", samples::ragged_forward,
     [](Problem& p) {
         p[Arg::kK] = contiguous(DType::kBF16, {3, 7, 2, 8});
         p[Arg::kV] = contiguous(DType::kBF16, {3, 7, 2, 10});
         p[Arg::kCuSeqlensK] = {};
     }},
    {"ragged q, paged k", samples::ragged_forward,
     [](Problem& p) {
         samples::make_paged(p);
         p[Arg::kCuSeqlensK] = {};
     }},
    {"ragged new keys", samples::decode,
     [](Problem& p) {
         p[Arg::kKNew] = contiguous(DType::kBF16, {50, 2, 8});
         p[Arg::kVNew] = contiguous(DType::kBF16, {50, 2, 10});
         p[Arg::kCuSeqlensKNew] = contiguous(DType::kI32, {4});
     }},
    {"ragged queries of a decode", samples::paged_decode,
     [](Problem& p) {
         p[Arg::kQ] = contiguous(DType::kBF16, {9, 6, 8});
         p[Arg::kO] = contiguous(DType::kBF16, {9, 6, 10});
         p[Arg::kLse] = contiguous(DType::kF32, {6, 9});
         p[Arg::kCuSeqlensQ] = contiguous(DType::kI32, {4});
     }},
    {"largest head dims, one kv head", samples::forward,
     [](Problem& p) {
         p[Arg::kQ] = contiguous(DType::kF16, {3, 5, 6, 256});
         p[Arg::kK] = contiguous(DType::kF16, {3, 7, 1, 256});
         p[Arg::kV] = contiguous(DType::kF16, {3, 7, 1, 512});
         p[Arg::kO] = contiguous(DType::kF16, {3, 5, 6, 512});
     }},
    {"bits with broadcast axes", samples::forward,
     [](Problem& p) {
         p[Arg::kMask] = contiguous(DType::kBits, {1, 1, 5, 1});
     }},
    {"broadcast mask and bias", samples::backward,
     [](Problem& p) {
         p[Arg::kMask] = contiguous(DType::kBool, {1, 1, 1, 7});
         p[Arg::kBias] = contiguous(DType::kBF16, {1, 6, 5, 1});
         p[Arg::kGradBias] = contiguous(DType::kF32, {1, 6, 5, 1});
     }},
    {"mask larger than ragged sequences", samples::ragged_forward,
     [](Problem& p) {
         p.exec.max_seqlen_q = 4;
         p.exec.max_seqlen_k = 5;
         p[Arg::kMask] = contiguous(DType::kBool, {3, 6, 4, 6});
     }},
    {"slopes of heads", samples::forward, [](Problem& p) { p[Arg::kAlibiSlopes] = contiguous(DType::kF32, {6}); }},
    {"key bounds of ragged rows", samples::ragged_forward,
     [](Problem& p) { p[Arg::kKeyEnd] = contiguous(DType::kI32, {9}); }},
    {"window, chunk, top left", samples::forward,
     [](Problem& p) { p.mask = {.window_left = 0, .window_right = 2, .chunk = 3, .top_left = true}; }},
    {"prefix", samples::forward, [](Problem& p) { p.mask = {.window_right = 0, .prefix = 2}; }},
    {"scale 0, softcap, dropout", samples::forward,
     [](Problem& p) {
         p.score = {
             .has_softmax_scale = true, .softcap = 30, .dropout_p = 0.999f, .dropout_seed = 1, .dropout_offset = 2};
     }},
    {"rotary tables of the data's type", samples::append,
     [](Problem& p) {
         p[Arg::kRotaryCos].dtype = p[Arg::kRotarySin].dtype = DType::kBF16;
         p.exec.rotary_interleaved = true;
     }},
    {"options", samples::forward,
     [](Problem& p) {
         p.exec.deterministic = p.exec.batch_invariant = true;
         p.exec.num_splits = 256;
         p.exec.num_threads = 1024;
     }},
    {"no split of a backward", samples::backward, [](Problem& p) { p.exec.num_splits = 1; }},
    {"half partial outputs", samples::combine, [](Problem& p) { p[Arg::kPartialO].dtype = DType::kF16; }},
    {"no parts", samples::combine,
     [](Problem& p) {
         for (const Arg arg : {Arg::kPartialO, Arg::kPartialLse}) p[arg] = resized(p[arg], 0, 0);
     }},
    {"negative stride of an axis of size 1", samples::forward,
     [](Problem& p) {
         p[Arg::kSink] = contiguous(DType::kF32, {6});
         p[Arg::kBias] = contiguous(DType::kF32, {1, 6, 5, 7});
         p[Arg::kBias].stride[0] = -1;
     }},
    {"transposed output", samples::forward,
     [](Problem& p) {
         p[Arg::kO].stride = {300, 10, 50, 1};
     }},
    {"output with gaps", samples::forward,
     [](Problem& p) {
         p[Arg::kO].stride = {4000, 700, 40, 4};
     }},
    {"far rows", samples::forward, [](Problem& p) { p[Arg::kK].stride[0] = int64_t{1} << 40; }},
};

TEST(ValidateAccepts, VariantsAreValid) {
    for (const Variant& variant : kVariants) {
        Problem p = variant.make();
        variant.change(p);
        const Status status = validate(p);
        EXPECT_TRUE(status.ok()) << variant.name << ": " << status.message();
    }
}

TEST(ValidateAccepts, SwappedLayoutsGetAHint) {
    Problem p = samples::forward();
    // R005: (batch, heads, length, dim) is valid mathematics when all shapes agree.
    for (const Arg arg : {Arg::kQ, Arg::kK, Arg::kV, Arg::kO}) p[arg] = contiguous(DType::kBF16, {16, 16, 729, 72});
    p[Arg::kLse] = {};
    ASSERT_TRUE(validate(p).ok()) << validate(p).message();
    EXPECT_NE(layout_hint(p).find("729 heads on 16 rows"), std::string::npos) << layout_hint(p);
    // A decode of a model with many heads is no mistake.
    p[Arg::kQ] = p[Arg::kO] = contiguous(DType::kBF16, {16, 1, 128, 72});
    p[Arg::kK] = p[Arg::kV] = contiguous(DType::kBF16, {16, 4096, 8, 72});
    EXPECT_EQ(layout_hint(p), "");
}

}  // namespace
}  // namespace tilewise
