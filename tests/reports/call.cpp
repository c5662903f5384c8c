// Runs calls on kernels and compares; see call.hpp.
#include "call.hpp"

#include <map>
#include <nlohmann/json.hpp>

namespace reports {

namespace {

using Json = nlohmann::json;

std::vector<std::string> find_kernels(Op op, DType dtype) {
    const char* const wanted = op == Op::kBackward ? "backward" : "forward";
    const char* const kind = device().is_host() ? "cpu" : "cuda";
    std::vector<std::string> names;
    for (const std::string& text : tilewise::kernels()) {
        const Json kernel = Json::parse(text);
        if (kernel["op"] != wanted || kernel["device"] != kind) continue;
        const std::string name = kernel["name"];
        try {
            const Call smallest(dtype, {});
            tilewise::Plan(device(), op == Op::kBackward ? op : Op::kForward, smallest.attention(op, name));
            names.push_back(name);
        } catch (const tilewise::Error& error) {
            // An instruction set that this CPU lacks, or another element type; nothing else keeps a kernel from so small a call.
            EXPECT_EQ(error.status(), tilewise::Status::kUnsupported) << error.what();
        }
    }
    EXPECT_FALSE(names.empty()) << "no " << wanted << " kernel runs here";
    return names;
}

double largest_finite(const Array& x) {
    double largest = 0.0;
    x.each([&](auto... at) {
        if (const double value = std::fabs(x(at...)); std::isfinite(value)) largest = std::max(largest, value);
    });
    return largest;
}

// same(value, place...) of every element; reports the first that differs, with how many do.
template <class Same> void expect_each(const Array& actual, const std::string& name, Same&& same) {
    std::int64_t wrong = 0;
    std::string first;
    actual.each([&](auto... at) {
        const double value = actual(at...);
        if (same(value, at...)) return;
        if (wrong++ > 0) return;
        ((first += "[" + std::to_string(at) + "]"), ...);
        first += " is " + std::to_string(value);
    });
    EXPECT_EQ(wrong, 0) << name << first << "; " << wrong << " of " << actual.count() << " elements are wrong";
}

bool same_bits(double a, double b) {
    return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b) || (std::isnan(a) && std::isnan(b));
}

}  // namespace

const std::vector<std::string>& kernels_of(Op op, DType dtype) {
    static std::map<std::pair<bool, DType>, std::vector<std::string>> known;
    const auto [place, is_new] = known.try_emplace({op == Op::kBackward, dtype});
    if (is_new) place->second = find_kernels(op, dtype);
    return place->second;
}

namespace {
// Kept for the next call, as a user's would be.
tilewise::Workspace& workspace() {
    static tilewise::Workspace kept(device());
    return kept;
}
}  // namespace

void run(Op op, const tilewise::Attention& call) {
    switch (op) {
    case Op::kForward: tilewise::forward(device(), call, workspace()); break;
    case Op::kBackward: tilewise::backward(device(), call, workspace()); break;
    case Op::kDecode: tilewise::decode(device(), call, workspace()); break;
    default: tilewise::append(device(), call, workspace());
    }
    tilewise::synchronize(device());
}
void run(const tilewise::Plan& plan, const tilewise::Attention& call) {
    plan.launch(call, workspace());
    tilewise::synchronize(device());
}
void run(const tilewise::Combination& call) {
    tilewise::combine(device(), call, workspace());
    tilewise::synchronize(device());
}

double forward_tolerance(DType dtype) {
    switch (dtype) {
    case DType::kF64: return 1e-12;
    case DType::kF32: return 1e-5;
    case DType::kF16: return 0x1p-10;
    default: return 0x1p-7;
    }
}
double backward_tolerance(DType dtype) { return 2.0 * forward_tolerance(dtype); }

namespace {
void expect_within(const Array& actual, const Array& expected, double bound, const char* name) {
    ASSERT_EQ(actual.shape(), expected.shape()) << name;
    expect_each(actual, name, [&](double value, auto... at) {
        const double wanted = expected(at...);
        if (!std::isfinite(wanted) || !std::isfinite(value)) return same_bits(value, wanted);
        return std::fabs(value - wanted) <= bound;
    });
}
}  // namespace

