// Unfused attention on OpenBLAS; see peer_attention.hpp. Compiled for the machine it runs on, with fast math, so that
// the loops between the products are vectorised as well as the compiler can; no infinities arise here, hidden scores
// are never exponentiated.
#include "peer_attention.hpp"

#include <cblas.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <thread>

namespace peer {

namespace {

// exp(x) for x <= 0, in a form that compilers vectorise: 2^n by exponent bits, 2^f by a polynomial. Relative error
// 1e-7.
inline float exp_below_zero(float x) {
    const float scaled = std::max(x * 1.44269504f, -126.0f);
    const float whole = std::floor(scaled + 0.5f);
    const float f = scaled - whole;
    const float p =
        1.0f + f * (0.693147182f + f * (0.240226462f + f * (0.0555032863f + f * (0.00961848907f + f * 0.00134f))));
    return p * std::bit_cast<float>((static_cast<int32_t>(whole) + 127) << 23);
}

float from_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
uint16_t to_bf16(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x);
    return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// The (seqlen, dim) matrix of one head: where it starts, and the distance of its rows.
struct Matrix {
    float* data;
    int64_t row_stride;
};

// fp32 heads are used where they lie, bf16 ones are converted into `buffer`.
Matrix load_head(const Problem& p, const void* tensor, int64_t head, std::vector<float>& buffer) {
    if (!p.bf16) return {static_cast<float*>(const_cast<void*>(tensor)) + head * p.dim, p.heads * p.dim};
    for (int64_t i = 0; i < p.seqlen; ++i) {
        const auto* row = static_cast<const uint16_t*>(tensor) + (i * p.heads + head) * p.dim;
        float* out = buffer.data() + i * p.dim;
        for (int64_t j = 0; j < p.dim; ++j) out[j] = from_bf16(row[j]);
    }
    return {buffer.data(), p.dim};
}
Matrix output_head(const Problem& p, void* tensor, int64_t head, std::vector<float>& buffer) {
    if (!p.bf16) return {static_cast<float*>(tensor) + head * p.dim, p.heads * p.dim};
    return {buffer.data(), p.dim};
}
void store_head(const Problem& p, void* tensor, int64_t head, const std::vector<float>& buffer) {
    if (!p.bf16) return;
    for (int64_t i = 0; i < p.seqlen; ++i) {
        auto* row = static_cast<uint16_t*>(tensor) + (i * p.heads + head) * p.dim;
        const float* in = buffer.data() + i * p.dim;
        for (int64_t j = 0; j < p.dim; ++j) row[j] = to_bf16(in[j]);
    }
}

// c (m x n) = alpha * op(a) * op(b), row-major.
struct Gemm {
    int64_t m, n, k;
    float alpha = 1.0f;
    bool transpose_a = false, transpose_b = false;
};
void gemm(const Gemm& g, Matrix a, Matrix b, Matrix c) {
    const auto flag = [](bool transpose) { return transpose ? CblasTrans : CblasNoTrans; };
    cblas_sgemm(CblasRowMajor, flag(g.transpose_a), flag(g.transpose_b), static_cast<blasint>(g.m),
                static_cast<blasint>(g.n), static_cast<blasint>(g.k), g.alpha, a.data,
                static_cast<blasint>(a.row_stride), b.data, static_cast<blasint>(b.row_stride), 0.0f, c.data,
                static_cast<blasint>(c.row_stride));
}

template <class Body> void for_each_head(const Problem& p, Body&& body) {
    std::atomic<int64_t> next{0};
    const auto work = [&](size_t thread) {
        for (int64_t head = next++; head < p.heads; head = next++) body(head, thread);
    };
    std::vector<std::thread> threads;
    for (int i = 1; i < p.threads; ++i) threads.emplace_back(work, static_cast<size_t>(i));
    work(0);
    for (std::thread& thread : threads) thread.join();
}

}  // namespace

float Problem::scale() const { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim))); }

Attention::Attention(const Problem& problem) : problem_(problem), scratch_(static_cast<size_t>(problem.threads)) {
    openblas_set_num_threads(1);
    const auto head = static_cast<size_t>(problem.seqlen * problem.dim);
    const auto square = static_cast<size_t>(problem.seqlen * problem.seqlen);
    for (Scratch& scratch : scratch_) {
        for (std::vector<float>* buffer : {&scratch.q, &scratch.k, &scratch.v, &scratch.o, &scratch.grad_o,
                                           &scratch.grad_q, &scratch.grad_k, &scratch.grad_v})
            buffer->resize(head);
        scratch.s.resize(square);
        scratch.dp.resize(square);
    }
}

