// One key, so every output row is its value: exits with 0 if so.
#include <tilewise/tilewise.hpp>
#include <vector>

int main() {
    std::vector<float> q(6, 1.0f), k(2, 1.0f), v = {3.0f, 4.0f}, o(6);
    tilewise::forward(tilewise::Device("cpu"),
                      {.q = {q, {1, 3, 1, 2}}, .k = {k, {1, 1, 1, 2}}, .v = {v, {1, 1, 1, 2}}, .o = {o, {1, 3, 1, 2}}});
    return o == std::vector<float>{3.0f, 4.0f, 3.0f, 4.0f, 3.0f, 4.0f} ? 0 : 1;
}
