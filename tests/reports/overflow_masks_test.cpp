// Masks and biases of more than 2^32 elements, at their true size: queries and keys are few bytes, the square of their number is address space.
// A window keeps the work near the diagonal; the mask is false, and the bias 0, wherever nothing was written.
#include "call.hpp"
#include "memory.hpp"

namespace reports {
namespace {

constexpr std::int64_t kReach = 16;

struct SquareCase {
    std::int64_t length;
    std::int64_t wraps_at;  // the first row whose offset passes 2^32
};
constexpr SquareCase kSquares[] = {{65537, 65535}, {73728, 58254}, {81920, 52428}, {90000, 47721}, {98304, 43690}};

Call square_call(std::int64_t length) {
    Call call(DType::kBF16, {.sq = length, .sk = length, .d = 8});
    call.mask = {.window_left = kReach, .window_right = kReach};
    return call;
}
std::vector<std::int64_t> rows_to_look_at(const SquareCase& square) {
    std::vector<std::int64_t> rows = {0, 1000, square.length / 2, square.length - 2, square.length - 1};
    for (std::int64_t row = square.wraps_at - 2; row <= square.wraps_at + 2; ++row)
        if (row < square.length - 2) rows.push_back(row);
    return rows;
}
// One row of a call with the keys that the window leaves it.
void expect_row(const Call& call, std::int64_t row, const Rules& rules) {
    const std::int64_t begin = std::max<std::int64_t>(row - kReach, 0);
    const std::int64_t end = std::min(row + kReach + 1, call.k.size(1));
    SCOPED_TRACE("row " + std::to_string(row));
    Call one = sequence_of(call, {row, row + 1}, {begin, end});
    expect_outputs(one, expected_outputs(one, rules));
}

// The written rows of the mask see some keys of their window; all others see none.
TEST_F(Reports, R009_a_boolean_mask_past_2_32_elements) {
    for (const SquareCase& square : kSquares) {
        SCOPED_TRACE(square.length);
        const std::int64_t length = square.length;
        const SparseMemory memory(length * length);
        Call call = square_call(length);
        call.mask.mask = {memory.data(), DType::kBool, {1, 1, length, length}};
        const auto is_seen = [](std::int64_t row, std::int64_t key) { return (row + key) % 3 != 0; };
        const std::vector<std::int64_t> rows = rows_to_look_at(square);
        for (const std::int64_t row : rows)
            for (std::int64_t key = std::max<std::int64_t>(row - kReach, 0); key <= std::min(row + kReach, length - 1);
                 ++key)
                *memory.at<std::uint8_t>(row * length + key) = is_seen(row, key);
        call.forward();
        for (const std::int64_t row : rows) {
            const std::int64_t first = std::max<std::int64_t>(row - kReach, 0);
            expect_row(call, row, {.visible = [&](const Place& at) { return is_seen(row, first + at.key); }});
            call.o.part(1, row, 1).fill(0.0);
            call.lse.part(2, row, 1).fill(-kInfinity);
        }
        expect_all(call.o, 0.0, "o of the hidden rows");
        expect_all(call.lse, -kInfinity, "lse of the hidden rows");
    }
}

TEST_F(Reports, R009_an_additive_bias_past_2_32_elements) {
    for (const SquareCase& square : kSquares) {
        SCOPED_TRACE(square.length);
        const std::int64_t length = square.length;
        const SparseMemory memory(length * length * 2);
        Call call = square_call(length);
        const Array bias(DType::kBF16, {1, 1, length, length}, {0, 0, length, 1}, memory.data());
        call.score.bias = {memory.data(), DType::kBF16, {1, 1, length, length}};
        const std::vector<std::int64_t> rows = rows_to_look_at(square);
        for (const std::int64_t row : rows) {
            const std::int64_t begin = std::max<std::int64_t>(row - kReach, 0);
            bias.part(2, row, 1)
                .part(3, begin, std::min(row + kReach + 1, length) - begin)
                .randomize(static_cast<unsigned>(row), 3.0);
        }
        call.forward();
        for (const std::int64_t row : rows) {
            const std::int64_t first = std::max<std::int64_t>(row - kReach, 0);
            expect_row(call, row, {.bias = [&](const Place& at) { return bias(0, 0, row, first + at.key); }});
        }
        expect_row(call, 777, {});
        expect_finite(call.o, "o");
    }
}

}  // namespace
}  // namespace reports
