// Brings rows of a tensor (any element type, any stride, any place) into the tiles that products read, and tiles back
// into rows.
//
// Only elements of the given rows are read: what a tile holds past them is written as zeros, so that NaN in memory that
// belongs to no key can never meet a product. A transposed panel is made of square blocks of one vector's width, turned
// in registers. Included by tile_ops.cpp only, after the header of its instruction set.
#pragma once

#include "cpu/simd/kernel_product.hpp"

namespace tilewise::cpu::simd::TILEWISE_SIMD_TARGET {

// Columns column .. column + width - 1 of row `row`; 0 past the last column and in rows that are not there.
template <class T> inline Float load_piece(const RowSource& source, int row, int column) {
    if (row >= source.num_rows || source.rows[row] == nullptr || column >= source.num_columns) return zero();
    const T* p = static_cast<const T*>(source.rows[row]) + column * source.stride;
    const int count = min_of(source.num_columns - column, kWidth);
    if (source.stride == 1) return count == kWidth ? load(p) : load_first(p, count);
    float lane[kWidth] = {};
    for (int i = 0; i < count; ++i) lane[i] = to_float(p[i * source.stride]);
    return load(lane);
}

// Calls body with a value of the element type that `dtype` names; only its type matters.
template <class Body> inline void with_element_type(DType dtype, Body&& body) {
    switch (dtype) {
    case DType::kBF16: return body(BF16{});
    case DType::kF16: return body(F16{});
    default: return body(float{});
    }
}

// The columns of a row that whole vectors can read in place; 0 where pieces have to be gathered.
inline int whole_columns(const RowSource& source, int row) {
    const bool in_place = source.stride == 1 && row < source.num_rows && source.rows[row] != nullptr;
    return in_place ? source.num_columns / kWidth * kWidth : 0;
}

template <class T> [[gnu::flatten]] void pack_rows_of(const RowSource& source, float* out, int64_t row_stride) {
    for (int r = 0; r < source.num_rows; ++r, out += row_stride) {
        const T* row = static_cast<const T*>(source.rows[r]);
        const int whole = whole_columns(source, r);
        for (int c = 0; c < whole; c += kWidth) store(out + c, load(row + c));
        for (int c = whole; c < source.num_columns; c += kWidth) store(out + c, load_piece<T>(source, r, c));
    }
}

template <class T> [[gnu::flatten]] void pack_panels_of(const RowSource& source, float* out, int64_t panel_stride) {
    for (int r = 0; r < source.num_rows; ++r, out += kPanel) {
        const T* row = static_cast<const T*>(source.rows[r]);
        const int whole = whole_columns(source, r) / kPanel * kPanel;
        float* panel = out;
        for (int c = 0; c < whole; c += kPanel, panel += panel_stride) {
            store(panel, load(row + c));
            store(panel + kWidth, load(row + c + kWidth));
        }
        for (int c = whole; c < source.num_columns; c += kWidth)
            store(out + c / kPanel * panel_stride + c % kPanel, load_piece<T>(source, r, c));
    }
}

template <class T> [[gnu::flatten]] void pack_transposed_of(const RowSource& source, float* out, int64_t panel_stride) {
    for (int r = 0; r < source.num_rows; r += kWidth) {
        float* column = out + r / kPanel * panel_stride + r % kPanel;
        const T* rows[kWidth];
        int whole = source.num_columns;
        for (int i = 0; i < kWidth; ++i) {
            whole = min_of(whole, whole_columns(source, r + i));
            rows[i] = whole > 0 ? static_cast<const T*>(source.rows[r + i]) : nullptr;
        }
        Float block[kWidth];
        for (int c = 0; c < whole; c += kWidth, column += kWidth * kPanel) {
#pragma GCC unroll 16
            for (int i = 0; i < kWidth; ++i) block[i] = load(rows[i] + c);
            transpose(block);
#pragma GCC unroll 16
            for (int i = 0; i < kWidth; ++i) store(column + i * kPanel, block[i]);
        }
        for (int c = whole; c < source.num_columns; c += kWidth, column += kWidth * kPanel) {
            for (int i = 0; i < kWidth; ++i) block[i] = load_piece<T>(source, r + i, c);
            transpose(block);
            const int count = min_of(source.num_columns - c, kWidth);
            for (int i = 0; i < count; ++i) store(column + i * kPanel, block[i]);
        }
    }
}

inline void pack_rows(const RowSource& source, void* out, int64_t row_stride) {
    with_element_type(source.dtype,
                      [&](auto t) { pack_rows_of<decltype(t)>(source, static_cast<float*>(out), row_stride); });
}
inline void pack_panels(const RowSource& source, void* out, int64_t panel_stride) {
    with_element_type(source.dtype,
                      [&](auto t) { pack_panels_of<decltype(t)>(source, static_cast<float*>(out), panel_stride); });
}
inline void pack_transposed(const RowSource& source, void* out, int64_t panel_stride) {
    with_element_type(source.dtype,
                      [&](auto t) { pack_transposed_of<decltype(t)>(source, static_cast<float*>(out), panel_stride); });
}

template <class T>
[[gnu::flatten]] void store_rows_of(const float* tile, int64_t row_stride, const float* factor,
                                    const RowTarget& target) {
    for (int r = 0; r < target.num_rows; ++r, tile += row_stride) {
        if (target.rows[r] == nullptr) continue;
        T* out = static_cast<T*>(target.rows[r]);
        for (int c = 0; c < target.num_columns; c += kWidth) {
            const int count = min_of(target.num_columns - c, kWidth);
            const Float x = factor[r] == 0.0f ? zero() : load(tile + c) * broadcast(factor[r]);
            if (target.stride == 1 && count == kWidth) {
                store(out + c, x);
            } else if (target.stride == 1) {
                store_first(out + c, x, count);
            } else {
                float lane[kWidth];
                store(lane, x);
                for (int i = 0; i < count; ++i) out[(c + i) * target.stride] = Element<T>::store(lane[i]);
            }
        }
    }
}

inline void store_rows(const float* tile, int64_t row_stride, const float* factor, const RowTarget& target) {
    with_element_type(target.dtype, [&](auto t) { store_rows_of<decltype(t)>(tile, row_stride, factor, target); });
}

inline void scale_rows(float* tile, int64_t row_stride, int num_rows, int num_columns, const float* factor) {
    for (int r = 0; r < num_rows; ++r, tile += row_stride) {
        if (factor[r] == 1.0f) continue;
        const Float f = broadcast(factor[r]);
        for (int c = 0; c < num_columns; c += kWidth) store(tile + c, load(tile + c) * f);
    }
}

// Blocks of both are turned so that a lane is a row and each dot product is one chain in ascending column order, as in
// a product of tiles: delta = dO . O of a row that sees one key is then exactly its dP, and dS exactly 0.
template <class T> [[gnu::flatten]] void dot_rows_of(const RowSource& a, const RowSource& b, float* out) {
    for (int r = 0; r < a.num_rows; r += kWidth) {
        Float sum = zero();
        for (int c = 0; c < a.num_columns; c += kWidth) {
            Float left[kWidth], right[kWidth];
            for (int i = 0; i < kWidth; ++i) left[i] = load_piece<T>(a, r + i, c);
            for (int i = 0; i < kWidth; ++i) right[i] = load_piece<T>(b, r + i, c);
            transpose(left);
            transpose(right);
            const int count = min_of(a.num_columns - c, kWidth);
            for (int i = 0; i < count; ++i) sum = fma(left[i], right[i], sum);
        }
        store_first(out + r, sum, min_of(a.num_rows - r, kWidth));
    }
}
inline void dot_rows(const RowSource& a, const RowSource& b, float* out) {
    with_element_type(a.dtype, [&](auto t) { dot_rows_of<decltype(t)>(a, b, out); });
}

}  // namespace tilewise::cpu::simd::TILEWISE_SIMD_TARGET
