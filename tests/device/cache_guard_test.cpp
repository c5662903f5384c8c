// Integers of a cache that only the device knows may be wrong. Attention then reads other keys of the cache, and nothing outside of it: the
// cache lies between bytes that are NaN, and the result is, bit for bit, that of the nearest integers that are right.
#include "problems.hpp"

namespace gpu_test {
namespace {

using tilewise::Op;

constexpr int64_t kBatch = 2, kQueries = 3, kHeads = 4, kHeadsKv = 2, kDim = 64;
constexpr int64_t kPages = 9, kPageSize = 16, kMaxPages = 5, kTableRows = 3;
constexpr int64_t kPage = kPageSize * kHeadsKv * kDim;  // elements
constexpr int64_t kMargin = 16;                         // pages of NaN before and behind

struct Integers {
    std::vector<int32_t> page_table, cache_batch_idx, leftpad_k, seqused_k;
};

class PagedForward {
public:
    explicit PagedForward(const tilewise::Device& device)
        : q(device, values(kBatch * kQueries * kHeads * kDim, 1)),
          k(device, surrounded(2)),
          v(device, surrounded(3)),
          o(device, static_cast<size_t>(kBatch * kQueries * kHeads * kDim)),
          page_table(device, static_cast<size_t>(kTableRows * kMaxPages)),
          cache_batch_idx(device, kBatch),
          leftpad_k(device, kBatch),
          seqused_k(device, kBatch) {
        call.q = {q.data(), {kBatch, kQueries, kHeads, kDim}};
        call.k = {k.data() + kMargin * kPage, {kPages, kPageSize, kHeadsKv, kDim}};
        call.v = {v.data() + kMargin * kPage, {kPages, kPageSize, kHeadsKv, kDim}};
        call.o = {o.data(), {kBatch, kQueries, kHeads, kDim}};
        call.mask.causal = true;
        call.cache.page_table = {page_table.data(), {kTableRows, kMaxPages}};
        call.cache.cache_batch_idx = {cache_batch_idx.data(), {kBatch}};
        call.lengths.leftpad_k = {leftpad_k.data(), {kBatch}};
        call.lengths.seqused_k = {seqused_k.data(), {kBatch}};
    }
    Bits run(const Planned& planned, const Integers& integers) {
        page_table.set(integers.page_table);
        cache_batch_idx.set(integers.cache_batch_idx);
        leftpad_k.set(integers.leftpad_k);
        seqused_k.set(integers.seqused_k);
        o.clear();
        planned.launch(call);
        return bits_of(o.get());
    }

    tilewise::Attention call;

private:
    static std::vector<tilewise::BF16> surrounded(uint32_t seed) {
        std::vector<tilewise::BF16> all(static_cast<size_t>((2 * kMargin + kPages) * kPage), tilewise::BF16{0xffff});
        const std::vector<tilewise::BF16> pages = values(kPages * kPage, seed);
        std::copy(pages.begin(), pages.end(), all.begin() + kMargin * kPage);
        return all;
    }
    Array<tilewise::BF16> q, k, v, o;
    Array<int32_t> page_table, cache_batch_idx, leftpad_k, seqused_k;
};

// Kernels of this build that compute a forward of bf16 on a GPU.
std::vector<std::string> forward_kernels() {
    std::vector<std::string> names;
    for (const std::string& json : tilewise::kernels()) {
        const auto has = [&](const char* text) { return json.find(text) != std::string::npos; };
        if (!has("\"device\":\"cuda\"") || !has("\"op\":\"forward\"") || !has("\"bf16\"")) continue;
        const size_t begin = json.find("\"name\":\"") + 8;
        names.push_back(json.substr(begin, json.find('"', begin) - begin));
    }
    return names;
}

const Integers kRight = {{3, 0, 7, 1, 5, 2, 2, 8, 6, 4, 8, 1, 0, 3, 7}, {2, 0}, {5, 0}, {71, 80}};

// Wrong integers give what `nearest` gives, on every kernel that serves the call.
void expect_guarded(const Integers& wrong, const Integers& nearest) {
    const tilewise::Device device("cuda:0");
    PagedForward forward(device);
    int served = 0;
    for (const std::string& kernel : forward_kernels()) {
        SCOPED_TRACE(kernel);
        forward.call.options.kernel = kernel;
        try {
            const Planned planned(device, Op::kForward, forward.call);
            const Bits expected = forward.run(planned, nearest);
            for (const uint16_t bits : expected) ASSERT_NE(bits & 0x7f80u, 0x7f80u) << "NaN or infinity";
            EXPECT_EQ(forward.run(planned, wrong), expected);
            ++served;
        } catch (const tilewise::Error& error) {
            ASSERT_EQ(error.status(), tilewise::Status::kUnsupported) << error.what();
        }
    }
    EXPECT_GE(served, 5) << "tiled kernels, decode kernels and those on CUDA cores";
}

TEST(DeviceCacheGuard, PageIds) {
    TILEWISE_NEEDS_GPUS(1);
    Integers wrong = kRight, nearest = kRight;
    wrong.page_table = {3, -1, 9, 1, 5, 2, 2, 8, 6, 4, 2147483647, 1, -2147483647 - 1, 24, -9};
    nearest.page_table = {3, 8, 8, 1, 5, 2, 2, 8, 6, 4, 8, 1, 8, 8, 8};
    expect_guarded(wrong, nearest);
}

TEST(DeviceCacheGuard, CacheRows) {
    TILEWISE_NEEDS_GPUS(1);
    Integers wrong = kRight, nearest = kRight;
    wrong.cache_batch_idx = {-5, 2147483647};
    nearest.cache_batch_idx = {0, 2};
    expect_guarded(wrong, nearest);
}

TEST(DeviceCacheGuard, Lengths) {
    TILEWISE_NEEDS_GPUS(1);
    Integers wrong = kRight, nearest = kRight;
    wrong.seqused_k = {2147483647, 81};
    nearest.seqused_k = {80, 80};
    wrong.leftpad_k = {-7, -2147483647 - 1};
    nearest.leftpad_k = {0, 0};
    expect_guarded(wrong, nearest);
    wrong.leftpad_k = {2147483647, 80};
    nearest.leftpad_k = {80, 80};
    const tilewise::Device device("cuda:0");
    PagedForward forward(device);
    const Planned planned(device, Op::kForward, forward.call);
    EXPECT_EQ(forward.run(planned, wrong), Bits(static_cast<size_t>(kBatch * kQueries * kHeads * kDim), 0));
}

}  // namespace
}  // namespace gpu_test
