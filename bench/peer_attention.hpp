// The peer of `make bench`: attention in three steps on OpenBLAS, the way it is written without a fused kernel.
//
//   forward   S = scale Q K^T (sgemm), row softmax, O = P V (sgemm)
//   backward  S = Q K^T, P = exp(S - lse), dV = P^T dO, dP = dO V^T, dS = scale P (dP - rowsum(dO * O)), dQ = dS K,
//             dK = dS^T Q
//
// Tensors are (seqlen, heads, dim), fp32 or bf16; bf16 is converted to fp32 head by head, within the timed call,
// because OpenBLAS has no other way. Threads take whole heads and call single-threaded OpenBLAS, so that none waits for
// another inside a product or a softmax. S of one head is stored in full for each thread, as unfused attention does.
#pragma once

#include <cstdint>
#include <vector>

namespace peer {

struct Problem {
    int64_t heads = 0, seqlen = 0, dim = 0;
    bool causal = false, bf16 = false;
    int threads = 1;
    float scale() const;
};

// All (seqlen, heads, dim), element type as the problem says; lse (heads, seqlen). Backward reads all of them.
struct Tensors {
    const void *q = nullptr, *k = nullptr, *v = nullptr;
    void* o = nullptr;
    float* lse = nullptr;
    const void* grad_o = nullptr;
    void *grad_q = nullptr, *grad_k = nullptr, *grad_v = nullptr;
};

// Owns the buffers and threads' scratch, so that a timed call allocates nothing.
class Attention {
public:
    explicit Attention(const Problem& problem);
    void forward(const Tensors& tensors);
    void backward(const Tensors& tensors);

private:
    struct Scratch {
        std::vector<float> q, k, v, o, grad_o, grad_q, grad_k, grad_v;  // one head, contiguous
        std::vector<float> s, dp;                                       // (seqlen, seqlen)
    };
    void forward_head(const Tensors& tensors, int64_t head, Scratch& scratch) const;
    void backward_head(const Tensors& tensors, int64_t head, Scratch& scratch) const;

    Problem problem_;
    std::vector<Scratch> scratch_;
};

}  // namespace peer
