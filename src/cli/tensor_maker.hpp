// Makes tensors for calls that are made up: with memory and values from a generator, or as shapes without memory.
// A value is asked for by its place in memory order; the same seed gives the same values.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "host_tensor.hpp"

namespace tilewise::cli {

enum class Contents { kNone, kRandom };

struct Form {
    DType dtype = DType::kNone;
    std::vector<int64_t> shape;
    std::vector<int> order;  // axes from the outermost in memory to the innermost; empty: as in the shape
};

class TensorMaker {
public:
    using Values = std::function<double(int64_t)>;

    TensorMaker(Contents contents, uint64_t seed) : contents_(contents), random_(seed) {}

    Tensor make(const std::string& name, Form form, const Values& values);
    Tensor make(const std::string& name, Form form, const std::vector<int64_t>& values);
    // int32, one axis.
    Tensor integers(const std::string& name, const std::vector<int64_t>& values);

    Values normal();                               // standard normal
    Values visible(double probability);            // 1 or 0
    static double unwritten(int64_t);              // NaN, for outputs
    std::vector<int64_t> shuffled(int64_t count);  // 0 .. count - 1

    std::map<std::string, HostTensor> take_memory() { return std::move(memory_); }

private:
    Contents contents_;
    std::mt19937_64 random_;
    std::map<std::string, HostTensor> memory_;
};

}  // namespace tilewise::cli
