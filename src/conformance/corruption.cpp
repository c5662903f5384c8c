// See corruption.hpp. A corruption that does not apply to an instance returns no names, and the caller draws another.
#include "conformance/corruption.hpp"

#include <algorithm>
#include <limits>

#include "conformance/element.hpp"

namespace tilewise::conformance {

namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Any tensor that the call has and that has elements.
Slot any_slot(const Instance& instance, Random& random) {
    for (;;) {
        auto it = instance.tensors.begin();
        std::advance(it, random.below(static_cast<int64_t>(instance.tensors.size())));
        if (it->second.num_elements() > 0 || random.chance(0.05)) return it->first;
    }
}

Tensor with(const Tensor& tensor, DType dtype, const std::vector<int64_t>& shape, const std::vector<int64_t>& strides) {
    return Tensor(static_cast<const void*>(tensor.data()), dtype, Shape(std::span<const int64_t>(shape)),
                  Shape(std::span<const int64_t>(strides)));
}

std::vector<int64_t> shape_of(const Tensor& tensor) {
    std::vector<int64_t> shape;
    for (int axis = 0; axis < tensor.rank(); ++axis) shape.push_back(tensor.size(axis));
    return shape;
}
std::vector<int64_t> strides_of(const Tensor& tensor) {
    std::vector<int64_t> strides;
    for (int axis = 0; axis < tensor.rank(); ++axis) strides.push_back(tensor.stride(axis));
    return strides;
}

Corruption corrupt_dtype(const Instance& instance, Attention& attention, Random& random) {
    const Slot slot = any_slot(instance, random);
    Tensor& tensor = tensor_of(attention, slot);
    tensor = with(tensor, DType::kI64, shape_of(tensor), strides_of(tensor));
    // A type of q, k or v that stands alone may be told by naming the tensors that it should agree with.
    return {std::string("i64 as ") + name_of(slot), {name_of(slot)}};
}

Corruption corrupt_rank(const Instance& instance, Attention& attention, Random& random) {
    const Slot slot = any_slot(instance, random);
    Tensor& tensor = tensor_of(attention, slot);
    std::vector<int64_t> shape = shape_of(tensor), strides = strides_of(tensor);
    shape.insert(shape.begin(), 1);
    strides.insert(strides.begin(), 0);
    if (shape.size() > TILEWISE_MAX_RANK) return {};
    tensor = with(tensor, tensor.dtype(), shape, strides);
    // One axis more turns (heads) slopes into (batch, heads) ones, which the batch may agree with.
    if (slot == Slot::kAlibiSlopes) return {};
    return {std::string("one axis more in ") + name_of(slot), {name_of(slot)}};
}

Corruption corrupt_stride(const Instance& instance, Attention& attention, Random& random) {
    const Slot slot = any_slot(instance, random);
    Tensor& tensor = tensor_of(attention, slot);
    std::vector<int64_t> strides = strides_of(tensor);
    const auto axis = static_cast<size_t>(random.below(tensor.rank()));
    if (tensor.size(static_cast<int32_t>(axis)) < 2) return {};
    strides[axis] = -1;
    tensor = with(tensor, tensor.dtype(), shape_of(tensor), strides);
    return {std::string("negative stride in ") + name_of(slot), {name_of(slot)}};
}

Corruption corrupt_overlap(const Instance& instance, Attention& attention, Random& random) {
    const Slot slot = any_slot(instance, random);
    if (instance.at(slot).access == Access::kIn) return {};
    Tensor& tensor = tensor_of(attention, slot);
    const auto axis = static_cast<size_t>(random.below(tensor.rank()));
    if (tensor.size(static_cast<int32_t>(axis)) < 2 || instance.at(slot).num_elements() == 0) return {};
    std::vector<int64_t> strides = strides_of(tensor);
    strides[axis] = 0;
    tensor = with(tensor, tensor.dtype(), shape_of(tensor), strides);
    return {std::string("output with stride 0: ") + name_of(slot), {name_of(slot)}};
}

Corruption corrupt_pointer(const Instance& instance, Attention& attention, Random& random) {
    const Slot slot = any_slot(instance, random);
    Tensor& tensor = tensor_of(attention, slot);
    if (instance.at(slot).num_elements() == 0) return {};
    const bool null = random.chance(0.5);
    if (!null && size_of(tensor.dtype()) == 1) return {};
    const void* data = null ? nullptr : static_cast<const char*>(tensor.data()) + 1;
    tensor = Tensor(data, tensor.dtype(), Shape(std::span<const int64_t>(shape_of(tensor))),
                    Shape(std::span<const int64_t>(strides_of(tensor))));
    return {std::string(null ? "null " : "misaligned ") + name_of(slot), {name_of(slot)}};
}

Corruption corrupt_missing(const Instance& instance, Attention& attention, Random& random) {
    for (const Slot slot :
         {random.pick({Slot::kV, Slot::kO, Slot::kK, Slot::kQ, Slot::kGradO, Slot::kGradK, Slot::kVNew}), Slot::kV}) {
        if (!instance.has(slot)) continue;
        tensor_of(attention, slot) = {};
        return {std::string("no ") + name_of(slot), {name_of(slot)}};
    }
    return {};
}

Corruption corrupt_extra(const Instance& instance, Attention& attention, Random&) {
    static float slope[1] = {1};
    static int32_t zero[1] = {0};
    if (instance.spec.op == Op::kAppend) {
        attention.score.alibi_slopes = Tensor(slope, Shape(1));
        return {"alibi_slopes of an append", {"alibi_slopes"}};
    }
    if (instance.spec.op == Op::kDecode) {
        attention.lengths.seqused_k = Tensor(zero, Shape(1));
        return {"seqused_k of a decode", {"seqused_k"}};
    }
    if (instance.spec.op == Op::kForward) {
        attention.gradients.grad_q = attention.q;
        return {"grad_q of a forward", {"grad_q"}};
    }
    attention.cache.page_table = Tensor(zero, Shape(1, 1));
    return {"page_table of a backward", {"page_table"}};
}

// Sizes that two tensors disagree about.
Corruption corrupt_size(const Instance& instance, Attention& attention, Random& random) {
    const Slot slot = any_slot(instance, random);
    Tensor& tensor = tensor_of(attention, slot);
    std::vector<int64_t> shape = shape_of(tensor);
    const auto axis = static_cast<size_t>(random.below(tensor.rank()));
    // Axes that no other tensor shares, or where a smaller tensor is as good.
    const bool free_axis = slot == Slot::kK || slot == Slot::kV || slot == Slot::kQ || slot == Slot::kPageTable ||
                           slot == Slot::kMask || slot == Slot::kBias || slot == Slot::kRotaryCos ||
                           slot == Slot::kRotarySin || shape[axis] < 2;
    if (free_axis || instance.at(slot).num_elements() == 0) return {};
    shape[axis] -= 1;
    tensor = with(tensor, tensor.dtype(), shape, strides_of(tensor));
    return {std::string("one element less in ") + name_of(slot), {name_of(slot)}};
}

Corruption corrupt_number(const Instance& instance, Attention& attention, Random& random) {
    const bool attends = instance.spec.op != Op::kAppend;
    Score& score = attention.score;
    Mask& mask = attention.mask;
    switch (random.below(attends ? 12 : 2)) {
    case 0: attention.options.num_splits = -1; return {"num_splits -1", {"num_splits"}};
    case 1: attention.options.num_threads = -5; return {"num_threads -5", {"num_threads"}};
    case 2: score.softmax_scale = random.pick({-1.0f, kNaN, -kNaN}); return {"a wrong scale", {"softmax_scale"}};
    case 3: score.softcap = random.pick({-1.0f, kNaN}); return {"a wrong softcap", {"softcap"}};
    case 4: score.dropout_p = random.pick({1.0f, -0.5f, kNaN, 3.0f}); return {"a wrong dropout_p", {"dropout_p"}};
    case 5: mask.window_left = -2; return {"window_left -2", {"window_left"}};
    case 6:
        mask.causal = false;
        mask.window_right = -7;
        return {"window_right -7", {"window_right"}};
    case 7: mask.chunk = -1; return {"chunk -1", {"chunk"}};
    case 8: mask.prefix = -3; return {"prefix -3", {"prefix"}};
    case 9:
        score.dropout_p = 0;
        score.dropout_seed = 5;
        return {"dropout_seed without dropout_p", {"dropout_seed"}};
    case 10:
        mask.causal = true;
        mask.window_right = 3;
        return {"window_right beside causal", {"window_right"}};
    default: attention.options.kernel = "no_such_kernel"; return {"an unknown kernel", {"kernel"}};
    }
}

// Element `i` of an integer tensor.
double& element(Instance& instance, Slot slot, int64_t i) {
    return instance.tensors.at(slot).values[static_cast<size_t>(i)];
}

Corruption corrupt_cumulative(Instance& instance, Slot slot, Random& random) {
    const int64_t last = instance.at(slot).num_elements() - 1;
    if (random.chance(0.3)) {
        element(instance, slot, 0) = 1;
        return {std::string(name_of(slot)) + "[0] is 1", {name_of(slot)}};
    }
    element(instance, slot, last) = random.chance(0.5) ? -1 : 100000;
    return {std::string(name_of(slot)) + " ends wrong", {name_of(slot), "max_seqlen_q", "max_seqlen_k"}};
}

}  // namespace

