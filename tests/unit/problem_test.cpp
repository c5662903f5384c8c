// Problems: sizes read out of every layout, the default scale, hashing and text.
#include "core/problem.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <vector>

#include "sample_problems.hpp"

namespace tilewise {
namespace {

TEST(Sizes, Dense) {
    const Sizes s = sizes_of(samples::forward());
    EXPECT_EQ(s.batch, 3);
    EXPECT_EQ(s.num_heads_q, 6);
    EXPECT_EQ(s.num_heads_kv, 2);
    EXPECT_EQ(s.gqa_ratio(), 3);
    EXPECT_EQ(s.head_dim, 8);
    EXPECT_EQ(s.head_dim_v, 10);
    EXPECT_EQ(s.total_q, 15);
    EXPECT_EQ(s.total_k, 21);
    EXPECT_EQ(s.max_seqlen_q, 5);
    EXPECT_EQ(s.max_seqlen_k, 7);
    EXPECT_EQ(s.page_size, 0);
}

TEST(Sizes, RaggedIsBoundedByTotalOrByTheCaller) {
    Problem p = samples::ragged_forward();
    Sizes s = sizes_of(p);
    EXPECT_EQ(s.batch, 3);
    EXPECT_EQ(s.total_q, 9);
    EXPECT_EQ(s.total_k, 11);
    EXPECT_EQ(s.max_seqlen_q, 9);
    EXPECT_EQ(s.max_seqlen_k, 11);
    p.exec.max_seqlen_q = 4;
    p.exec.max_seqlen_k = 100;
    s = sizes_of(p);
    EXPECT_EQ(s.max_seqlen_q, 4);
    EXPECT_EQ(s.max_seqlen_k, 11);
}

TEST(Sizes, PagedReachesAsFarAsThePageTable) {
    const Sizes s = sizes_of(samples::paged_forward());
    EXPECT_EQ(s.page_size, 4);
    EXPECT_EQ(s.max_seqlen_k, 20);
    EXPECT_EQ(s.total_k, 60);
    EXPECT_EQ(s.num_heads_kv, 2);
}

TEST(Sizes, AppendHasNoQueries) {
    const Sizes s = sizes_of(samples::append());
    EXPECT_EQ(s.batch, 3);
    EXPECT_EQ(s.num_heads_q, 0);
    EXPECT_EQ(s.max_seqlen_q, 0);
    EXPECT_EQ(s.num_heads_kv, 2);
    EXPECT_EQ(s.max_seqlen_k, 7);
    EXPECT_EQ(s.head_dim, 8);
    EXPECT_EQ(s.head_dim_v, 10);
}

TEST(Sizes, CombineHasNoKeys) {
    Sizes s = sizes_of(samples::combine());
    EXPECT_EQ(s.batch, 3);
    EXPECT_EQ(s.num_heads_q, 6);
    EXPECT_EQ(s.head_dim_v, 10);
    EXPECT_EQ(s.max_seqlen_q, 5);
    EXPECT_EQ(s.max_seqlen_k, 0);
    s = sizes_of(samples::ragged_combine());
    EXPECT_EQ(s.batch, 1);
    EXPECT_EQ(s.total_q, 9);
}

TEST(Scale, DefaultIsTheInverseRootOfHeadDim) {
    Problem p = samples::forward();
    p[Arg::kQ] = contiguous(DType::kF32, {1, 2, 3, 64});
    EXPECT_FLOAT_EQ(softmax_scale_of(p), 0.125f);
    p.score = {.softmax_scale = 0.0f, .has_softmax_scale = true};
    EXPECT_EQ(softmax_scale_of(p), 0.0f);
}

TEST(Mask, PositionalMasksDependOnTheRow) {
    EXPECT_FALSE(is_positional({}));
    EXPECT_FALSE(is_positional({.prefix = 3}));
    EXPECT_TRUE(is_positional({.window_left = 0}));
    EXPECT_TRUE(is_positional({.window_right = 0}));
    EXPECT_TRUE(is_positional({.chunk = 4}));
}

TEST(Hash, EveryFieldMatters) {
    const std::vector<std::function<void(Problem&)>> changes = {
        [](Problem&) {},
        [](Problem& p) { p.op = Op::kBackward; },
        [](Problem& p) { p[Arg::kQ].dtype = DType::kF16; },
        [](Problem& p) { p[Arg::kQ].shape[1] = 6; },
        [](Problem& p) { p[Arg::kQ].stride[1] = 96; },
        [](Problem& p) { p[Arg::kQ].alignment = 8; },
        [](Problem& p) { p[Arg::kLse] = {}; },
        [](Problem& p) {
            p[Arg::kKeyBegin] = contiguous(DType::kI32, {3, 5});
        },
        [](Problem& p) {
            p[Arg::kKeyEnd] = contiguous(DType::kI32, {3, 5});
        },
        [](Problem& p) { p.mask.window_left = 1; },
        [](Problem& p) { p.mask.window_right = 1; },
        [](Problem& p) { p.mask.chunk = 1; },
        [](Problem& p) { p.mask.prefix = 1; },
        [](Problem& p) { p.mask.top_left = true; },
        [](Problem& p) { p.score.softmax_scale = 1; },
        [](Problem& p) { p.score.has_softmax_scale = true; },
        [](Problem& p) { p.score.softcap = 1; },
        [](Problem& p) { p.score.dropout_p = 0.5f; },
        [](Problem& p) { p.score.dropout_seed = 1; },
        [](Problem& p) { p.score.dropout_offset = 1; },
        [](Problem& p) { p.exec.deterministic = true; },
        [](Problem& p) { p.exec.batch_invariant = true; },
        [](Problem& p) { p.exec.rotary_interleaved = true; },
        [](Problem& p) { p.exec.num_splits = 1; },
        [](Problem& p) { p.exec.num_threads = 1; },
        [](Problem& p) { p.exec.max_seqlen_q = 1; },
        [](Problem& p) { p.exec.max_seqlen_k = 1; },
        [](Problem& p) { p.exec.kernel = "cpu_reference_forward"; },
    };
    std::set<size_t> hashes;
    for (const auto& change : changes) {
        Problem p = samples::forward();
        change(p);
        Problem same = samples::forward();
        change(same);
        EXPECT_EQ(p, same);
        EXPECT_EQ(hash_of(p), hash_of(same));
        hashes.insert(hash_of(p));
    }
    EXPECT_EQ(hashes.size(), changes.size());
}

TEST(Hash, EqualProblemsHashAlike) {
    Problem a = samples::forward();
    Problem b = a;
    a.score.softcap = 0.0f;
    b.score.softcap = -0.0f;
    ASSERT_EQ(a, b);
    EXPECT_EQ(hash_of(a), hash_of(b));
}

TEST(Text, OneLineForEachTensorAndFeature) {
    Problem p = samples::forward();
    EXPECT_EQ(to_string(p),
              "forward\n"
              "  q                bf16 (3, 5, 6, 8)\n"
              "  k                bf16 (3, 7, 2, 8)\n"
              "  v                bf16 (3, 7, 2, 10)\n"
              "  o                bf16 (3, 5, 6, 10)\n"
              "  lse              f32 (3, 6, 5)\n"
              "  softmax_scale    0.353553 (head_dim^-0.5)\n");
    p = samples::append();
    p.exec.rotary_interleaved = true;
    const std::string append = to_string(p);
    EXPECT_NE(append.find("  cache_batch_idx  i32 (3)\n"), std::string::npos) << append;
    EXPECT_NE(append.find("  rotary pairs     interleaved\n"), std::string::npos) << append;
    EXPECT_EQ(append.find("softmax_scale"), std::string::npos) << append;
}

TEST(Text, FeaturesThatAreOn) {
    Problem p = samples::ragged_forward();
    p.mask = {.window_left = 2, .chunk = 8, .prefix = 3, .top_left = true};
    p.score = {.softmax_scale = 0.5f, .has_softmax_scale = true, .softcap = 30, .dropout_p = 0.25f, .dropout_seed = 7};
    p.exec = {.deterministic = true,
              .batch_invariant = true,
              .num_splits = 2,
              .num_threads = 3,
              .max_seqlen_q = 4,
              .max_seqlen_k = 5,
              .kernel = "cpu_reference_forward"};
    const std::string text = to_string(p);
    for (const char* line :
         {"  window           left 2, right unlimited\n", "  chunk            8 keys\n", "  prefix           3 keys\n",
          "  diagonal         top_left\n", "  softmax_scale    0.5\n", "  softcap          30\n",
          "  dropout          0.25 (seed 7, offset 0)\n", "  max_seqlen_q     4\n", "  max_seqlen_k     5\n",
          "  deterministic    on\n", "  batch_invariant  on\n", "  num_splits       2\n", "  num_threads      3\n",
          "  kernel           cpu_reference_forward\n"})
        EXPECT_NE(text.find(line), std::string::npos) << line << text;
    p.mask = {.window_right = 0};
    EXPECT_NE(to_string(p).find("  causal           on\n  diagonal         bottom_right\n"), std::string::npos);
}

// A problem that validate refuses is printed as well.
TEST(Text, WrongProblemsArePrinted) {
    Problem p = samples::forward();
    p[Arg::kQ] = contiguous(DType::kF32, {});
    p[Arg::kK] = contiguous(DType::kF32, {});
    EXPECT_NE(to_string(p).find("  q                f32 ()\n"), std::string::npos);
}

}  // namespace
}  // namespace tilewise
