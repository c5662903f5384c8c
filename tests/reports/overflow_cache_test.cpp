// Caches whose pages and slots lie past 2^31 and 2^32 elements.
#include "call.hpp"
#include "memory.hpp"

namespace reports {
namespace {

// Keys and values of a page lie together: 16 rows x 2 x 8 heads x 128 = 2^15 elements a page, so page 65536 starts at 2^31.
TEST_F(Reports, R006_page_ids_whose_offset_passes_2_31_and_2_32) {
    constexpr std::int64_t kPage = 16 * 2 * 8 * 128, kPages = 140000;
    const SparseMemory memory(kPages * kPage * 2);
    const Ints used = {40, 33};
    const Ints table = {65535, 65536, 7, 139999, 131072, 131071};
    Call dense(DType::kBF16, {.b = 2, .sk = 48, .h = 8, .hk = 8, .d = 128});
    Call paged = dense;
    const Array::Axes shape{kPages, 16, 8, 128}, strides{kPage, 8 * 128, 128, 1};
    paged.k = Array(DType::kBF16, shape, strides, memory.at<std::uint16_t>(0));
    paged.v = Array(DType::kBF16, shape, strides, memory.at<std::uint16_t>(kPage / 2));
    for (std::size_t n = 0; n < table.size(); ++n)
        for (const auto& [to, from] : {std::pair{paged.k, dense.k}, {paged.v, dense.v}})
            to.part(0, table[n], 1).assign(from.part(0, n / 3, 1).part(1, n % 3 * 16, 16));
    paged.cache = {.cache_seqlens = used, .page_table = {table, {2, 3}}};
    const Answer expected =
        expected_outputs(dense, {.visible = [&](const Place& at) { return at.key < used[at.batch]; }});
    on_every_kernel(Op::kDecode, DType::kBF16, [&](const std::string& kernel) {
        paged.decode(kernel);
        expect_outputs(paged, expected);
    });
}

// A cache of all 32 layers, keys and values, batch first: 2^30 elements from one sequence to the next, so slot 4 starts at 2^32. The
// first step writes slot 0, the second slots 1 to 4.
TEST_F(Reports, R008_an_append_to_slot_4_does_not_reach_slot_0) {
    constexpr std::int64_t kSlot = std::int64_t{1} << 30, kLayer = 4096 * 32 * 128;
    const SparseMemory memory(5 * kSlot * 2);
    const Array::Axes shape{5, 4096, 32, 128}, strides{kSlot, 32 * 128, 128, 1};
    const Array k(DType::kF16, shape, strides, memory.at<std::uint16_t>(31 * kLayer));
    const Array v(DType::kF16, shape, strides, memory.at<std::uint16_t>(32 * kLayer + 31 * kLayer));
    Array first_k;
    for (const auto& slots : {Ints{0}, Ints{1, 2, 3, 4}}) {
        const auto batch = static_cast<std::int64_t>(slots.size()),
                   rows = batch == 1 ? std::int64_t{2} : std::int64_t{3};
        const Ints empty(slots.size(), 0);
        Call call(DType::kF16, {.b = batch, .sq = rows, .sk = rows, .h = 32, .hk = 32, .d = 128},
                  static_cast<unsigned>(batch));
        const Answer expected = expected_outputs(call, {.visible = causal(rows, rows)});
        const Array k_new = call.k, v_new = call.v;
        call.k = k;
        call.v = v;
        call.mask.causal = true;
        call.cache = {.cache_seqlens = empty, .cache_batch_idx = slots, .k_new = k_new.view(), .v_new = v_new.view()};
        call.decode();
        // A decode's rows are causal over the keys that are used, not over the capacity.
        expect_outputs(call, expected);
        for (std::int64_t n = 0; n < batch; ++n) {
            expect_same_bits(k.part(0, slots[n], 1).part(1, 0, rows), k_new.part(0, n, 1), "k");
            expect_same_bits(v.part(0, slots[n], 1).part(1, 0, rows), v_new.part(0, n, 1), "v");
            expect_all(k.part(0, slots[n], 1).part(1, rows, 5), 0.0, "k past the new rows");
        }
        if (!first_k.given()) first_k = k_new;
    }
    expect_same_bits(k.part(0, 0, 1).part(1, 0, 2), first_k, "k of slot 0");
    expect_all(k.part(0, 0, 1).part(1, 2, 6), 0.0, "k of slot 0");
}

}  // namespace
}  // namespace reports