Corruption corrupt_values(Instance& instance, Random& random) {
    const Slot slot =
        random.pick({Slot::kCuSeqlensQ, Slot::kCuSeqlensK, Slot::kCuSeqlensKNew, Slot::kSequsedQ, Slot::kSequsedK,
                     Slot::kLeftpadK, Slot::kPrefixLens, Slot::kCacheSeqlens, Slot::kCacheBatchIdx, Slot::kPageTable});
    if (!instance.has(slot) || instance.at(slot).num_elements() == 0) return {};
    if (slot == Slot::kCuSeqlensQ || slot == Slot::kCuSeqlensK || slot == Slot::kCuSeqlensKNew)
        return corrupt_cumulative(instance, slot, random);
    const auto index = random.below(instance.at(slot).num_elements());
    double& value = element(instance, slot, index);
    std::vector<std::string> names{name_of(slot)};
    if (slot == Slot::kPageTable) {
        // Only a page that holds keys is looked at.
        if (value < 0 || value >= 1 << 28) return {};
        value = random.chance(0.5) ? -1 : 1 << 28;
    } else if (slot == Slot::kPrefixLens) {
        value = -1;
    } else {
        value = random.chance(0.5) ? -1 : 1 << 20;
    }
    // A length can be told through what it does not fit.
    if (slot == Slot::kCacheSeqlens || slot == Slot::kSequsedK) names.insert(names.end(), {"page_table", "k_new"});
    return {std::string(name_of(slot)) + "[" + std::to_string(index) + "] is wrong", names};
}

