// The kernels on CUDA cores against the oracle, feature by feature, in all element types; and that they repeat bit for bit. (The
// conformance sweep covers the same rows through the public interface, with strides and odd addresses.)
#include <cmath>

#include "cuda/sm80/f32_backend.hpp"
#include "shared_device_call.hpp"

namespace tilewise::test {
namespace {

constexpr DType kF32 = DType::kF32;

const KernelRow& f32_row(const std::string& name) {
    static const Registry registry = [] {
        Registry rows;
        cuda::sm80::register_f32_rows(rows);
        return rows;
    }();
    return *registry.find(name);
}

struct Shape {
    int64_t batch = 2, rows = 70, keys = 150, heads = 4, heads_kv = 2, dim = 40, dim_v = 40;
};

struct Feature {
    const char* name;
    void (*configure)(KernelCall&, const Shape&);
    Shape shape = {};
    bool has_gradient = true;  // a paged or indexed cache has none
};
void PrintTo(const Feature& feature, std::ostream* out) { *out << feature.name; }

void set_pair(KernelCall& call, Arg arg, DType dtype, const std::vector<int64_t>& shape) {
    int64_t count = 1;
    for (const int64_t n : shape) count *= n;
    Values values = random_values(static_cast<size_t>(count), 77);
    if (dtype == DType::kBool)
        for (double& x : values) x = x > -0.5;
    if (dtype == DType::kBits)
        for (double& x : values) x = std::fmod(std::abs(x) * 1000, 256);
    call.set(arg, dtype, shape, values);
}

void make_ragged(KernelCall& call, const Shape& s) {
    const auto flatten = [&](Arg arg) {
        const TensorDesc& t = call.problem[arg];
        call.set(arg, t.dtype, {t.dim(0) * t.dim(1), t.dim(2), t.dim(3)}, call.values(arg));
    };
    for (const Arg arg : {Arg::kQ, Arg::kK, Arg::kV, Arg::kO}) flatten(arg);
    call.set(Arg::kLse, kF32, {s.heads, s.batch * s.rows});
    call.set_ints(Arg::kCuSeqlensQ, {0, 3, 3, 100, 135}).set_ints(Arg::kCuSeqlensK, {0, 64, 130, 130, 280});
}

void make_paged(KernelCall& call, const Shape& s) {
    const int64_t page_size = 7, pages = 30;
    const auto count = static_cast<size_t>(pages * page_size * s.heads_kv);
    const DType dtype = call.problem[Arg::kK].dtype;
    call.set(Arg::kK, dtype, {pages, page_size, s.heads_kv, s.dim},
             random_values(count * static_cast<size_t>(s.dim), 5));
    call.set(Arg::kV, dtype, {pages, page_size, s.heads_kv, s.dim_v},
             random_values(count * static_cast<size_t>(s.dim_v), 6));
    Values ids(3 * 12);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<double>((i * 7 + 1) % 30);
    call.set(Arg::kPageTable, DType::kI32, {3, 12}, ids);
    call.set_ints(Arg::kCacheBatchIdx, {2, 0}).set_ints(Arg::kSequsedK, {80, 33}).set_ints(Arg::kLeftpadK, {5, 0});
}

const Feature kFeatures[] = {
    {"plain", [](KernelCall&, const Shape&) {}},
    {"tiny", [](KernelCall&, const Shape&) {}, {1, 1, 1, 1, 1, 1, 1}},
    {"wide", [](KernelCall&, const Shape&) {}, {1, 65, 129, 2, 1, 256, 512}},
    {"odd_dims", [](KernelCall&, const Shape&) {}, {2, 33, 66, 3, 3, 33, 131}},
    {"dims_64_128", [](KernelCall&, const Shape&) {}, {1, 128, 64, 2, 2, 64, 128}},
    {"one_query", [](KernelCall&, const Shape&) {}, {3, 1, 700, 8, 2, 64, 64}},
    {"few_queries_causal",
     [](KernelCall& c, const Shape&) { c.problem.mask.window_right = 0; },
     {2, 5, 300, 6, 2, 64, 64}},
    {"causal", [](KernelCall& c, const Shape&) { c.problem.mask.window_right = 0; }},
    {"causal_more_queries",
     [](KernelCall& c, const Shape&) { c.problem.mask.window_right = 0; },
     {1, 200, 70, 2, 1, 32, 48}},
    {"window",
     [](KernelCall& c, const Shape&) {
         c.problem.mask.window_left = 20;
         c.problem.mask.window_right = 3;
         c.problem.mask.top_left = true;
     }},
    {"chunk", [](KernelCall& c, const Shape&) { c.problem.mask.chunk = 30; }},
    {"prefix",
     [](KernelCall& c, const Shape&) {
         c.problem.mask.window_right = 0;
         c.set_ints(Arg::kPrefixLens, {90, 3});
     }},
    {"documents",
     [](KernelCall& c, const Shape& s) {
         std::vector<int> begin, end;
         for (int64_t i = 0; i < s.batch * s.rows; ++i) {
             begin.push_back(static_cast<int>(i % 100));
             end.push_back(static_cast<int>(i % 100 + i % 37));
         }
         c.set_ints(Arg::kKeyBegin, {s.batch, s.rows}, begin).set_ints(Arg::kKeyEnd, {s.batch, s.rows}, end);
     }},
    {"bool_mask",
     [](KernelCall& c, const Shape& s) {
         set_pair(c, Arg::kMask, DType::kBool, {s.batch, 1, s.rows, s.keys});
     }},
    {"bit_mask",
     [](KernelCall& c, const Shape& s) {
         set_pair(c, Arg::kMask, DType::kBits, {1, s.heads, s.rows, (s.keys + 7) / 8});
     }},
    {"softcap", [](KernelCall& c, const Shape&) { c.problem.score.softcap = 1.5f; }},
    {"alibi",
     [](KernelCall& c, const Shape& s) {
         c.set(Arg::kAlibiSlopes, kF32, {s.heads}, {0.5, 0.125, 0.01, 0});
     }},
    {"bias",
     [](KernelCall& c, const Shape& s) {
         set_pair(c, Arg::kBias, kF32, {s.batch, s.heads, s.rows, s.keys});
     }},
    {"bias_of_heads",
     [](KernelCall& c, const Shape& s) {
         set_pair(c, Arg::kBias, kF32, {1, s.heads, s.rows, s.keys});
     }},
    {"bias_of_keys",
     [](KernelCall& c, const Shape& s) {
         set_pair(c, Arg::kBias, kF32, {s.batch, 1, 1, s.keys});
     }},
    {"bias_of_rows",
     [](KernelCall& c, const Shape& s) {
         set_pair(c, Arg::kBias, kF32, {1, 1, s.rows, 1});
     }},
    {"sink",
     [](KernelCall& c, const Shape& s) {
         c.set(Arg::kSink, kF32, {s.heads}, {1, -2, 3, 0});
         c.problem.mask.window_right = 0;
         c.problem.mask.window_left = 4;
     }},
    {"dropout",
     [](KernelCall& c, const Shape&) {
         c.problem.score.dropout_p = 0.3f;
         c.problem.score.dropout_seed = 12345;
         c.problem.score.dropout_offset = uint64_t{1} << 33;
     }},
    {"everything",
     [](KernelCall& c, const Shape& s) {
         c.problem.score.dropout_p = 0.2f;
         c.problem.score.softcap = 2.0f;
         c.problem.mask.window_right = 5;
         c.set(Arg::kAlibiSlopes, kF32, {s.batch, s.heads}, random_values(8, 3, 0.1));
         c.set(Arg::kSink, kF32, {s.heads}, {1, -2, 3, 0});
         set_pair(c, Arg::kBias, kF32, {1, s.heads, 1, s.keys});
         set_pair(c, Arg::kMask, DType::kBool, {1, 1, s.rows, s.keys});
         c.set_ints(Arg::kSequsedQ, {70, 41}).set_ints(Arg::kSequsedK, {150, 99}).set_ints(Arg::kLeftpadK, {20, 0});
     }},
    {"ragged",
     [](KernelCall& c, const Shape& s) {
         make_ragged(c, s);
         c.problem.mask.window_right = 0;
     }},
    {"ragged_used",
     [](KernelCall& c, const Shape& s) {
         make_ragged(c, s);
         c.set_ints(Arg::kSequsedQ, {2, 0, 90, 35}).set_ints(Arg::kSequsedK, {64, 3, 0, 100});
         c.set(Arg::kSink, kF32, {s.heads}, {1, -2, 3, 0});
     }},
    {"paged", make_paged, {}, false},
    {"paged_one_query", make_paged, {2, 1, 84, 4, 2, 40, 40}, false},
    {"no_keys",
     [](KernelCall& c, const Shape&) {
         c.set_ints(Arg::kSequsedK, {0, 0});
     }},
};

KernelCall forward_call(const Feature& feature, DType dtype) {
    const Shape& s = feature.shape;
    KernelCall call(Op::kForward);
    const auto tensor = [&](Arg arg, int64_t rows, int64_t heads, int64_t dim) {
        call.set(arg, dtype, {s.batch, rows, heads, dim},
                 random_values(static_cast<size_t>(s.batch * rows * heads * dim), static_cast<uint64_t>(arg)));
    };
    tensor(Arg::kQ, s.rows, s.heads, s.dim);
    tensor(Arg::kK, s.keys, s.heads_kv, s.dim);
    tensor(Arg::kV, s.keys, s.heads_kv, s.dim_v);
    call.set(Arg::kO, dtype, {s.batch, s.rows, s.heads, s.dim_v}).set(Arg::kLse, kF32, {s.batch, s.heads, s.rows});
    feature.configure(call, s);
    for (const Arg arg : {Arg::kO, Arg::kLse})
        for (int64_t i = 0; i < call.count(arg); ++i) call.put(arg, i, kNaN);
    return call;
}

// Adds what a backward takes to a call whose o and lse are known.
void make_backward(KernelCall& call) {
    call.problem.op = Op::kBackward;
    for (const Arg arg : {Arg::kO, Arg::kLse})  // rows of no sequence
        for (int64_t i = 0; i < call.count(arg); ++i)
            if (std::isnan(call.at(arg, i))) call.put(arg, i, 0);
    const auto like = [&](Arg arg, Arg of, bool filled) {
        const TensorDesc& t = call.problem[of];
        const std::vector<int64_t> shape(t.shape.begin(), t.shape.begin() + t.rank);
        call.set(arg, t.dtype, shape,
                 filled ? random_values(static_cast<size_t>(t.num_elements()), static_cast<uint64_t>(arg)) : Values{});
    };
    like(Arg::kGradO, Arg::kO, true);
    like(Arg::kGradLse, Arg::kLse, true);
    like(Arg::kGradQ, Arg::kQ, false);
    like(Arg::kGradK, Arg::kK, false);
    like(Arg::kGradV, Arg::kV, false);
    if (call.problem.has(Arg::kBias)) like(Arg::kGradBias, Arg::kBias, false);
    if (call.problem.has(Arg::kSink)) like(Arg::kGradSink, Arg::kSink, false);
}

// Within `relative` of the largest expected element.
void expect_close(const Values& actual, const Values& expected, double relative, const std::string& what) {
    double largest = 1e-3;
    for (const double x : expected)
        if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
    expect_near(actual, expected, relative * largest, what);
}

constexpr Arg kGradients[] = {Arg::kGradQ, Arg::kGradK, Arg::kGradV, Arg::kGradBias, Arg::kGradSink};

using Case = std::tuple<Feature, DType>;
class F32Attention : public testing::TestWithParam<Case> {
protected:
    void SetUp() override { TILEWISE_NEEDS_GPU(); }
    Feature feature() const { return std::get<0>(GetParam()); }
    DType dtype() const { return std::get<1>(GetParam()); }
    double tolerance() const { return dtype() == kF32 ? 3e-6 : dtype() == DType::kF16 ? 2e-3 : 1.2e-2; }
};
INSTANTIATE_TEST_SUITE_P(Features, F32Attention,
                         testing::Combine(testing::ValuesIn(kFeatures),
                                          testing::Values(kF32, DType::kF16, DType::kBF16)),
                         [](const auto& instance) {
                             return std::string(std::get<0>(instance.param).name) + "_" +
                                    name_of(std::get<1>(instance.param));
                         });

TEST_P(F32Attention, ForwardIsTheOracles) {
    KernelCall call = forward_call(feature(), dtype());
    KernelCall expected = call;
    expected.run("cpu_reference_forward");
    for (const int num_splits : {1, 0, 3}) {  // 0: as the plan would choose
        DeviceCall device(call);
        device.step.problem.exec.num_splits = num_splits;
        device.run(f32_row("sm80_f32_forward"));
        const std::string what = "with " + std::to_string(num_splits) + " splits";
        expect_close(device.values(Arg::kO), expected.values(Arg::kO), tolerance(), "o " + what);
        expect_close(device.values(Arg::kLse), expected.values(Arg::kLse), 3e-6, "lse " + what);
    }
}

TEST_P(F32Attention, BackwardIsTheOraclesAndRepeats) {
    if (!feature().has_gradient) return;
    KernelCall call = forward_call(feature(), dtype());
    call.run("cpu_reference_forward");
    make_backward(call);
    DeviceCall device(call), again(call);
    device.run(f32_row("sm80_f32_backward"));
    again.run(f32_row("sm80_f32_backward"));
    call.run("cpu_reference_backward");
    for (const Arg arg : kGradients) {
        if (!call.problem.has(arg)) continue;
        // The oracle forms delta from probabilities; delta from a rounded o is off by the rounding of o.
        const double relative = dtype() == kF32 ? 2e-5 : 4 * tolerance();
        expect_close(device.values(arg), call.values(arg), relative, name_of(arg));
        EXPECT_EQ(device.bytes(arg), again.bytes(arg)) << name_of(arg);
    }
}

}  // namespace
}  // namespace tilewise::test
