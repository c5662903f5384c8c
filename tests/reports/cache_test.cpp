// Decode with a key-value cache: splits, pages of every size, groups of every size, full caches, capacity that is not used.
#include "call.hpp"
#include "memory.hpp"

namespace reports {
namespace {

// The keys and values of a dense call in pages of `page_size` rows, taken from a pool last page first; pages lie `page_stride` rows apart
// (0: one behind the other). Everything else in the pool is NaN.
struct Pages {
    std::int64_t page_size = 16, pool = 64, page_stride = 0;
};
Call in_pages(const Call& dense, const Pages& pages, Ints* table) {
    const std::int64_t batch = dense.k.size(0), length = dense.k.size(1);
    const std::int64_t columns = (length + pages.page_size - 1) / pages.page_size;
    Call paged = dense;
    table->assign(batch * columns, -1);
    for (Array* x : {&paged.k, &paged.v}) {
        const Array from = *x;
        const std::int64_t heads = from.size(2), dim = from.size(3), row = heads * dim;
        const std::int64_t stride = std::max(pages.page_stride, pages.page_size) * row;
        *x = Array(from.dtype(), {pages.pool, pages.page_size, heads, dim}, {stride, row, dim, 1});
        for (std::int64_t n = 0; n < batch * columns; ++n) {
            const std::int64_t first = n % columns * pages.page_size, rows = std::min(pages.page_size, length - first);
            const std::int64_t page = pages.pool - 1 - n;
            (*table)[n] = static_cast<std::int32_t>(page);
            x->part(0, page, 1).part(1, 0, rows).assign(from.part(0, n / columns, 1).part(1, first, rows));
        }
    }
    paged.cache.page_table = {*table, {batch, columns}};
    return paged;
}
void expect_paged_decode(const Call& dense, const Pages& pages, const Rules& rules) {
    Ints table;
    const Call paged = in_pages(dense, pages, &table);
    const Answer expected = expected_outputs(dense, rules);
    on_every_kernel(Op::kDecode, dense.dtype(), [&](const std::string& kernel) {
        paged.decode(kernel);
        expect_outputs(paged, expected);
    });
}

TEST_F(Reports, R073_every_number_of_splits_gives_the_same_result) {
    const Ints length = {4096};
    Call call(DType::kBF16, {.sk = 4096, .h = 16, .hk = 8, .d = 128});
    call.cache.cache_seqlens = length;
    const Answer expected = expected_outputs(call);
    on_every_kernel(Op::kDecode, DType::kBF16, [&](const std::string& kernel) {
        if (is_reference(kernel)) return;  // it says that it has no splits
        for (const std::int32_t splits : {0, 1, 2, 16, 32, 100}) {
            SCOPED_TRACE(splits);
            call.options.num_splits = splits;
            call.decode(kernel);
            expect_outputs(call, expected);
        }
    });
}

// A page table with ids from all over a large pool; what the ids do not name is zero.
TEST_F(Reports, R075_a_sweep_of_heads_head_dims_page_sizes_and_pools) {
    constexpr std::int64_t kKeys = 150;
    const Ints used = {1, 33, kKeys};
    for (const auto& [heads, heads_kv] : {std::pair{4, 4}, {8, 2}, {16, 2}})
        for (const std::int64_t head_dim : {128, 256})
            for (const std::int64_t page_size : {16, 32})
                for (const DType dtype : {DType::kF16, DType::kBF16})
                    for (const std::int64_t pool : {32768, 2048}) {
                        const std::int64_t row = heads_kv * head_dim, columns = (kKeys + page_size - 1) / page_size;
                        const SparseMemory keys(pool * page_size * row * 2), values(pool * page_size * row * 2);
                        Call dense(dtype, {.b = 3, .sk = kKeys, .h = heads, .hk = heads_kv, .d = head_dim});
                        Call paged = dense;
                        const Array::Axes shape{pool, page_size, heads_kv, head_dim};
                        paged.k = Array(dtype, shape, Array::contiguous(shape), keys.data());
                        paged.v = Array(dtype, shape, Array::contiguous(shape), values.data());
                        Ints table(3 * columns);
                        for (std::int64_t n = 0; n < 3 * columns; ++n) {
                            const std::int64_t page = pool - 1 - n * 17, first = n % columns * page_size;
                            table[n] = static_cast<std::int32_t>(page);
                            const std::int64_t rows = std::min(page_size, kKeys - first);
                            for (const auto& [to, from] : {std::pair{paged.k, dense.k}, {paged.v, dense.v}})
                                to.part(0, page, 1)
                                    .part(1, 0, rows)
                                    .assign(from.part(0, n / columns, 1).part(1, first, rows));
                        }
                        paged.cache = {.cache_seqlens = used, .page_table = {table, {3, columns}}};
                        paged.decode();
                        expect_outputs(paged, expected_outputs(dense, {.visible = [&](const Place& at) {
                                                                   return at.key < used[at.batch];
                                                               }}));
                    }
}

TEST_F(Reports, R078_new_keys_for_a_full_cache_are_refused_and_nothing_is_written) {
    if (!is_on_host("integers are read before a launch")) return;
    const Ints full = {20};
    Call call(DType::kF16, {.sq = 3, .sk = 20, .h = 32, .hk = 32, .d = 128});
    const Array around_k(DType::kF16, {1, 26, 32, 128}), around_v(DType::kF16, {1, 26, 32, 128});
    for (const Array& x : {around_k, around_v}) x.randomize(8);
    const Array k_before = around_k.contiguous_copy(), v_before = around_v.contiguous_copy();
    call.k = around_k.part(1, 3, 20);
    call.v = around_v.part(1, 3, 20);
    const Array k_new = random(DType::kF16, {1, 3, 32, 128}, 9), v_new = random(DType::kF16, {1, 3, 32, 128}, 10);
    call.mask.causal = true;
    call.cache = {.cache_seqlens = full, .k_new = k_new.view(), .v_new = v_new.view()};
    expect_invalid([&] { call.decode(); }, "cache_seqlens", {"[0] is 20", "3 rows", "20"});

    const Ints table = {0, 1, 2, 3, 4};
    Call paged = call;
    paged.k = Array(DType::kF16, {5, 4, 32, 128}).fill(1.0);
    paged.v = Array(DType::kF16, {5, 4, 32, 128}).fill(1.0);
    paged.cache.page_table = {table, {1, 5}};
    expect_invalid([&] { paged.decode(); }, "page_table", {"5 pages of 4 rows hold 20 keys", "cache_seqlens[0] is 20"});
    expect_all(paged.k, 1.0, "k");
    expect_same_bits(around_k, k_before, "k");
    expect_same_bits(around_v, v_before, "v");
    expect_all(call.o, kNaN, "o");
    EXPECT_EQ(full[0], 20);
}

// 40960 keys are used, or few enough that the work of the whole capacity would be worth more splits and threads than theirs. In
// fp32, where another order of sums shows. A GPU's plan knows the capacity but not the lengths, which lie on the device, and splits keys by
// it; there the bits are asked for with batch_invariant.
TEST_F(Reports, R079_the_capacity_of_a_cache_does_not_change_the_bits) {
    constexpr std::int64_t kHeads = 2, kDim = 128, kRow = kHeads * kDim, kLargest = 262144;
    const SparseMemory keys(kLargest * kRow * 4), values(kLargest * kRow * 4);
    const auto with_capacity = [&](void* data, std::int64_t capacity) {
        const Array::Axes shape{1, capacity, kHeads, kDim};
        return Array(DType::kF32, shape, Array::contiguous(shape), data);
    };
    for (void* const data : {keys.data(), values.data()}) with_capacity(data, 40960).randomize(3);
    for (const std::int32_t threads : {0, 1, 32})
        for (const std::int32_t used : {40960, 3000, 700}) {
            SCOPED_TRACE(std::to_string(used) + " keys, " + std::to_string(threads) + " threads");
            const Ints length = {used};
            Call call(DType::kF32, {.h = kHeads, .hk = kHeads, .d = kDim});
            call.cache.cache_seqlens = length;
            call.options.num_threads = threads;
            call.options.batch_invariant = !device().is_host();
            Array first;
            for (const std::int64_t capacity :
                 {std::int64_t{used}, std::int64_t{used} + 1, std::int64_t{65536}, kLargest}) {
                call.k = with_capacity(keys.data(), capacity);
                call.v = with_capacity(values.data(), capacity);
                call.decode();
                if (!first.given()) first = call.o.contiguous_copy();
                expect_same_bits(call.o, first, "o");
            }
            call.k = with_capacity(keys.data(), used);
            call.v = with_capacity(values.data(), used);
            expect_outputs(call, expected_outputs(call));
        }
}

TEST_F(Reports, R081_pages_of_any_size) {
    const Ints used = {50, 3};
    Call call(DType::kBF16, {.b = 2, .sq = 2, .sk = 50, .h = 4, .hk = 2, .d = 64});
    call.cache.cache_seqlens = used;
    const Rules rules{.visible = [&](const Place& at) { return at.key < used[at.batch]; }};
    for (const std::int64_t page_size : {1, 2, 3, 16, 17, 64, 256})
        expect_paged_decode(call, {.page_size = page_size, .pool = 128}, rules);
}

TEST_F(Reports, R082_groups_of_any_size) {
    const Ints used = {37};
    for (const auto& [heads, heads_kv] :
         {std::pair{5, 1}, {6, 1}, {7, 1}, {14, 2}, {28, 4}, {64, 4}, {32, 1}, {9, 3}}) {
        Call call(DType::kBF16, {.sk = 37, .h = heads, .hk = heads_kv, .d = 64});
        call.cache.cache_seqlens = used;
        expect_decode(call);
        expect_paged_decode(call, {.page_size = 16, .pool = 16}, {});
    }
}

// Pages of 16 rows that start 64 rows apart: the logical block of an engine is not the kernel's.
TEST_F(Reports, R084_the_page_stride_is_that_of_the_tensor) {
    const Ints used = {100, 61};
    Call call(DType::kF16, {.b = 2, .sk = 100, .h = 4, .hk = 2, .d = 64});
    call.cache.cache_seqlens = used;
    const Rules rules{.visible = [&](const Place& at) { return at.key < used[at.batch]; }};
    expect_paged_decode(call, {.page_size = 16, .pool = 32, .page_stride = 64}, rules);
    expect_paged_decode(call, {.page_size = 16, .pool = 32, .page_stride = 17}, rules);
}

}  // namespace
}  // namespace reports
