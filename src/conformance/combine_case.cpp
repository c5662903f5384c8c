// Combine against its formula in double: lse = log sum exp(lse_n), o = sum exp(lse_n - lse) o_n. An error may be as large as the roundings of
// fp32 arithmetic on the parts and the one of the output; there is no naive computation to be compared with beside that.
#include "conformance/combine_case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "conformance/element.hpp"
#include "conformance/random.hpp"
#include "conformance/storage.hpp"

namespace tilewise::conformance {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct CombineTensors {
    TensorData partial_o, partial_lse, o, lse;
};

TensorData tensor(DType dtype, std::vector<int64_t> shape, Access access, Layout layout) {
    TensorData made;
    made.dtype = dtype;
    made.shape = std::move(shape);
    made.values.assign(static_cast<size_t>(made.num_elements()), 0);
    made.access = access;
    made.layout = layout;
    return made;
}

CombineTensors make_tensors(const CombineCase& c, DType dtype) {
    const auto shape = [&](bool partial, std::initializer_list<int64_t> trailing) {
        std::vector<int64_t> all;
        if (partial) all.push_back(c.sizes.splits);
        if (!c.ragged) all.push_back(c.sizes.batch);
        all.insert(all.end(), trailing);
        return all;
    };
    CombineTensors t;
    t.partial_o = tensor(dtype, shape(true, {c.sizes.rows, c.sizes.heads, c.sizes.dim}), Access::kIn, c.layout);
    t.partial_lse = tensor(DType::kF32, shape(true, {c.sizes.heads, c.sizes.rows}), Access::kIn, c.layout);
    t.o = tensor(c.output, shape(false, {c.sizes.rows, c.sizes.heads, c.sizes.dim}), Access::kOut, c.layout);
    t.lse = tensor(DType::kF32, shape(false, {c.sizes.heads, c.sizes.rows}), Access::kOut, c.layout);
    return t;
}

int64_t num_batches(const CombineCase& c) { return c.ragged ? 1 : c.sizes.batch; }

// Indices of a (batch, row, head) in one part.
int64_t o_index(const CombineCase& c, int64_t b, int64_t row, int64_t head) {
    return ((b * c.sizes.rows + row) * c.sizes.heads + head) * c.sizes.dim;
}
int64_t lse_index(const CombineCase& c, int64_t b, int64_t row, int64_t head) {
    return (b * c.sizes.heads + head) * c.sizes.rows + row;
}

void fill(const CombineCase& c, CombineTensors* t) {
    Random random(c.seed);
    const int64_t o_part = num_batches(c) * c.sizes.rows * c.sizes.heads * c.sizes.dim,
                  lse_part = num_batches(c) * c.sizes.rows * c.sizes.heads;
    for (int64_t part = 0; part < c.sizes.splits; ++part)
        for (int64_t b = 0; b < num_batches(c); ++b)
            for (int64_t row = 0; row < c.sizes.rows; ++row)
                for (int64_t head = 0; head < c.sizes.heads; ++head) {
                    const bool empty = random.chance(c.empty_parts);
                    double* o = t->partial_o.values.data() + part * o_part + o_index(c, b, row, head);
                    for (int64_t i = 0; i < c.sizes.dim; ++i)
                        o[i] = empty ? std::numeric_limits<double>::quiet_NaN()
                                     : rounded(t->partial_o.dtype, random.normal());
                    t->partial_lse.values[static_cast<size_t>(part * lse_part + lse_index(c, b, row, head))] =
                        empty ? -kInfinity : rounded(DType::kF32, c.lse_scale * random.normal());
                }
}

struct Merged {
    double lse = -kInfinity;
    double lse_rounding = 0;
    std::vector<double> o, rounding;
};

Merged merge_row(const CombineCase& c, const CombineTensors& t, int64_t o_at, int64_t lse_at) {
    const int64_t o_part = num_batches(c) * c.sizes.rows * c.sizes.heads * c.sizes.dim,
                  lse_part = num_batches(c) * c.sizes.rows * c.sizes.heads;
    const double unit = unit_roundoff(DType::kF32);
    const auto lse_of = [&](int64_t part) {
        return t.partial_lse.values[static_cast<size_t>(part * lse_part + lse_at)];
    };
    Merged merged;
    merged.o.assign(static_cast<size_t>(c.sizes.dim), 0);
    merged.rounding.assign(static_cast<size_t>(c.sizes.dim), tiny_roundoff(c.output));
    double maximum = -kInfinity, sum = 0;
    for (int64_t part = 0; part < c.sizes.splits; ++part) maximum = std::max(maximum, lse_of(part));
    if (maximum == -kInfinity) return merged;
    for (int64_t part = 0; part < c.sizes.splits; ++part) sum += std::exp(lse_of(part) - maximum);
    merged.lse = maximum + std::log(sum);
    merged.lse_rounding = unit * (std::fabs(merged.lse) + 4);
    for (int64_t part = 0; part < c.sizes.splits; ++part) {
        const double lse = lse_of(part), weight = std::exp(lse - merged.lse);
        if (lse == -kInfinity) continue;
        for (int64_t i = 0; i < c.sizes.dim; ++i) {
            const double term = weight * t.partial_o.values[static_cast<size_t>(part * o_part + o_at + i)];
            merged.o[static_cast<size_t>(i)] += term;
            merged.rounding[static_cast<size_t>(i)] +=
                unit * (std::fabs(lse) + std::fabs(merged.lse) + 8) * std::fabs(term);
        }
    }
    for (size_t i = 0; i < merged.o.size(); ++i) merged.rounding[i] += unit_roundoff(c.output) * std::fabs(merged.o[i]);
    return merged;
}

// Empty, or what is wrong with `value`; an error may reach `allowed`.
std::string check(const std::string& what, double value, double truth, double allowed, double* worst_ratio) {
    if (value == truth) return {};
    const double ratio = std::isfinite(value) && std::isfinite(truth) ? std::fabs(value - truth) / allowed : kInfinity;
    *worst_ratio = std::max(*worst_ratio, ratio);
    return ratio <= 1 ? std::string{} : fmt::format("{} is {:.9g} instead of {:.9g}", what, value, truth);
}

CombineVerdict judge(const CombineCase& c, const CombineTensors& t, const std::vector<double>& o,
                     const std::vector<double>& lse) {
    CombineVerdict verdict;
    for (int64_t b = 0; b < num_batches(c); ++b)
        for (int64_t row = 0; row < c.sizes.rows; ++row)
            for (int64_t head = 0; head < c.sizes.heads; ++head) {
                const int64_t o_at = o_index(c, b, row, head), lse_at = lse_index(c, b, row, head);
                const Merged merged = merge_row(c, t, o_at, lse_at);
                const std::string place = fmt::format("[{}, {}, {}]", b, row, head);
                if (c.lse && verdict.fault.empty())
                    verdict.fault = check("lse" + place, lse[static_cast<size_t>(lse_at)], merged.lse,
                                          merged.lse_rounding, &verdict.worst_ratio);
                for (size_t i = 0; i < merged.o.size() && verdict.fault.empty(); ++i)
                    verdict.fault = check(fmt::format("o{}[{}]", place, i), o[static_cast<size_t>(o_at) + i],
                                          merged.o[i], merged.rounding[i], &verdict.worst_ratio);
            }
    return verdict;
}

}  // namespace

