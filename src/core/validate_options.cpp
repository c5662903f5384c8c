// The numbers of a call: mask, score and execution options. A number that has no effect is refused like a tensor without
// effect (validate_arguments.cpp): 0 and -1 stand for "not given".
#include <cmath>
#include <string>

#include "core/validate.hpp"
#include "core/validate_rules.hpp"

namespace tilewise::rules {

namespace {

bool attends(Op op) { return op == Op::kForward || op == Op::kBackward || op == Op::kDecode; }

Status check_window_side(const char* name, int32_t side) {
    if (side >= kUnlimited) return {};
    return refuse(name, "{} is negative; -1 (unlimited) or a number of keys is allowed", side);
}

// Larger chunks and blocks would all mean the same, and sums of positions and them stay within 32 bits.
Status check_stretch(const char* name, int32_t keys) {
    if (keys < 0) return refuse(name, "{} is negative; 0 (no {}) or a number of keys is allowed", keys, name);
    if (keys <= kMaxSeqlen) return {};
    return refuse(name, "{} keys are more than the longest sequence; at most {} is allowed", keys, kMaxSeqlen);
}

// A prefix lifts the right end of a row's interval. Beside a left end the interval would fall into two.
Status check_prefix(const char* name, const MaskSpec& mask) {
    if (mask.window_right < 0 && mask.block == 0)
        return refuse(name, "has no effect without causal, window_right or block; every key to the right is visible");
    if (mask.window_left >= 0)
        return refuse(name, "is given with window_left {}; only an unlimited left side, -1, is allowed",
                      mask.window_left);
    if (mask.chunk > 0) return refuse(name, "is given with chunk {}; only no chunk, 0, is allowed", mask.chunk);
    return {};
}

Status check_no_effect(const Problem& problem) {
    const ScoreSpec& score = problem.score;
    const std::pair<const char*, bool> given[] = {
        {"window_left", problem.mask.window_left >= 0},
        {"window_right", problem.mask.window_right >= 0},
        {"chunk", problem.mask.chunk > 0},
        {"block", problem.mask.block > 0},
        {"prefix", problem.mask.prefix > 0},
        {"softmax_scale", score.has_softmax_scale},
        {"softcap", score.softcap != 0.0f},
        {"dropout_p", score.dropout_p != 0.0f},
    };
    for (const auto& [name, is_given] : given) {
        if (is_given)
            return refuse(name, "has no effect on {}; allowed for forward, backward, decode", name_of(problem.op));
    }
    return {};
}

Status check_dropout(const ScoreSpec& score) {
    if (!(score.dropout_p >= 0.0f && score.dropout_p < 1.0f))
        return refuse("dropout_p", "{} is not a probability; 0 up to, but without, 1 is allowed", score.dropout_p);
    if (score.dropout_p > 0.0f) return {};
    if (score.dropout_seed != 0)
        return refuse("dropout_seed", "{} has no effect without dropout_p", score.dropout_seed);
    if (score.dropout_offset != 0)
        return refuse("dropout_offset", "{} has no effect without dropout_p", score.dropout_offset);
    return {};
}

Status check_count(const char* name, int32_t value, int32_t largest) {
    if (value >= 0 && value <= largest) return {};
    return refuse(name, "{} is out of range; 0 (the plan chooses) to {} is allowed", value, largest);
}

}  // namespace

Status check_mask(const Problem& problem) {
    const MaskSpec& mask = problem.mask;
    if (Status status = check_window_side("window_left", mask.window_left); !status.ok()) return status;
    if (Status status = check_window_side("window_right", mask.window_right); !status.ok()) return status;
    if (Status status = check_stretch("chunk", mask.chunk); !status.ok()) return status;
    if (Status status = check_stretch("block", mask.block); !status.ok()) return status;
    if (mask.block > 0 && mask.window_right == 0)
        return refuse("block", "{} has no effect with causal or window_right 0, which hide the rest of a block",
                      mask.block);
    if (mask.prefix < 0)
        return refuse("prefix", "{} is negative; 0 (no prefix) or a number of keys is allowed", mask.prefix);
    if (mask.prefix > 0 && problem.has(Arg::kPrefixLens))
        return refuse("prefix", "{} is given with prefix_lens; one of them is allowed", mask.prefix);
    if (mask.prefix > 0) {
        if (Status status = check_prefix("prefix", mask); !status.ok()) return status;
    }
    if (problem.has(Arg::kPrefixLens)) {
        if (Status status = check_prefix("prefix_lens", mask); !status.ok()) return status;
    }
    // Refused and not harmless: whoever asks for top_left beside ALiBi or a boolean mask may expect it to move them.
    if (mask.top_left && !is_positional(mask))
        return refuse("top_left", "has no effect without causal, a window, a chunk or a block");
    return {};
}

Status check_score(const Problem& problem) {
    const ScoreSpec& score = problem.score;
    if (!score.has_softmax_scale && score.softmax_scale != 0.0f)
        return refuse("softmax_scale", "{} has no effect unless it is marked as given", score.softmax_scale);
    if (score.has_softmax_scale && !(score.softmax_scale >= 0.0f && std::isfinite(score.softmax_scale)))
        return refuse("softmax_scale", "{} is not a scale; a finite number of at least 0 is allowed",
                      score.softmax_scale);
    if (!(score.softcap >= 0.0f && std::isfinite(score.softcap)))
        return refuse("softcap", "{} is not a cap; 0 (off) or a finite positive number is allowed", score.softcap);
    if (Status status = check_dropout(score); !status.ok()) return status;
    if (attends(problem.op)) return {};
    return check_no_effect(problem);
}

Status check_options(const Problem& problem) {
    const ExecSpec& exec = problem.exec;
    if (exec.rotary_interleaved && !problem.has(Arg::kRotaryCos))
        return refuse("rotary_interleaved", "has no effect without rotary_cos and rotary_sin");
    if (Status status = check_count("num_splits", exec.num_splits, kMaxNumSplits); !status.ok()) return status;
    if (Status status = check_count("num_threads", exec.num_threads, kMaxNumThreads); !status.ok()) return status;
    const bool splits = problem.op == Op::kForward || problem.op == Op::kDecode;
    if (exec.num_splits > 1 && !splits)
        return refuse("num_splits", "{} has no effect on {}; allowed for forward, decode", exec.num_splits,
                      name_of(problem.op));
    return {};
}

}  // namespace tilewise::rules