void expect_close(const Array& actual, const Array& expected, double tolerance, const char* name) {
    expect_within(actual, expected, tolerance * std::max(largest_finite(expected), 1e-2), name);
}
void expect_same_bits(const Array& actual, const Array& expected, const char* name) {
    ASSERT_EQ(actual.shape(), expected.shape()) << name;
    expect_each(actual, name, [&](double value, auto... at) { return same_bits(value, expected(at...)); });
}
void expect_all(const Array& actual, double value, const char* name) {
    expect_each(actual, name + (" should be " + std::to_string(value)) + ", but ",
                [&](double x, auto...) { return x == value || (std::isnan(x) && std::isnan(value)); });
}
void expect_finite(const Array& actual, const char* name) {
    expect_each(actual, name, [](double x, auto...) { return std::isfinite(x); });
}
void expect_at_most(const Array& actual, double bound, const char* name) {
    expect_each(actual, name, [&](double x, auto...) { return std::fabs(x) <= bound; });
}

Call::Call(DType dtype, const Shape& s, unsigned seed) {
    const std::int64_t dv = s.dv > 0 ? s.dv : s.d;
    q = random(dtype, {s.b, s.sq, s.h, s.d}, seed);
    k = random(dtype, {s.b, s.sk, s.hk, s.d}, seed + 1);
    v = random(dtype, {s.b, s.sk, s.hk, dv}, seed + 2);
    grad.o = random(dtype, {s.b, s.sq, s.h, dv}, seed + 3);
    o = Array(dtype, {s.b, s.sq, s.h, dv});
    lse = Array(dtype == DType::kF64 ? DType::kF64 : DType::kF32, {s.b, s.h, s.sq, 1});
    grad.q = Array(dtype, q.shape());
    grad.k = Array(dtype, k.shape());
    grad.v = Array(dtype, v.shape());
}

tilewise::Attention Call::attention(Op op, const std::string& kernel) const {
    const std::size_t packed_q = lengths.cu_seqlens_q.given(), packed_k = lengths.cu_seqlens_k.given();
    tilewise::Attention call{.q = q.view(packed_q),
                             .k = k.view(packed_k),
                             .v = v.view(packed_k),
                             .o = o.view(packed_q),
                             .lse = lse.view(packed_q, 3),
                             .lengths = lengths,
                             .mask = mask,
                             .score = score,
                             .cache = cache,
                             .options = options};
    if (op == Op::kBackward)
        call.gradients = {.grad_o = grad.o.view(packed_q),
                          .grad_q = grad.q.view(packed_q),
                          .grad_k = grad.k.view(packed_k),
                          .grad_v = grad.v.view(packed_k)};
    if (!kernel.empty()) call.options.kernel = kernel;
    return call;
}

void Call::forward(const std::string& kernel) const {
    o.fill(kNaN);
    lse.fill(kNaN);
    run(Op::kForward, attention(Op::kForward, kernel));
}
void Call::decode(const std::string& kernel) const {
    o.fill(kNaN);
    lse.fill(kNaN);
    run(Op::kDecode, attention(Op::kDecode, kernel));
}
void Call::backward(const std::string& kernel) const {
    for (const Array& x : {grad.q, grad.k, grad.v}) x.fill(kNaN);
    run(Op::kBackward, attention(Op::kBackward, kernel));
}

void expect_outputs(const Call& call, const Answer& expected) {
    expect_close(call.o, expected.o, forward_tolerance(call.dtype()), "o");
    expect_close(call.lse, expected.lse, 1e-5, "lse");
}
// One bound for the three: where P is nearly constant grad_q and grad_k are differences of numbers as large as grad_v.
void expect_gradients(const Call& call, const Gradients& expected) {
    double largest = 1e-2;
    for (const Array& x : {expected.q, expected.k, expected.v}) largest = std::max(largest, largest_finite(x));
    const double bound = backward_tolerance(call.dtype()) * largest;
    expect_within(call.grad.q, expected.q, bound, "grad_q");
    expect_within(call.grad.k, expected.k, bound, "grad_k");
    expect_within(call.grad.v, expected.v, bound, "grad_v");
}
Answer expected_outputs(const Call& call, const Rules& rules) {
    return Oracle(call.q, call.k, call.v, rules).forward();
}
Gradients expected_gradients(const Call& call, const Rules& rules) {
    return Oracle(call.q, call.k, call.v, rules).gradients(call.grad.o);
}

