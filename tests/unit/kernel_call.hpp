// A call to one kernel row without a plan around it: tensors by name, then layout and launch. For tests that look at a kernel's numbers;
// validation and planning have their own tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "core/registry.hpp"
#include "cpu/view.hpp"

namespace tilewise {

void register_cpu_backend(Registry& registry);

namespace test {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

inline const KernelRow& cpu_row(const std::string& name) {
    static const Registry registry = [] {
        Registry filled;
        register_cpu_backend(filled);
        return filled;
    }();
    return *registry.find(name);
}

// Values of a tensor in row-major order of its shape.
using Values = std::vector<double>;

inline Values random_values(size_t count, uint64_t seed, double scale = 1.0) {
    std::mt19937_64 engine(seed);
    std::normal_distribution<double> normal(0.0, scale);
    Values values(count);
    for (double& value : values) value = normal(engine);
    return values;
}

class KernelCall {
public:
    explicit KernelCall(Op op) { problem.op = op; }

    Problem problem;

    // A contiguous tensor; an empty list of values fills it with NaN.
    KernelCall& set(Arg arg, DType dtype, const std::vector<int64_t>& shape, const Values& values = {}) {
        TensorDesc& tensor = problem[arg];
        tensor = {};
        tensor.dtype = dtype;
        tensor.rank = static_cast<int>(shape.size());
        std::copy(shape.begin(), shape.end(), tensor.shape.begin());
        int64_t count = 1;
        for (int axis = tensor.rank - 1; axis >= 0; --axis) {
            tensor.stride[static_cast<size_t>(axis)] = count;
            count *= tensor.dim(axis);
        }
        data_[arg].assign(static_cast<size_t>(count * size_of(dtype)), 0);
        for (int64_t i = 0; i < count; ++i) put(arg, i, values.empty() ? kNaN : values.at(static_cast<size_t>(i)));
        return *this;
    }
    KernelCall& set_ints(Arg arg, const std::vector<int64_t>& shape, const std::vector<int>& values) {
        return set(arg, DType::kI32, shape, Values(values.begin(), values.end()));
    }
    KernelCall& set_ints(Arg arg, const std::vector<int>& values) {
        return set_ints(arg, {static_cast<int64_t>(values.size())}, values);
    }
    void drop(Arg arg) {
        problem[arg] = {};
        data_.erase(arg);
    }

    double at(Arg arg, int64_t index) const {
        const DType dtype = problem[arg].dtype;
        const auto& bytes = data_.at(arg);
        if (dtype == DType::kI32) {
            int32_t value;
            std::memcpy(&value, bytes.data() + index * 4, 4);
            return value;
        }
        return cpu::load_element(bytes.data(), dtype, index);
    }
    void put(Arg arg, int64_t index, double value) {
        const DType dtype = problem[arg].dtype;
        auto& bytes = data_.at(arg);
        if (dtype == DType::kI32) {
            const auto integer = static_cast<int32_t>(value);
            std::memcpy(bytes.data() + index * 4, &integer, 4);
        } else if (dtype == DType::kBool || dtype == DType::kBits) {
            bytes[static_cast<size_t>(index)] = static_cast<unsigned char>(value);
        } else {
            cpu::store_element(bytes.data(), dtype, index, value);
        }
    }
    const std::vector<unsigned char>& bytes(Arg arg) const { return data_.at(arg); }
    int64_t count(Arg arg) const { return problem[arg].num_elements(); }
    Values values(Arg arg) const {
        Values result;
        for (int64_t i = 0; i < count(arg); ++i) result.push_back(at(arg, i));
        return result;
    }

    void run(const std::string& kernel) {
        const KernelRow& row = cpu_row(kernel);
        DeviceInfo device;
        device.cpu.num_cores = 2;
        Step step;
        step.row = &row;
        step.problem = problem;
        step.sizes = sizes_of(problem);
        ASSERT_EQ(row.refuse != nullptr ? row.refuse(row, problem, device) : "", "");
        row.layout(step, device);
        Arguments arguments;
        for (auto& [arg, bytes] : data_) arguments.pointers[arg] = bytes.data();
        int64_t bytes = 0;
        for (const WorkspaceBlock& block : step.workspace) bytes = std::max(bytes, block.offset + block.bytes);
        // Garbage, so that a kernel that relies on zeros is found.
        std::vector<double> workspace(static_cast<size_t>(bytes) / sizeof(double) + 8, kNaN);
        const auto address = reinterpret_cast<uintptr_t>(workspace.data());
        arguments.workspace = reinterpret_cast<void*>((address + 63) / 64 * 64);
        arguments.workspace_bytes = bytes;
        const Status status = row.launch(step, arguments);
        ASSERT_TRUE(status.ok()) << status.message();
    }

private:
    std::map<Arg, std::vector<unsigned char>> data_;
};

inline void expect_near(const Values& actual, const Values& expected, double tolerance, const std::string& what = "") {
    ASSERT_EQ(actual.size(), expected.size()) << what;
    for (size_t i = 0; i < actual.size(); ++i) {
        if (std::isnan(expected[i])) {
            EXPECT_TRUE(std::isnan(actual[i])) << what << " at " << i << ": " << actual[i];
        } else if (std::isinf(expected[i])) {
            EXPECT_EQ(actual[i], expected[i]) << what << " at " << i;
        } else {
            EXPECT_NEAR(actual[i], expected[i], tolerance) << what << " at " << i;
        }
    }
}

}  // namespace test
}  // namespace tilewise
