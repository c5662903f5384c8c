// The list of tensors, their printing and their slicing.
#include "slots.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "host_tensor.hpp"

namespace tilewise::cli {
namespace {

#define TILEWISE_SLOT(name, member, ...)                                        \
    Slot {                                                                      \
        name, [](Attention& a) -> Tensor& { return a.member; }, { __VA_ARGS__ } \
    }

constexpr std::array kSlots{
    TILEWISE_SLOT("q", q, "bqhd", "qhd"),
    TILEWISE_SLOT("k", k, "bkgd", "kgd"),
    TILEWISE_SLOT("v", v, "bkgd", "kgd"),
    TILEWISE_SLOT("o", o, "bqhd", "qhd"),
    TILEWISE_SLOT("lse", lse, "bhq", "hq"),
    TILEWISE_SLOT("cu_seqlens_q", lengths.cu_seqlens_q, "."),
    TILEWISE_SLOT("cu_seqlens_k", lengths.cu_seqlens_k, "."),
    TILEWISE_SLOT("seqused_q", lengths.seqused_q, "b"),
    TILEWISE_SLOT("seqused_k", lengths.seqused_k, "b"),
    TILEWISE_SLOT("leftpad_k", lengths.leftpad_k, "b"),
    TILEWISE_SLOT("prefix_lens", mask.prefix_lens, "b"),
    TILEWISE_SLOT("mask", mask.mask, "bhqk"),
    TILEWISE_SLOT("key_begin", mask.key_begin, "bq", "q"),
    TILEWISE_SLOT("key_end", mask.key_end, "bq", "q"),
    TILEWISE_SLOT("alibi_slopes", score.alibi_slopes, "h", "bh"),
    TILEWISE_SLOT("bias", score.bias, "bhqk"),
    TILEWISE_SLOT("sink", score.sink, "h"),
    TILEWISE_SLOT("cache_seqlens", cache.cache_seqlens, "b"),
    TILEWISE_SLOT("cache_batch_idx", cache.cache_batch_idx, "b"),
    TILEWISE_SLOT("page_table", cache.page_table, "b."),
    TILEWISE_SLOT("k_new", cache.k_new, "bngd", "ngd"),
    TILEWISE_SLOT("v_new", cache.v_new, "bngd", "ngd"),
    TILEWISE_SLOT("cu_seqlens_k_new", cache.cu_seqlens_k_new, "."),
    TILEWISE_SLOT("rotary_cos", cache.rotary_cos, ".."),
    TILEWISE_SLOT("rotary_sin", cache.rotary_sin, ".."),
    TILEWISE_SLOT("rotary_seqlens", cache.rotary_seqlens, "b"),
    TILEWISE_SLOT("error_flag", cache.error_flag, "."),
    TILEWISE_SLOT("grad_o", gradients.grad_o, "bqhd", "qhd"),
    TILEWISE_SLOT("grad_lse", gradients.grad_lse, "bhq", "hq"),
    TILEWISE_SLOT("grad_q", gradients.grad_q, "bqhd", "qhd"),
    TILEWISE_SLOT("grad_k", gradients.grad_k, "bkgd", "kgd"),
    TILEWISE_SLOT("grad_v", gradients.grad_v, "bkgd", "kgd"),
    TILEWISE_SLOT("grad_bias", gradients.grad_bias, "bhqk"),
    TILEWISE_SLOT("grad_sink", gradients.grad_sink, "h"),
};
#undef TILEWISE_SLOT

// What the axes of a given tensor count; empty for a rank that the tensor cannot have.
std::string axes_of(const Slot& slot, const Tensor& tensor, const Attention& attention) {
    std::string axes;
    for (const char* form : slot.axes) {
        if (form != nullptr && std::strlen(form) == static_cast<size_t>(tensor.rank())) axes = form;
    }
    // Pages and cache rows are reached through a table: their first axes are not the batch and its keys.
    const bool indirect = attention.cache.page_table.given() || attention.cache.cache_batch_idx.given();
    if (indirect && axes == "bkgd") axes = attention.cache.page_table.given() ? "..gd" : ".kgd";
    if (indirect && std::string_view(slot.name) == "page_table" && attention.cache.cache_batch_idx.given()) axes = "..";
    return axes;
}

Tensor sliced(const Tensor& tensor, int32_t axis, const Range& range) {
    std::array<int64_t, TILEWISE_MAX_RANK> shape{}, stride{};
    for (int32_t i = 0; i < tensor.rank(); ++i) {
        shape[static_cast<size_t>(i)] = i == axis ? range.count : tensor.size(i);
        stride[static_cast<size_t>(i)] = tensor.stride(i);
    }
    auto* data = static_cast<std::byte*>(tensor.data());
    if (data != nullptr) data += range.begin * tensor.stride(axis) * size_of(tensor.dtype());
    const auto rank = static_cast<size_t>(tensor.rank());
    return {static_cast<const void*>(data), tensor.dtype(), Shape(std::span(shape).first(rank)),
            Shape(std::span(stride).first(rank))};
}

std::optional<Range> range_of(char axis, const Part& part, int64_t gqa_ratio) {
    switch (axis) {
    case 'b': return part.batch;
    case 'g': return part.heads_kv;
    case 'q': return part.rows;
    case 'k': return part.keys;
    case 'h':
        if (!part.heads_kv) return std::nullopt;
        return Range{part.heads_kv->begin * gqa_ratio, part.heads_kv->count * gqa_ratio};
    default: return std::nullopt;
    }
}

}  // namespace

std::span<const Slot> slots() { return kSlots; }

std::string to_text(const Tensor& tensor) {
    std::vector<int64_t> shape, stride;
    bool dense = true;
    int64_t step = 1;
    for (int32_t axis = tensor.rank() - 1; axis >= 0; --axis) {
        dense = dense && (tensor.size(axis) == 1 || tensor.stride(axis) == step);
        step *= tensor.size(axis);
    }
    for (int32_t axis = 0; axis < tensor.rank(); ++axis) {
        shape.push_back(tensor.size(axis));
        stride.push_back(tensor.stride(axis));
    }
    return fmt::format("{} {}{}", name_of(tensor.dtype()), shape_text(shape),
                       dense ? "" : " strides " + shape_text(stride));
}

std::string tensors_text(const Attention& attention) {
    std::string text;
    Attention copy = attention;  // slots give access for writing
    for (const Slot& slot : kSlots) {
        const Tensor& tensor = slot.of(copy);
        if (tensor.given()) text += fmt::format("  {:<16} {}\n", slot.name, to_text(tensor));
    }
    return text;
}

Attention part_of(const Attention& attention, const Part& part) {
    const CallSizes sizes = sizes_of(attention);
    const int64_t ratio = sizes.heads_kv > 0 ? sizes.heads / sizes.heads_kv : 1;
    Attention result = attention;
    for (const Slot& slot : kSlots) {
        Tensor& tensor = slot.of(result);
        if (!tensor.given()) continue;
        const std::string axes = axes_of(slot, tensor, attention);
        const bool broadcasts = std::string_view(slot.axes[0]) == "bhqk";
        for (size_t axis = 0; axis < axes.size(); ++axis) {
            const auto at = static_cast<int32_t>(axis);
            const std::optional<Range> range = range_of(axes[axis], part, ratio);
            if (range && !(broadcasts && tensor.size(at) == 1)) tensor = sliced(tensor, at, *range);
        }
    }
    return result;
}

std::vector<Part> parts_of(const Attention& attention, int64_t count) {
    const CallSizes sizes = sizes_of(attention);
    if (attention.score.dropout_p > 0 || sizes.batch < 1 || sizes.heads_kv < 1) return {Part{}};
    const int64_t sequences = sizes.ragged ? 1 : sizes.batch;
    const int64_t batch_cuts = std::clamp<int64_t>(count, 1, sequences);
    const int64_t head_cuts = std::clamp<int64_t>(count / batch_cuts, 1, sizes.heads_kv);
    const auto piece = [](int64_t index, int64_t cuts, int64_t size) {
        const int64_t begin = index * size / cuts;
        return Range{begin, (index + 1) * size / cuts - begin};
    };
    std::vector<Part> parts;
    for (int64_t i = 0; i < batch_cuts * head_cuts; ++i) {
        Part part;
        if (batch_cuts > 1) part.batch = piece(i / head_cuts, batch_cuts, sequences);
        if (head_cuts > 1) part.heads_kv = piece(i % head_cuts, head_cuts, sizes.heads_kv);
        parts.push_back(part);
    }
    return parts;
}

CallSizes sizes_of(const Attention& attention) {
    CallSizes sizes;
    const Tensor& q = attention.q;
    const Tensor& k = attention.k;
    const Tensor& v = attention.v;
    const int32_t last = q.rank() - 1;
    if (q.rank() < 3 || k.rank() < 3 || v.rank() != k.rank()) return sizes;
    sizes.ragged = q.rank() == 3;
    sizes.batch = sizes.ragged ? std::max<int64_t>(attention.lengths.cu_seqlens_q.size(0) - 1, 0) : q.size(0);
    sizes.seqlen_q = sizes.ragged ? attention.lengths.max_seqlen_q : q.size(1);
    if (sizes.ragged && sizes.seqlen_q == 0) sizes.seqlen_q = q.size(0);
    sizes.heads = q.size(last - 1);
    sizes.head_dim = q.size(last);
    sizes.heads_kv = k.size(k.rank() - 2);
    sizes.head_dim_v = v.size(v.rank() - 1);
    const Tensor& pages = attention.cache.page_table;
    if (pages.given())
        sizes.seqlen_k = pages.size(1) * k.size(1);
    else if (k.rank() == 4)
        sizes.seqlen_k = k.size(1);
    else
        sizes.seqlen_k = attention.lengths.max_seqlen_k > 0 ? attention.lengths.max_seqlen_k : k.size(0);
    return sizes;
}

}  // namespace tilewise::cli
