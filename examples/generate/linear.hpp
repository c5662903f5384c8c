// The linear layers: out[t] = matrix * x[t] for all tokens t, shared among the threads of a team.
//
// Several matrices can take the same x in one call (q with k and v, gate with up): one loop to share instead of three.
// A row of the result is computed by one thread alone, so results do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "thread_team.hpp"
#include "weights.hpp"

namespace tilewise::generate {

struct Product {
    const Matrix* matrix;
    float* out;  // (tokens, matrix->rows)
};

class Linear {
public:
    // `widest` is the largest number of columns of any matrix to come.
    Linear(ThreadTeam& team, std::int64_t widest);

    // x: (tokens, cols), with the cols of every matrix in `products`.
    void multiply(std::span<const Product> products, const float* x, std::int64_t tokens);

private:
    ThreadTeam& team_;
    std::int64_t panel_floats_;
    std::vector<float> panels_;  // one per thread
};

}  // namespace tilewise::generate
