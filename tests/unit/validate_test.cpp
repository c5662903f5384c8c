// Rules of validate that hold for every tensor of every sample problem, found by changing one tensor at a time.
// Rules with messages of their own are in validate_{shapes,lengths,options}_test.cpp, accepted variants in validate_accepts_test.cpp.
#include "core/validate.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rule_case.hpp"

namespace tilewise {
namespace {

std::vector<Arg> given_args(const Problem& p) {
    std::vector<Arg> args;
    for (size_t i = 0; i < kNumArgs; ++i) {
        if (p.has(static_cast<Arg>(i))) args.push_back(static_cast<Arg>(i));
    }
    return args;
}

class EverySample : public testing::TestWithParam<samples::Sample> {
protected:
    Problem problem_ = GetParam().make();
};
INSTANTIATE_TEST_SUITE_P(Validate, EverySample, testing::ValuesIn(samples::kAll),
                         [](const auto& sample) { return std::string(sample.param.name); });

TEST_P(EverySample, IsValid) {
    const Status status = validate(problem_);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(layout_hint(problem_), "");
}

TEST_P(EverySample, RanksAreChecked) {
    for (const Arg arg : given_args(problem_)) {
        // A ragged partial_o with one more axis is a dense one.
        for (const int rank : {0, problem_[arg].rank == 5 || arg == Arg::kPartialO ? 3 : 5}) {
            Problem p = problem_;
            p[arg].rank = rank;
            expect_refused(validate(p), {std::string(name_of(arg)) + ": ", "allowed"});
        }
        Problem p = problem_;
        p[arg].rank = 6;
        expect_refused(validate(p), {std::string(name_of(arg)) + ": rank is 6"});
    }
}

// Each axis of each tensor, one larger: another tensor disagrees, unless the axis is free.
TEST_P(EverySample, SizesThatDisagreeAreNamed) {
    const std::set<std::pair<Arg, int>> kFree = {{Arg::kPageTable, 0}, {Arg::kPageTable, 1}};
    for (const Arg arg : given_args(problem_)) {
        for (int axis = 0; axis < problem_[arg].rank; ++axis) {
            Problem p = problem_;
            const int64_t size = p[arg].dim(axis) + 1;
            p[arg] = samples::resized(p[arg], axis, size);
            const Status status = validate(p);
            ASSERT_EQ(status.ok(), kFree.contains({arg, axis})) << name_of(arg) << " axis " << axis;
            if (status.ok()) continue;
            EXPECT_NE(status.message().find(name_of(arg)), std::string::npos) << status.message();
            EXPECT_NE(status.message().find(std::to_string(size)), std::string::npos) << status.message();
        }
    }
}

TEST_P(EverySample, TypesAreChecked) {
    for (const Arg arg : given_args(problem_)) {
        Problem p = problem_;
        p[arg].dtype = DType::kI64;
        expect_refused(validate(p), {std::string(name_of(arg)) + ": the dtype is i64", "is allowed"});
    }
}

TEST_P(EverySample, NegativeStridesAreRefused) {
    for (const Arg arg : given_args(problem_)) {
        Problem p = problem_;
        p[arg].stride[0] = -4;
        expect_refused(validate(p), {std::string(name_of(arg)) + ": stride -4 of axis 0 is negative"});
    }
}

TEST_P(EverySample, NegativeSizesAreRefused) {
    for (const Arg arg : given_args(problem_)) {
        Problem p = problem_;
        p[arg].shape[0] = -2;
        expect_refused(validate(p), {std::string(name_of(arg)) + ": axis 0", "(-2", "negative"});
    }
}

TEST_P(EverySample, ExtentsBeyond64BitsAreRefused) {
    for (const Arg arg : given_args(problem_)) {
        Problem p = problem_;
        p[arg].stride[0] = int64_t{1} << 62;
        expect_refused(validate(p), {std::string(name_of(arg)) + ": ", "(4611686018427387904", "2^63"});
    }
}

TEST_P(EverySample, AddressesAreAlignedToTheirElements) {
    for (const Arg arg : given_args(problem_)) {
        if (size_of(problem_[arg].dtype) < 2) continue;
        Problem p = problem_;
        p[arg].alignment = 1;
        expect_refused(validate(p), {std::string(name_of(arg)) + ": the address is aligned to 1 bytes",
                                     name_of(problem_[arg].dtype)});
    }
}

TEST_P(EverySample, OutputsHaveDistinctElementsAndInputsNeedNot) {
    const std::map<Op, std::set<Arg>> outputs = {
        {Op::kForward, {Arg::kO, Arg::kLse}},
        {Op::kBackward, {Arg::kGradQ, Arg::kGradK, Arg::kGradV, Arg::kGradBias, Arg::kGradSink}},
        {Op::kDecode, {Arg::kO, Arg::kLse, Arg::kK, Arg::kV}},
        {Op::kAppend, {Arg::kK, Arg::kV}},
        {Op::kCombine, {Arg::kO, Arg::kLse}},
    };
    for (const Arg arg : given_args(problem_)) {
        for (int axis = 0; axis < problem_[arg].rank; ++axis) {
            Problem p = problem_;
            p[arg].stride[static_cast<size_t>(axis)] = 0;
            if (outputs.at(p.op).contains(arg))
                expect_refused(validate(p), {std::string(name_of(arg)) + ": stride 0 of axis " + std::to_string(axis)});
            else
                EXPECT_TRUE(validate(p).ok()) << validate(p).message();
        }
    }
}

TEST(Validate, TensorsWithoutEffectAreRefused) {
    // What the samples of an operation do not hold, although it takes it.
    std::map<Op, std::set<Arg>> taken = {
        {Op::kForward, {Arg::kCacheBatchIdx}},
        {Op::kDecode,
         {Arg::kCuSeqlensQ, Arg::kSequsedQ, Arg::kMask, Arg::kKeyBegin, Arg::kKeyEnd, Arg::kPrefixLens,
          Arg::kAlibiSlopes, Arg::kBias, Arg::kSink, Arg::kCuSeqlensKNew, Arg::kErrorFlag}},
        {Op::kAppend, {Arg::kPageTable, Arg::kCuSeqlensKNew, Arg::kErrorFlag}},
    };
    for (const samples::Sample& sample : samples::kAll) {
        const Problem p = sample.make();
        for (const Arg arg : given_args(p)) taken[p.op].insert(arg);
    }
    for (const samples::Sample& sample : samples::kAll) {
        for (size_t i = 0; i < kNumArgs; ++i) {
            const Arg arg = static_cast<Arg>(i);
            Problem p = sample.make();
            const std::string no_effect = std::string("f32 (2) has no effect on ") + name_of(p.op) + "; ";
            p[arg] = contiguous(DType::kF32, {2});
            const Status status = validate(p);
            if (!taken[p.op].contains(arg))
                expect_refused(status, {std::string(name_of(arg)) + ": " + no_effect});
            else
                EXPECT_EQ(status.message().find("no effect on"), std::string::npos) << status.message();
        }
    }
}

TEST(Validate, MissingTensorsAreNamed) {
    const std::map<Op, std::pair<Problem, std::vector<Arg>>> required = {
        {Op::kForward, {samples::forward(), {Arg::kQ, Arg::kK, Arg::kV, Arg::kO}}},
        {Op::kBackward,
         {samples::backward(),
          {Arg::kQ, Arg::kK, Arg::kV, Arg::kO, Arg::kLse, Arg::kGradO, Arg::kGradQ, Arg::kGradK, Arg::kGradV}}},
        {Op::kDecode, {samples::decode(), {Arg::kQ, Arg::kK, Arg::kV, Arg::kO}}},
        {Op::kAppend, {samples::append(), {Arg::kK, Arg::kV, Arg::kKNew, Arg::kVNew, Arg::kCacheSeqlens}}},
        {Op::kCombine, {samples::combine(), {Arg::kPartialO, Arg::kPartialLse, Arg::kO}}},
    };
    for (const auto& [op, sample] : required) {
        for (const Arg arg : sample.second) {
            Problem p = sample.first;
            p[arg] = {};
            expect_refused(validate(p), {std::string(name_of(arg)) + ": is not given", name_of(op)});
        }
    }
}

TEST(Validate, OptionalTensorsCanBeLeftOut) {
    for (const Arg arg : {Arg::kLse, Arg::kSequsedQ, Arg::kSequsedK, Arg::kLeftpadK, Arg::kPrefixLens, Arg::kKeyBegin,
                          Arg::kKeyEnd, Arg::kMask, Arg::kBias, Arg::kAlibiSlopes, Arg::kSink}) {
        Problem p = samples::full_forward();
        p[arg] = {};
        EXPECT_TRUE(validate(p).ok()) << validate(p).message();
    }
    for (const Arg arg : {Arg::kGradLse, Arg::kGradBias, Arg::kGradSink, Arg::kSequsedK}) {
        Problem p = samples::backward();
        p[arg] = {};
        EXPECT_TRUE(validate(p).ok()) << validate(p).message();
    }
    Problem p = samples::decode();
    for (const Arg arg : {Arg::kKNew, Arg::kVNew, Arg::kRotaryCos, Arg::kRotarySin, Arg::kRotarySeqlens}) p[arg] = {};
    EXPECT_TRUE(validate(p).ok()) << validate(p).message();
    p[Arg::kCacheSeqlens] = {};
    EXPECT_TRUE(validate(p).ok()) << validate(p).message();
}

}  // namespace
}  // namespace tilewise
