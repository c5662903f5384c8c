// A call of the library with its tensors, run on every kernel that the device can run and compared with the oracle.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "oracle.hpp"

namespace reports {

using tilewise::Op;

class Reports : public testing::Test {
protected:
    void SetUp() override { begin_test(); }
};

// Names of the kernels for `op` (kDecode: those of a forward) and element type that the device can run, on a CPU whatever its instruction set.
const std::vector<std::string>& kernels_of(Op op, DType dtype);

// The plain loops of the CPU: slow, without splits or an order of sums to lose.
inline bool is_reference(const std::string& kernel) { return kernel.find("reference") != std::string::npos; }

// body(kernel name) for each of them. A kernel of a GPU may say that it does not serve the call: its head_dims are narrower, or it knows no
// modifiers; some kernel must.
template <class Body> void on_every_kernel(Op op, DType dtype, Body&& body) {
    int served = 0;
    for (const std::string& kernel : kernels_of(op, dtype)) {
        SCOPED_TRACE(kernel);
        try {
            body(kernel);
            ++served;
        } catch (const tilewise::Error& error) {
            if (device().is_host() || error.status() != tilewise::Status::kUnsupported) throw;
        }
    }
    EXPECT_GT(served, 0);
}

// Any call of the public interface, with a workspace of the device; on return the host sees what it wrote.
void run(Op op, const tilewise::Attention& call);
void run(const tilewise::Combination& call);
void run(const tilewise::Plan& plan, const tilewise::Attention& call);

// Largest allowed difference, relative to the largest expected number: a few roundings of P and of the result.
double forward_tolerance(DType dtype);
double backward_tolerance(DType dtype);

// Element by element; NaN and infinities in the same places.
void expect_close(const Array& actual, const Array& expected, double tolerance, const char* name);
void expect_same_bits(const Array& actual, const Array& expected, const char* name);
void expect_all(const Array& actual, double value, const char* name);
void expect_finite(const Array& actual, const char* name);
void expect_at_most(const Array& actual, double bound, const char* name);  // in magnitude

struct Shape {
    std::int64_t b = 1, sq = 1, sk = 1, h = 1, hk = 1, d = 8, dv = 0;  // dv 0: d
};

// q, k, v are random; outputs are NaN. Tensors can be replaced by others (strided, shared, larger) before a run. With lengths.cu_seqlens_q
// q, o, lse are packed: (1, total_q, h, d) here, three axes for the library; with lengths.cu_seqlens_k k and v.
struct Call {
    Call(DType dtype, const Shape& shape, unsigned seed = 1);

    Array q, k, v, o, lse;
    struct {
        Array o, q, k, v;
    } grad;
    tilewise::Lengths lengths{};
    tilewise::Mask mask{};
    tilewise::Score score{};
    tilewise::Cache cache{};
    tilewise::Options options{};

    tilewise::Attention attention(Op op, const std::string& kernel = "") const;
    // Outputs are set to NaN first.
    void forward(const std::string& kernel = "") const;
    void decode(const std::string& kernel = "") const;
    void backward(const std::string& kernel = "") const;  // after a forward

    DType dtype() const { return q.dtype(); }
};

// What the last run left in the outputs, against the oracle's answer.
void expect_outputs(const Call& call, const Answer& expected);
void expect_gradients(const Call& call, const Gradients& expected);
Answer expected_outputs(const Call& call, const Rules& rules = {});
Gradients expected_gradients(const Call& call, const Rules& rules = {});

// A dense call on every kernel: o and lse; then also the gradients, each kernel from the o and lse of the default forward.
void expect_forward(const Call& call, const Rules& rules = {});
void expect_backward(const Call& call, const Rules& rules = {});
void expect_decode(const Call& call, const Rules& rules = {});

// A packed call on every kernel, sequence by sequence. The rules of a sequence follow from its lengths.
using RulesOfLengths = std::function<Rules(std::int64_t seqlen_q, std::int64_t seqlen_k)>;
void expect_packed_forward(const Call& call, const Ints& cu_seqlens_q, const Ints& cu_seqlens_k,
                           const RulesOfLengths& rules);
void expect_packed_backward(const Call& call, const Ints& cu_seqlens_q, const Ints& cu_seqlens_k,
                            const RulesOfLengths& rules);

// Sequence n of a dense batch.
Call sequence_of(const Call& batch, std::int64_t n);
// The dense call that one sequence of a packed call is: rows [q_begin, q_end) and keys [k_begin, k_end) of the same memory.
struct Rows {
    std::int64_t begin, end;
};
Call sequence_of(const Call& packed, Rows queries, Rows keys);
// Sequence n of a packed call with these cu_seqlens.
Call sequence_of(const Call& packed, const Ints& cu_seqlens_q, const Ints& cu_seqlens_k, std::size_t n);

// Expects an Error of this status whose message begins with `argument:` and holds each of the parts.
template <class Body>
void expect_refusal(Body&& body, tilewise::Status status, const std::string& argument,
                    const std::vector<std::string>& parts = {}) {
    try {
        body();
        ADD_FAILURE() << "no error; " << argument << " was expected";
    } catch (const tilewise::Error& error) {
        const std::string message = error.what();
        EXPECT_EQ(error.status(), status) << message;
        EXPECT_EQ(message.rfind(argument + ":", 0), 0u) << message;
        for (const std::string& part : parts) EXPECT_NE(message.find(part), std::string::npos) << message;
    }
}
template <class Body>
void expect_invalid(Body&& body, const std::string& argument, const std::vector<std::string>& parts = {}) {
    expect_refusal(body, tilewise::Status::kInvalidArgument, argument, parts);
}

}  // namespace reports
