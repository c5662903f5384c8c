// What a call of an instance writes, what a backward pass is given for it, and the layouts of all tensors; see instance_parts.hpp.
#include <algorithm>

#include "conformance/instance_parts.hpp"

namespace tilewise::conformance {

namespace {

// Of lse and its gradient.
DType row_dtype(const Instance& instance) { return instance.dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

void add_gradients(Instance& instance, const std::vector<int64_t>& o_shape, const std::vector<int64_t>& lse_shape,
                   Random& random) {
    TensorData& grad_o = add_tensor(instance, Slot::kGradO, instance.dtype, o_shape);
    for (const SequenceData& sequence : instance.sequences)
        for (int64_t row = 0; row < sequence.num_rows; ++row)
            fill_row(grad_o, sequence.first_row + row, [&](int64_t) { return random.normal(); });
    if (instance.spec.run.grad_lse) {
        TensorData& grad_lse = add_tensor(instance, Slot::kGradLse, row_dtype(instance), lse_shape);
        for (size_t s = 0; s < instance.sequences.size(); ++s)
            for (int64_t head = 0; head < instance.spec.sizes.heads_q; ++head)
                for (int64_t row = 0; row < instance.sequences[s].num_rows; ++row)
                    grad_lse.values[static_cast<size_t>(instance.lse_index(s, head, row))] =
                        rounded(grad_lse.dtype, random.normal());
    }
    const std::pair<Slot, Slot> wanted[] = {{Slot::kGradQ, Slot::kQ},
                                            {Slot::kGradK, Slot::kK},
                                            {Slot::kGradV, Slot::kV},
                                            {Slot::kGradBias, Slot::kBias},
                                            {Slot::kGradSink, Slot::kSink}};
    for (const auto& [gradient, of] : wanted)
        if (instance.has(of))
            add_tensor(instance, gradient, instance.at(of).dtype, instance.at(of).shape).access = Access::kOut;
}

}  // namespace

void add_outputs(Instance& instance, Random& random) {
    const ProblemSpec& spec = instance.spec;
    const SizesSpec& sizes = spec.sizes;
    if (spec.cache.appends())
        for (const Slot slot : {Slot::kK, Slot::kV}) {
            TensorData& cache = instance.tensors.at(slot);
            cache.access = Access::kInOut;
            cache.writable.assign(cache.values.size(), 0);
            const int64_t width = cache.shape[2] * cache.shape[3];
            for (const SequenceData& sequence : instance.sequences)
                for (int64_t key = sequence.num_cached; key < sequence.num_keys(); ++key)
                    std::fill_n(cache.writable.begin() + sequence.key_rows[static_cast<size_t>(key)] * width, width,
                                uint8_t{1});
        }
    if (spec.op == Op::kAppend) return;
    const auto rows = row_shape(instance, spec.lengths.rows_q, sizes.seqlen_q);
    const auto o_shape = with(rows, {sizes.heads_q, sizes.head_dim_v});
    const auto lse_shape = spec.lengths.rows_q.empty()
                               ? std::vector<int64_t>{sizes.batch, sizes.heads_q, sizes.seqlen_q}
                               : std::vector<int64_t>{sizes.heads_q, rows[0]};
    const bool backward = spec.op == Op::kBackward;
    const Access access = backward ? Access::kIn : Access::kOut;
    add_tensor(instance, Slot::kO, instance.dtype, o_shape).access = access;
    if (backward || spec.run.lse) add_tensor(instance, Slot::kLse, row_dtype(instance), lse_shape).access = access;
    if (backward) add_gradients(instance, o_shape, lse_shape, random);
}

void apply_layouts(Instance& instance) {
    for (auto& [slot, tensor] : instance.tensors) {
        const bool output = tensor.access == Access::kOut;
        tensor.layout = output ? instance.spec.output_layout : instance.spec.layout;
        const bool head_tensor = is_floating(tensor.dtype) && tensor.shape.size() >= 3 && slot != Slot::kLse &&
                                 slot != Slot::kGradLse && slot != Slot::kBias && slot != Slot::kGradBias;
        const bool may_share = head_tensor && tensor.access == Access::kIn && slot != Slot::kO;
        const auto rank = static_cast<uint32_t>(tensor.shape.size());
        if (may_share && tensor.layout == Layout::kSharedHeads) tensor.shared_axes = 1u << (rank - 2);
        if (may_share && tensor.layout == Layout::kSharedBatch && rank == 4) tensor.shared_axes = 1;
        if (tensor.shared_axes == 0 || tensor.values.empty()) continue;
        for (int64_t index = 0; index < tensor.num_elements(); ++index) {
            int64_t rest = index, source = 0, step = 1;
            for (size_t axis = rank; axis-- > 0;) {
                const int64_t place = rest % tensor.shape[axis];
                rest /= tensor.shape[axis];
                if ((tensor.shared_axes >> axis & 1) == 0) source += place * step;
                step *= tensor.shape[axis];
            }
            tensor.values[static_cast<size_t>(index)] = tensor.values[static_cast<size_t>(source)];
        }
    }
}

}  // namespace tilewise::conformance
