// The tile functions that move and multiply, for every instruction set of this machine, against plain loops: packing
// from any element type, stride and place; products of every shape off the tile edges; rows stored back with one
// rounding.
#include <array>
#include <cstring>

#include "simd_support.hpp"

namespace tilewise::test {
namespace {

using cpu::Product;
using cpu::ProductOps;
using cpu::RowSource;
using cpu::RowTarget;

constexpr std::array kElements = {DType::kF32, DType::kF16, DType::kBF16};

float load(const void* data, DType dtype, int64_t index) {
    switch (dtype) {
    case DType::kF16: return to_float(static_cast<const F16*>(data)[index]);
    case DType::kBF16: return to_float(static_cast<const BF16*>(data)[index]);
    default: return static_cast<const float*>(data)[index];
    }
}

void store(void* data, DType dtype, int64_t index, float value) {
    switch (dtype) {
    case DType::kF16: static_cast<F16*>(data)[index] = to_f16(value); break;
    case DType::kBF16: static_cast<BF16*>(data)[index] = to_bf16(value); break;
    default: static_cast<float*>(data)[index] = value; break;
    }
}

// num_rows x num_columns of random values, each row in memory of its own exact size; every third row is missing.
struct Rows {
    Rows(Random& random, DType dtype, int num_rows, int num_columns, int64_t stride, bool gaps = false) {
        source = {nullptr, stride, dtype, num_rows, num_columns};
        for (int r = 0; r < num_rows; ++r) {
            const size_t elements = static_cast<size_t>((num_columns - 1) * stride + 1);
            memory.emplace_back(elements * static_cast<size_t>(size_of(dtype)));
            for (size_t i = 0; i < elements; ++i) store(memory.back().data(), dtype, static_cast<int64_t>(i), kNaN);
            for (int c = 0; c < num_columns; ++c) store(memory.back().data(), dtype, c * stride, random.normal());
            addresses.push_back(gaps && r % 3 == 2 ? nullptr : memory.back().data());
        }
        source.rows = addresses.data();
    }
    Rows(const Rows&) = delete;
    Rows& operator=(const Rows&) = delete;
    float at(int row, int column) const {
        if (row >= source.num_rows || column >= source.num_columns || addresses[static_cast<size_t>(row)] == nullptr)
            return 0.0f;
        return load(addresses[static_cast<size_t>(row)], source.dtype, column * source.stride);
    }
    RowSource source;
    std::vector<std::vector<unsigned char>> memory;
    std::vector<const void*> addresses;
};

class PackTest : public TileOpsTest {
protected:
    int panel() const { return 2 * ops().width; }
    static constexpr std::array<std::array<int, 2>, 7> kShapes = {
        {{1, 1}, {3, 5}, {16, 16}, {17, 33}, {31, 64}, {64, 40}, {65, 129}}};
};

TEST_P(PackTest, RowsKeepTheirValuesAndEndInZeros) {
    Random random(1);
    for (const DType dtype : kElements)
        for (const auto& [num_rows, num_columns] : kShapes)
            for (const int64_t stride : {1, 3}) {
                const Rows rows(random, dtype, num_rows, num_columns, stride, true);
                const int64_t row_stride = round_up(num_columns, panel()) + 16;
                std::vector<float> out(static_cast<size_t>(num_rows * row_stride), kNaN);
                ops().f32.pack_rows(rows.source, out.data(), row_stride);
                for (int r = 0; r < num_rows; ++r)
                    for (int c = 0; c < round_up(num_columns, ops().width); ++c)
                        ASSERT_EQ(out[static_cast<size_t>(r * row_stride + c)], rows.at(r, c)) << r << ", " << c;
            }
}

TEST_P(PackTest, StrideZeroRepeatsOneElement) {
    Random random(2);
    Rows rows(random, DType::kF16, 2, 1, 1);
    rows.source.stride = 0;
    rows.source.num_columns = 37;
    std::vector<float> out(2 * 64, kNaN);
    ops().f32.pack_rows(rows.source, out.data(), 64);
    for (int r = 0; r < 2; ++r)
        for (int c = 0; c < 37; ++c)
            ASSERT_EQ(out[static_cast<size_t>(64 * r + c)],
                      load(rows.addresses[static_cast<size_t>(r)], DType::kF16, 0));
}

TEST_P(PackTest, PanelsHoldRowsAlongK) {
    Random random(3);
    for (const DType dtype : kElements)
        for (const auto& [num_rows, num_columns] : kShapes) {
            const Rows rows(random, dtype, num_rows, num_columns, 1, true);
            const int64_t panel_stride = int64_t{num_rows} * panel();
            std::vector<float> out(static_cast<size_t>(ceil_div(num_columns, panel()) * panel_stride), kNaN);
            ops().f32.pack_panels(rows.source, out.data(), panel_stride);
            for (int r = 0; r < num_rows; ++r)
                for (int c = 0; c < round_up(num_columns, ops().width); ++c) {
                    const int64_t index = c / panel() * panel_stride + r * panel() + c % panel();
                    ASSERT_EQ(out[static_cast<size_t>(index)], rows.at(r, c)) << r << ", " << c;
                }
        }
}

TEST_P(PackTest, TransposedPanelsHoldColumnsAlongK) {
    Random random(4);
    for (const DType dtype : kElements)
        for (const auto& [num_rows, num_columns] : kShapes)
            for (const int64_t stride : {1, 2}) {
                const Rows rows(random, dtype, num_rows, num_columns, stride, true);
                const int64_t panel_stride = int64_t{num_columns} * panel();
                std::vector<float> out(static_cast<size_t>(ceil_div(num_rows, panel()) * panel_stride), kNaN);
                ops().f32.pack_transposed(rows.source, out.data(), panel_stride);
                for (int c = 0; c < num_columns; ++c)
                    for (int r = 0; r < round_up(num_rows, ops().width); ++r) {
                        const int64_t index = r / panel() * panel_stride + c * panel() + r % panel();
                        ASSERT_EQ(out[static_cast<size_t>(index)], rows.at(r, c)) << r << ", " << c;
                    }
            }
}

TEST_P(PackTest, StoredRowsRoundOnceAndStayInside) {
    Random random(5);
    for (const DType dtype : kElements)
        for (const int num_columns : {1, 7, 16, 33, 65})
            for (const int64_t stride : {1, 2}) {
                const std::vector<float> tile = random.normals(static_cast<size_t>(3 * 96));
                const std::array<float, 3> factor = {1.0f, 0.3f, -2.5f};
                const int64_t extent = (num_columns - 1) * stride + 1;
                std::vector<unsigned char> out(static_cast<size_t>((extent + 1) * size_of(dtype)) * 3);
                std::array<void*, 3> addresses;
                for (int r = 0; r < 3; ++r)
                    addresses[static_cast<size_t>(r)] = out.data() + r * (extent + 1) * size_of(dtype);
                for (int64_t i = 0; i < 3 * (extent + 1); ++i) store(out.data(), dtype, i, 77.0f);
                addresses[1] = nullptr;
                ops().store_rows(tile.data(), 96, factor.data(), {addresses.data(), stride, dtype, 3, num_columns});
                for (int r = 0; r < 3; ++r)
                    for (int64_t i = 0; i <= extent; ++i) {
                        const bool written = r != 1 && i < extent && i % stride == 0;
                        std::vector<unsigned char> expected(4);
                        const size_t at = static_cast<size_t>(r * 96 + i / stride);
                        store(expected.data(), dtype, 0, written ? tile[at] * factor[static_cast<size_t>(r)] : 77.0f);
                        ASSERT_EQ(load(out.data(), dtype, r * (extent + 1) + i), load(expected.data(), dtype, 0))
                            << name_of(dtype) << " row " << r << " element " << i;
                    }
            }
}

TEST_P(PackTest, StoresRoundToNearestEven) {
    // Ties, subnormals, overflow and special values of both 16-bit types.
    const std::vector<float> values = {
        0.0f,     -0.0f,    1.00390625f, 1.01171875f, 0x1.002p0f, 0x1.006p0f,  65504.0f,
        65519.9f, 65520.0f, 1e38f,       3.4e38f,     0x1.8p-25f, 0x1.0p-25f,  0x1.0000002p-25f,
        6e-8f,    1e-40f,   kInf,        -kInf,       kNaN,       -3.14159274f};
    const float one = 1.0f;
    std::vector<float> tile(64, 0.0f);
    std::copy(values.begin(), values.end(), tile.begin());
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
        std::vector<uint16_t> out(values.size());
        void* address = out.data();
        ops().store_rows(tile.data(), 0, &one, {&address, 1, dtype, 1, static_cast<int>(values.size())});
        for (size_t i = 0; i < values.size(); ++i) {
            const uint16_t expected = dtype == DType::kF16 ? to_f16(values[i]).bits : to_bf16(values[i]).bits;
            if (std::isnan(values[i])) {
                EXPECT_TRUE(std::isnan(load(out.data(), dtype, static_cast<int64_t>(i))));
            } else {
                EXPECT_EQ(out[i], expected) << name_of(dtype) << " of " << values[i];
            }
        }
    }
}

TEST_P(PackTest, FactorZeroStoresZerosOverNaN) {
    const std::vector<float> tile(64, kNaN);
    const float zero = 0.0f;
    std::vector<float> out(40, 5.0f);
    void* address = out.data();
    ops().store_rows(tile.data(), 0, &zero, {&address, 1, DType::kF32, 1, 40});
    for (const float x : out) EXPECT_EQ(x, 0.0f);
}

TEST_P(PackTest, DotProductsFollowTheOrderOfAProduct) {
    Random random(6);
    for (const DType dtype : kElements)
        for (const int num_columns : {1, 16, 40, 129}) {
            const Rows a(random, dtype, 19, num_columns, 1), b(random, dtype, 19, num_columns, 2);
            std::vector<float> out(20, 55.0f);
            ops().dot_rows(a.source, b.source, out.data());
            for (int r = 0; r < 19; ++r) {
                double exact = 0.0;
                for (int c = 0; c < num_columns; ++c)
                    exact += static_cast<double>(a.at(r, c)) * static_cast<double>(b.at(r, c));
                EXPECT_NEAR(out[static_cast<size_t>(r)], exact, 2e-5 * std::sqrt(num_columns));
            }
            EXPECT_EQ(out[19], 55.0f);
        }
}

INSTANTIATE_TEST_SUITE_P(Isa, PackTest, ::testing::ValuesIn(runnable_isas()), isa_name);

struct ProductShape {
    int m, n, k;
};

class ProductTest : public TileOpsTest {
protected:
    // Off the register tile's edges; m and n are in units of what a product asks for.
    std::vector<ProductShape> shapes() const {
        std::vector<ProductShape> shapes;
        for (const int m : {1, 2, 3, 4, 5, 7, 8})
            for (const int n : {1, 2, 3, 5})
                for (const int k : {1, 2, 3, 17, 64}) shapes.push_back({m * ops().row_quantum, n * ops().width, k});
        return shapes;
    }

