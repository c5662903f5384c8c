// Cuts the rows of all matrices into panels, a few panels to an item, and hands the items to the team.
#include "linear.hpp"

#include <algorithm>

#include "kernels.hpp"

namespace tilewise::generate {

namespace {

// Rows an item covers. Small enough that the 192 rows of a key projection still spread over several threads, large
// enough that taking an item costs nothing beside computing it.
constexpr std::int64_t kItemRows = 8 * kPanelRows;

std::int64_t items_of(const Matrix& matrix) { return (matrix.rows + kItemRows - 1) / kItemRows; }

void multiply_rows(const Product& product, std::int64_t first_row, const float* x, std::int64_t tokens, float* panel) {
    const Matrix& matrix = *product.matrix;
    const std::int64_t end_row = std::min(first_row + kItemRows, matrix.rows);
    for (std::int64_t row = first_row; row < end_row; row += kPanelRows) {
        kernels().multiply({.type = matrix.type,
                            .weight = matrix.row(row),
                            .row_bytes = matrix.row_bytes,
                            .rows = std::min(kPanelRows, end_row - row),
                            .cols = matrix.cols,
                            .x = x,
                            .tokens = tokens,
                            .out = product.out + row,
                            .out_stride = matrix.rows,
                            .panel = panel});
    }
}

}  // namespace

Linear::Linear(ThreadTeam& team, std::int64_t widest)
    : team_(team), panel_floats_(kPanelRows * widest), panels_(static_cast<std::size_t>(team.size() * panel_floats_)) {}

void Linear::multiply(std::span<const Product> products, const float* x, std::int64_t tokens) {
    std::int64_t items = 0;
    for (const Product& product : products) {
        items += items_of(*product.matrix);
    }
    team_.run(items, [&](std::int64_t item, int thread) {
        for (const Product& product : products) {
            const std::int64_t own = items_of(*product.matrix);
            if (item < own) {
                multiply_rows(product, item * kItemRows, x, tokens, panels_.data() + thread * panel_floats_);
                return;
            }
            item -= own;
        }
    });
}

}  // namespace tilewise::generate
