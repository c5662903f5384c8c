// Causal attention on the CPU in ten lines: q (2, 1000, 9, 64), k and v (2, 1000, 3, 64) -> o (2, 1000, 9, 64).
// Every value row is the same, so every output row is that row whatever the weights are: prints 2. README.md shows the marked lines.
// [readme]
#include <cstdio>
#include <tilewise/tilewise.hpp>
#include <vector>

int main() {
    const tilewise::Shape rows(2, 1000, 9, 64), keys(2, 1000, 3, 64);  // batch, sequence, heads, head_dim
    std::vector<float> q(2 * 1000 * 9 * 64, 0.1f), k(2 * 1000 * 3 * 64, 0.1f), v(k.size(), 2.0f), o(q.size());
    tilewise::Device cpu("cpu");
    tilewise::forward(cpu, {.q{q, rows}, .k{k, keys}, .v{v, keys}, .o{o, rows}, .mask{.causal = true}});
    std::printf("o[0] = %g\n", o[0]);
}
// [/readme]