void Attention::forward_head(const Tensors& tensors, int64_t head, Scratch& scratch) const {
    const Problem& p = problem_;
    const int64_t n = p.seqlen;
    const Matrix q = load_head(p, tensors.q, head, scratch.q), k = load_head(p, tensors.k, head, scratch.k);
    const Matrix v = load_head(p, tensors.v, head, scratch.v), o = output_head(p, tensors.o, head, scratch.o);
    const Matrix s{scratch.s.data(), n};
    gemm({n, n, p.dim, p.scale(), false, true}, q, k, s);
    for (int64_t i = 0; i < n; ++i) {
        float* row = s.data + i * n;
        const int64_t visible = p.causal ? i + 1 : n;
        float maximum = row[0], sum = 0.0f;
        for (int64_t j = 0; j < visible; ++j) maximum = std::max(maximum, row[j]);
        for (int64_t j = 0; j < visible; ++j) sum += row[j] = exp_below_zero(row[j] - maximum);
        const float inverse = 1.0f / sum;
        for (int64_t j = 0; j < visible; ++j) row[j] *= inverse;
        std::fill(row + visible, row + n, 0.0f);
        tensors.lse[head * n + i] = maximum + std::log(sum);
    }
    gemm({n, p.dim, n}, s, v, o);
    store_head(p, tensors.o, head, scratch.o);
}

void Attention::backward_head(const Tensors& tensors, int64_t head, Scratch& scratch) const {
    const Problem& p = problem_;
    const int64_t n = p.seqlen;
    const Matrix q = load_head(p, tensors.q, head, scratch.q), k = load_head(p, tensors.k, head, scratch.k);
    const Matrix v = load_head(p, tensors.v, head, scratch.v), o = load_head(p, tensors.o, head, scratch.o);
    const Matrix grad_o = load_head(p, tensors.grad_o, head, scratch.grad_o);
    const Matrix grad_q = output_head(p, tensors.grad_q, head, scratch.grad_q);
    const Matrix grad_k = output_head(p, tensors.grad_k, head, scratch.grad_k);
    const Matrix grad_v = output_head(p, tensors.grad_v, head, scratch.grad_v);
    const Matrix s{scratch.s.data(), n}, dp{scratch.dp.data(), n};
    gemm({n, n, p.dim, p.scale(), false, true}, q, k, s);
    gemm({n, n, p.dim, 1.0f, false, true}, grad_o, v, dp);
    for (int64_t i = 0; i < n; ++i) {
        float *p_row = s.data + i * n, *ds_row = dp.data + i * n;
        const float *o_row = o.data + i * o.row_stride, *grad_row = grad_o.data + i * grad_o.row_stride;
        float delta = 0.0f;
        for (int64_t j = 0; j < p.dim; ++j) delta += o_row[j] * grad_row[j];
        const int64_t visible = p.causal ? i + 1 : n;
        const float lse = tensors.lse[head * n + i], scale = p.scale();
        for (int64_t j = 0; j < visible; ++j) {
            p_row[j] = exp_below_zero(p_row[j] - lse);
            ds_row[j] = scale * p_row[j] * (ds_row[j] - delta);
        }
        std::fill(p_row + visible, p_row + n, 0.0f);
        std::fill(ds_row + visible, ds_row + n, 0.0f);
    }
    gemm({n, p.dim, n, 1.0f, true, false}, s, grad_o, grad_v);
    gemm({n, p.dim, n}, dp, k, grad_q);
    gemm({n, p.dim, n, 1.0f, true, false}, dp, q, grad_k);
    store_head(p, tensors.grad_v, head, scratch.grad_v);
    store_head(p, tensors.grad_q, head, scratch.grad_q);
    store_head(p, tensors.grad_k, head, scratch.grad_k);
}

void Attention::forward(const Tensors& tensors) {
    for_each_head(problem_, [&](int64_t head, size_t thread) { forward_head(tensors, head, scratch_[thread]); });
}

void Attention::backward(const Tensors& tensors) {
    for_each_head(problem_, [&](int64_t head, size_t thread) { backward_head(tensors, head, scratch_[thread]); });
}

}  // namespace peer