const std::vector<CombineCase>& all_combine_cases() {
    static const std::vector<CombineCase> cases = [] {
        std::vector<CombineCase> list;
        const auto add = [&list](const char* name, auto&& configure) {
            CombineCase made;
            made.name = name;
            configure(made);
            list.push_back(made);
        };
        add("combine_plain", [](CombineCase&) {});
        add("combine_one_part", [](CombineCase& c) { c.sizes.splits = 1; });
        add("combine_no_parts", [](CombineCase& c) { c.sizes.splits = 0; });
        add("combine_many_parts", [](CombineCase& c) {
            c.sizes.splits = 100;
            c.sizes.rows = 3;
        });
        add("combine_empty_parts", [](CombineCase& c) { c.empty_parts = 0.8; });
        add("combine_only_empty_parts", [](CombineCase& c) { c.empty_parts = 1; });
        add("combine_extreme_lse", [](CombineCase& c) { c.lse_scale = 1e4; });
        add("combine_ragged", [](CombineCase& c) { c.ragged = true; });
        add("combine_no_rows", [](CombineCase& c) { c.sizes.rows = 0; });
        add("combine_no_lse", [](CombineCase& c) { c.lse = false; });
        add("combine_to_bf16", [](CombineCase& c) { c.output = DType::kBF16; });
        add("combine_to_f16_unaligned", [](CombineCase& c) {
            c.output = DType::kF16;
            c.layout = Layout::kUnaligned;
            c.sizes.dim = 7;
        });
        add("combine_strided_dim", [](CombineCase& c) { c.layout = Layout::kStridedDim; });
        add("combine_dim_512", [](CombineCase& c) {
            c.sizes.dim = 512;
            c.sizes.rows = 4;
        });
        add("combine_large", [](CombineCase& c) {
            c.sizes.rows = 300;
            c.sizes.dim = 64;
        });
        return list;
    }();
    return cases;
}

CombineVerdict run_combine_case(const Device& device, const CombineCase& c, DType dtype, const std::string& kernel) {
    CombineTensors tensors = make_tensors(c, dtype);
    fill(c, &tensors);
    try {
        Storage partial_o(device, tensors.partial_o, dtype), partial_lse(device, tensors.partial_lse, DType::kF32);
        Storage o(device, tensors.o, c.output), lse(device, tensors.lse, DType::kF32);
        Combination combination;
        combination.partial_o = partial_o.view();
        combination.partial_lse = partial_lse.view();
        combination.o = o.view();
        if (c.lse) combination.lse = lse.view();
        combination.options.kernel = kernel;
        Workspace workspace(device);
        combine(device, combination, workspace);
        for (Storage* storage : {&partial_o, &partial_lse, &o, &lse}) {
            storage->fetch();
            if (const std::string damage = storage->find_damage(); !damage.empty()) return {damage, 0};
        }
        return judge(c, tensors, o.values(), lse.values());
    } catch (const Error& error) {
        return {error.what(), 0};
    }
}

}  // namespace tilewise::conformance
