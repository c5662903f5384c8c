// One rule of validate as a row of a test table: a valid problem, the change that breaks the rule, and what the message
// has to contain. Its first expectation is how the message begins: the name of the argument and a colon.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <ostream>
#include <string>
#include <vector>

#include "core/validate.hpp"
#include "sample_problems.hpp"

namespace tilewise {

inline TensorDesc bf16(std::initializer_list<int64_t> shape) { return contiguous(DType::kBF16, shape); }
inline TensorDesc f32(std::initializer_list<int64_t> shape) { return contiguous(DType::kF32, shape); }
inline TensorDesc i32(std::initializer_list<int64_t> shape) { return contiguous(DType::kI32, shape); }
// All elements are one: reaches any size without memory.
inline TensorDesc broadcast(DType dtype, std::initializer_list<int64_t> shape) {
    TensorDesc tensor = contiguous(dtype, shape);
    tensor.stride = {};
    return tensor;
}

struct RuleCase {
    const char* name;
    Problem (*make)();
    void (*change)(Problem&);
    std::vector<std::string> expected;
};

inline void PrintTo(const RuleCase& rule, std::ostream* out) { *out << rule.name; }

inline void expect_refused(const Status& status, const std::vector<std::string>& expected) {
    const std::string& message = status.message();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(message.rfind(expected.front(), 0), 0u) << message;
    for (const std::string& part : expected)
        EXPECT_NE(message.find(part), std::string::npos) << part << "\n" << message;
}

class RuleTest : public testing::TestWithParam<RuleCase> {};

inline std::string name_of_case(const testing::TestParamInfo<RuleCase>& info) { return info.param.name; }

}  // namespace tilewise