    // c = a b for operands that pack_rows and pack_panels (or, of b's transpose, pack_transposed) made, against
    // doubles.
    void check(const ProductOps& products, const ProductShape& shape, bool transposed_b, bool accumulate) {
        Random random(static_cast<uint64_t>(shape.m * 1000 + shape.n * 10 + shape.k));
        const DType dtype = products.format;
        const bool pairs = dtype == DType::kBF16;
        const int panel = 2 * ops().width;
        const Rows a(random, dtype, shape.m, shape.k, 1);
        const Rows b(random, dtype, transposed_b ? shape.n : shape.k, transposed_b ? shape.k : shape.n, 1);
        const int64_t a_row = round_up(shape.k, panel) + 16, c_row = shape.n + 5;
        const int64_t b_panel = round_up(shape.k, 2) * panel;
        std::vector<float> a_memory(static_cast<size_t>(shape.m * a_row), kNaN);
        std::vector<float> b_memory(static_cast<size_t>(ceil_div(shape.n, panel) * b_panel), kNaN);
        products.pack_rows(a.source, a_memory.data(), a_row);
        (transposed_b ? products.pack_transposed : products.pack_panels)(b.source, b_memory.data(), b_panel);
        std::vector<float> c(static_cast<size_t>(shape.m * c_row), 3.0f);
        Product product;
        product.a = a_memory.data();
        product.a_row = a_row;
        product.b = b_memory.data();
        product.b_k = panel * (pairs ? 2 : 1);
        product.b_panel = b_panel;
        product.c = c.data();
        product.c_row = c_row;
        product.m = shape.m;
        product.n = shape.n;
        product.k = shape.k;
        product.accumulate = accumulate;
        products.multiply(product);
        for (int i = 0; i < shape.m; ++i)
            for (int j = 0; j < c_row; ++j) {
                double expected = j < shape.n && !accumulate ? 0.0 : 3.0;
                for (int k = 0; j < shape.n && k < shape.k; ++k)
                    expected +=
                        static_cast<double>(a.at(i, k)) * static_cast<double>(transposed_b ? b.at(j, k) : b.at(k, j));
                ASSERT_NEAR(c[static_cast<size_t>(i * c_row + j)], expected, 1e-5 * (1 + std::sqrt(shape.k)))
                    << shape.m << " x " << shape.n << " x " << shape.k << " at " << i << ", " << j;
            }
    }
};

TEST_P(ProductTest, Fp32MatchesPlainLoops) {
    for (const ProductShape& shape : shapes())
        for (const bool accumulate : {false, true}) check(ops().f32, shape, shape.k % 2 == 0, accumulate);
}

TEST_P(ProductTest, Bf16FormatMatchesPlainLoops) {
    for (const ProductShape& shape : shapes())
        for (const bool transposed_b : {false, true}) check(ops().bf16, shape, transposed_b, shape.m % 3 == 0);
}

TEST_P(ProductTest, TransposedLeftOperandMatchesPlainLoops) {
    for (const ProductShape& shape : shapes()) {
        Random random(7);
        const int64_t a_k = shape.m + 3, b_k = round_up(shape.n, 2 * ops().width), c_row = shape.n;
        const std::vector<float> a = random.normals(static_cast<size_t>(shape.k * a_k));
        const std::vector<float> b = random.normals(static_cast<size_t>(shape.k * b_k));
        std::vector<float> c(static_cast<size_t>(shape.m * c_row), -1.0f);
        // b row by row instead of in panels, as the backward pass has it.
        ops().f32.multiply(
            {a.data(), 1, a_k, b.data(), b_k, 2 * ops().width, c.data(), c_row, shape.m, shape.n, shape.k, true});
        for (int i = 0; i < shape.m; ++i)
            for (int j = 0; j < shape.n; ++j) {
                double expected = -1.0;
                for (int k = 0; k < shape.k; ++k)
                    expected += static_cast<double>(a[static_cast<size_t>(k * a_k + i)]) *
                                static_cast<double>(b[static_cast<size_t>(k * b_k + j)]);
                ASSERT_NEAR(c[static_cast<size_t>(i * c_row + j)], expected, 1e-5 * (1 + std::sqrt(shape.k)));
            }
    }
}

TEST_P(ProductTest, BitsOfARowDoNotDependOnItsPlace) {
    const int n = 3 * ops().width, k = 57, m = 2 * ops().row_tile + ops().row_quantum, panel = 2 * ops().width;
    Random random(8);
    const std::vector<float> row = random.normals(static_cast<size_t>(k));
    const std::vector<float> b = random.normals(static_cast<size_t>(2 * k * panel));
    std::vector<float> a, c(static_cast<size_t>(m * n));
    for (int i = 0; i < m; ++i) a.insert(a.end(), row.begin(), row.end());
    ops().f32.multiply({a.data(), k, 1, b.data(), panel, int64_t{k} * panel, c.data(), n, m, n, k, false});
    for (int i = 1; i < m; ++i)
        EXPECT_EQ(std::memcmp(c.data(), c.data() + i * n, static_cast<size_t>(n) * sizeof(float)), 0) << "row " << i;
}

INSTANTIATE_TEST_SUITE_P(Isa, ProductTest, ::testing::ValuesIn(runnable_isas()), isa_name);

TEST(Dispatch, ScalarAlwaysRuns) {
    EXPECT_TRUE(cpu::can_run(Isa::kScalar));
    // A larger set implies the smaller ones.
    EXPECT_GE(cpu::can_run(Isa::kAvx512), cpu::can_run(Isa::kAvx512Bf16));
    EXPECT_GE(cpu::can_run(Isa::kAvx2), cpu::can_run(Isa::kAvx512));
}

}  // namespace
}  // namespace tilewise::test