void expect_forward(const Call& call, const Rules& rules) {
    const Answer expected = expected_outputs(call, rules);
    on_every_kernel(Op::kForward, call.dtype(), [&](const std::string& kernel) {
        call.forward(kernel);
        expect_outputs(call, expected);
    });
}
void expect_backward(const Call& call, const Rules& rules) {
    expect_forward(call, rules);
    call.forward();
    const Gradients expected = expected_gradients(call, rules);
    on_every_kernel(Op::kBackward, call.dtype(), [&](const std::string& kernel) {
        call.backward(kernel);
        expect_gradients(call, expected);
    });
}

void expect_decode(const Call& call, const Rules& rules) {
    const Answer expected = expected_outputs(call, rules);
    on_every_kernel(Op::kDecode, call.dtype(), [&](const std::string& kernel) {
        call.decode(kernel);
        expect_outputs(call, expected);
    });
}

void expect_packed_forward(const Call& call, const Ints& cu_seqlens_q, const Ints& cu_seqlens_k,
                           const RulesOfLengths& rules) {
    std::vector<std::pair<Call, Answer>> answers;
    for (std::size_t n = 0; n + 1 < cu_seqlens_q.size(); ++n) {
        const Call one = sequence_of(call, cu_seqlens_q, cu_seqlens_k, n);
        answers.emplace_back(one, expected_outputs(one, rules(one.q.size(1), one.k.size(1))));
    }
    on_every_kernel(Op::kForward, call.dtype(), [&](const std::string& kernel) {
        call.forward(kernel);
        for (const auto& [one, expected] : answers) expect_outputs(one, expected);
    });
}
void expect_packed_backward(const Call& call, const Ints& cu_seqlens_q, const Ints& cu_seqlens_k,
                            const RulesOfLengths& rules) {
    expect_packed_forward(call, cu_seqlens_q, cu_seqlens_k, rules);
    call.forward();
    std::vector<std::pair<Call, Gradients>> answers;
    for (std::size_t n = 0; n + 1 < cu_seqlens_q.size(); ++n) {
        const Call one = sequence_of(call, cu_seqlens_q, cu_seqlens_k, n);
        answers.emplace_back(one, expected_gradients(one, rules(one.q.size(1), one.k.size(1))));
    }
    on_every_kernel(Op::kBackward, call.dtype(), [&](const std::string& kernel) {
        call.backward(kernel);
        for (const auto& [one, expected] : answers) expect_gradients(one, expected);
    });
}

Call sequence_of(const Call& batch, std::int64_t n) {
    Call one = batch;
    for (Array* x : {&one.q, &one.k, &one.v, &one.o, &one.lse, &one.grad.o, &one.grad.q, &one.grad.k, &one.grad.v})
        *x = x->part(0, n, 1);
    return one;
}
Call sequence_of(const Call& packed, Rows queries, Rows keys) {
    Call one = packed;
    one.lengths = {};
    const std::int64_t num_queries = queries.end - queries.begin, num_keys = keys.end - keys.begin;
    for (Array* x : {&one.q, &one.o, &one.grad.o, &one.grad.q}) *x = x->part(1, queries.begin, num_queries);
    for (Array* x : {&one.k, &one.v, &one.grad.k, &one.grad.v}) *x = x->part(1, keys.begin, num_keys);
    one.lse = packed.lse.part(2, queries.begin, num_queries);
    return one;
}
Call sequence_of(const Call& packed, const Ints& cu_seqlens_q, const Ints& cu_seqlens_k, std::size_t n) {
    return sequence_of(packed, {cu_seqlens_q[n], cu_seqlens_q[n + 1]}, {cu_seqlens_k[n], cu_seqlens_k[n + 1]});
}

}  // namespace reports
