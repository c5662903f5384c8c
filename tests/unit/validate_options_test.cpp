// Rules of validate on numbers: mask, score and execution options.
#include <cmath>
#include <limits>

#include "rule_case.hpp"

namespace tilewise {
namespace {

using samples::append;
using samples::backward;
using samples::combine;
using samples::forward;
using samples::full_forward;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

void set_scale(Problem& p, float scale) {
    p.score.softmax_scale = scale;
    p.score.has_softmax_scale = true;
}

const RuleCase kMaskRules[] = {
    {"left", forward, [](Problem& p) { p.mask.window_left = -2; }, {"window_left: -2 is negative; -1 (unlimited)"}},
    {"right", forward, [](Problem& p) { p.mask.window_right = -3; }, {"window_right: -3 is negative"}},  // R052
    {"chunk", forward, [](Problem& p) { p.mask.chunk = -4; }, {"chunk: -4 is negative"}},
    {"large_chunk",
     forward,
     [](Problem& p) { p.mask.chunk = kMaxSeqlen + 1; },
     {"chunk: 1073741824 keys are more than the longest sequence"}},
    {"prefix", forward, [](Problem& p) { p.mask.prefix = -5; }, {"prefix: -5 is negative"}},
    {"prefix_of_all",
     forward,
     [](Problem& p) { p.mask.prefix = 5; },
     {"prefix: has no effect without causal, window_right or block"}},
    {"prefix_and_left",
     forward,
     [](Problem& p) { p.mask = {.window_left = 3, .window_right = 0, .prefix = 5}; },
     {"prefix: is given with window_left 3"}},
    {"block", forward, [](Problem& p) { p.mask.block = -4; }, {"block: -4 is negative"}},
    {"large_block",
     forward,
     [](Problem& p) { p.mask.block = kMaxSeqlen + 1; },
     {"block: 1073741824 keys are more than the longest sequence"}},
    {"block_and_causal",
     forward,
     [](Problem& p) { p.mask = {.window_right = 0, .block = 4}; },
     {"block: 4 has no effect with causal"}},
    {"block_of_combine", combine, [](Problem& p) { p.mask.block = 3; }, {"block: has no effect on combine"}},
    {"prefix_and_chunk",
     forward,
     [](Problem& p) { p.mask = {.window_right = 0, .chunk = 4, .prefix = 5}; },
     {"prefix: is given with chunk 4"}},
    {"two_prefixes", full_forward, [](Problem& p) { p.mask.prefix = 5; }, {"prefix: 5 is given with prefix_lens"}},
    {"prefixes_of_all", full_forward, [](Problem& p) { p.mask.window_right = -1; }, {"prefix_lens: has no effect"}},
    {"prefixes_and_left",
     full_forward,
     [](Problem& p) { p.mask.window_left = 3; },
     {"prefix_lens: is given with window_left 3"}},
    {"prefixes_and_chunk", full_forward, [](Problem& p) { p.mask.chunk = 4; }, {"prefix_lens: is given with chunk 4"}},
    {"top_left", forward, [](Problem& p) { p.mask.top_left = true; }, {"top_left: has no effect"}},
    {"of_append", append, [](Problem& p) { p.mask.window_right = 0; }, {"window_right: has no effect on append"}},
    {"left_of_append", append, [](Problem& p) { p.mask.window_left = 3; }, {"window_left: has no effect on append"}},
    {"chunk_of_combine", combine, [](Problem& p) { p.mask.chunk = 3; }, {"chunk: has no effect on combine"}},
};

const RuleCase kScoreRules[] = {
    {"scale_nan", forward, [](Problem& p) { set_scale(p, kNan); }, {"softmax_scale: nan is not a scale"}},
    {"scale_negative", forward, [](Problem& p) { set_scale(p, -0.5f); }, {"softmax_scale: -0.5 is not a scale"}},
    {"scale_infinite", forward, [](Problem& p) { set_scale(p, kInf); }, {"softmax_scale: inf is not a scale"}},
    {"scale_unmarked",
     forward,
     [](Problem& p) { p.score.softmax_scale = 0.25f; },
     {"softmax_scale: 0.25 has no effect"}},
    {"scale_unmarked_nan",
     forward,
     [](Problem& p) { p.score.softmax_scale = kNan; },
     {"softmax_scale: nan has no effect"}},
    {"softcap_negative", forward, [](Problem& p) { p.score.softcap = -30; }, {"softcap: -30 is not a cap"}},
    {"softcap_nan", forward, [](Problem& p) { p.score.softcap = kNan; }, {"softcap: nan is not a cap"}},
    {"softcap_infinite", forward, [](Problem& p) { p.score.softcap = kInf; }, {"softcap: inf is not a cap"}},
    {"dropout_one", forward, [](Problem& p) { p.score.dropout_p = 1; }, {"dropout_p: 1 is not a probability"}},
    {"dropout_negative", forward, [](Problem& p) { p.score.dropout_p = -0.5f; }, {"dropout_p: -0.5 is not"}},
    {"dropout_nan", forward, [](Problem& p) { p.score.dropout_p = kNan; }, {"dropout_p: nan is not"}},
    {"seed_alone",
     forward,
     [](Problem& p) { p.score.dropout_seed = 77; },
     {"dropout_seed: 77 has no effect without dropout_p"}},
    {"offset_alone", forward, [](Problem& p) { p.score.dropout_offset = 78; }, {"dropout_offset: 78 has no effect"}},
    {"scale_of_append", append, [](Problem& p) { set_scale(p, 1); }, {"softmax_scale: has no effect on append"}},
    {"softcap_of_combine", combine, [](Problem& p) { p.score.softcap = 1; }, {"softcap: has no effect on combine"}},
    {"dropout_of_combine",
     combine,
     [](Problem& p) { p.score.dropout_p = 0.5f; },
     {"dropout_p: has no effect on combine"}},
};

const RuleCase kOptionRules[] = {
    {"pairs_alone",
     forward,
     [](Problem& p) { p.exec.rotary_interleaved = true; },
     {"rotary_interleaved: has no effect"}},
    {"splits_negative", forward, [](Problem& p) { p.exec.num_splits = -1; }, {"num_splits: -1 is out of range", "256"}},
    {"splits_many", forward, [](Problem& p) { p.exec.num_splits = 257; }, {"num_splits: 257 is out of range"}},
    {"splits_of_backward",
     backward,
     [](Problem& p) { p.exec.num_splits = 2; },
     {"num_splits: 2 has no effect on backward"}},
    {"splits_of_append", append, [](Problem& p) { p.exec.num_splits = 2; }, {"num_splits: 2 has no effect on append"}},
    {"threads_negative",
     forward,
     [](Problem& p) { p.exec.num_threads = -1; },
     {"num_threads: -1 is out of range", "1024"}},
    {"threads_many", forward, [](Problem& p) { p.exec.num_threads = 1025; }, {"num_threads: 1025 is out of range"}},
};

TEST_P(RuleTest, NamesTheArgumentAndItsValue) {
    Problem p = GetParam().make();
    GetParam().change(p);
    expect_refused(validate(p), GetParam().expected);
}
INSTANTIATE_TEST_SUITE_P(Mask, RuleTest, testing::ValuesIn(kMaskRules), name_of_case);
INSTANTIATE_TEST_SUITE_P(Score, RuleTest, testing::ValuesIn(kScoreRules), name_of_case);
INSTANTIATE_TEST_SUITE_P(Options, RuleTest, testing::ValuesIn(kOptionRules), name_of_case);

}  // namespace
}  // namespace tilewise
