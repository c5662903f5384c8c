// The thread team, the linear layers on it, and the sampler.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "linear.hpp"
#include "sampler.hpp"
#include "synthetic_gguf.hpp"
#include "thread_team.hpp"

namespace tilewise::generate {
namespace {

TEST(ThreadTeam, DoesEveryItemOnce) {
    for (const int threads : {1, 2, 5}) {
        ThreadTeam team(threads);
        for (int loop = 0; loop < 300; ++loop) {
            std::vector<std::atomic<int>> seen(static_cast<std::size_t>(loop));
            std::atomic<bool> thread_in_range = true;
            team.run(loop, [&](std::int64_t item, int thread) {
                seen[static_cast<std::size_t>(item)].fetch_add(1);
                if (thread < 0 || thread >= threads) {
                    thread_in_range = false;
                }
            });
            EXPECT_TRUE(thread_in_range);
            for (const auto& count : seen) {
                ASSERT_EQ(count.load(), 1);
            }
        }
    }
}

TEST(Linear, GivesTheSameBitsForAnyNumberOfThreads) {
    const Bytes file = GgufWriter().tensor("a", {32, 70}, 3).tensor("b", {32, 5}, 8).file();
    const Gguf gguf(file);
    const auto matrix = [&](const char* name, std::int64_t rows) {
        const Tensor& tensor = gguf.tensor(name);
        return Matrix{tensor.bytes, tensor.type, rows, 32, static_cast<std::int64_t>(tensor.bytes.size()) / rows};
    };
    const Matrix a = matrix("a", 70), b = matrix("b", 5);
    const std::vector<float> x(3 * 32, 0.25f);
    const auto result = [&](int threads) {
        ThreadTeam team(threads);
        Linear linear(team, 32);
        std::vector<float> out(3 * 75);
        const Product products[] = {{&a, out.data()}, {&b, out.data() + 3 * 70}};
        linear.multiply(products, x.data(), 3);
        std::vector<std::uint32_t> bits(out.size());
        std::memcpy(bits.data(), out.data(), out.size() * sizeof(float));
        return bits;
    };
    const auto one = result(1);
    EXPECT_EQ(result(2), one);
    EXPECT_EQ(result(4), one);
    std::vector<float> row(32);
    dequantize_row(b, 4, row);
    double sum = 0;
    for (const float value : row) {
        sum += 0.25 * static_cast<double>(value);
    }
    float last = 0;
    std::memcpy(&last, &one.back(), sizeof last);
    EXPECT_NEAR(static_cast<double>(last), sum, 1e-5 * std::max(1.0, std::fabs(sum)));
}

TEST(Sampler, GreedyTakesTheLowestOfTheLargest) {
    Sampler sampler(0, 1);
    EXPECT_EQ(sampler.next(std::vector<float>{1, 3, 3, 2}), 1);
    EXPECT_EQ(sampler.next(std::vector<float>{-INFINITY, -INFINITY}), 0);
}

TEST(Sampler, DrawsByTemperatureAndSeed) {
    const std::vector<float> logits = {0.0f, std::log(2.0f), -INFINITY, 0.0f};
    Sampler sampler(1, 7), same(1, 7);
    std::vector<int> counts(4);
    constexpr int kDraws = 40000;
    for (int i = 0; i < kDraws; ++i) {
        const std::int32_t token = sampler.next(logits);
        ASSERT_EQ(token, same.next(logits));
        ++counts[static_cast<std::size_t>(token)];
    }
    EXPECT_NEAR(counts[0], kDraws / 4, 400);  // four standard deviations are 350
    EXPECT_NEAR(counts[1], kDraws / 2, 450);
    EXPECT_EQ(counts[2], 0);
    Sampler cold(1e-3, 7);
    EXPECT_EQ(cold.next(logits), 1);
}

TEST(Sampler, RefusesWhatMakesNoSense) {
    EXPECT_THROW(Sampler(-1, 0), std::runtime_error);
    EXPECT_THROW(Sampler(std::numeric_limits<double>::infinity(), 0), std::runtime_error);
    Sampler sampler(0, 0);
    EXPECT_THROW(sampler.next(std::vector<float>{0, std::nanf("")}), std::runtime_error);
}

}  // namespace
}  // namespace tilewise::generate