Corruption corrupt_call(const Instance& instance, Attention& attention, Random& random) {
    using Corrupt = Corruption (*)(const Instance&, Attention&, Random&);
    const auto corrupt =
        random.pick<Corrupt>({corrupt_dtype, corrupt_rank, corrupt_stride, corrupt_overlap, corrupt_pointer,
                              corrupt_missing, corrupt_extra, corrupt_size, corrupt_number, corrupt_number});
    const Attention before = attention;
    Corruption corruption = corrupt(instance, attention, random);
    if (corruption.names.empty()) attention = before;
    return corruption;
}

bool is_argument_name(const std::string& name) {
    static const char* const kOthers[] = {
        "max_seqlen_q",       "max_seqlen_k",  "window_left", "window_right", "chunk",         "prefix",
        "top_left",           "softmax_scale", "softcap",     "dropout_p",    "dropout_seed",  "dropout_offset",
        "rotary_interleaved", "num_splits",    "num_threads", "kernel",       "workspace",     "device",
        "partial_o",          "partial_lse",   "mask.flags",  "score.flags",  "options.flags",
    };
    for (int i = 0; i < static_cast<int>(Slot::kCount); ++i)
        if (name == name_of(static_cast<Slot>(i))) return true;
    return std::any_of(std::begin(kOthers), std::end(kOthers), [&](const char* other) { return name == other; });
}

}  // namespace tilewise::conformance
