// Builds the tilewise::Attention of an instance, runs it and collects; see run.hpp.
#include "conformance/run.hpp"

#include <algorithm>
#include <cstring>

#include "conformance/element.hpp"
#include "conformance/storage.hpp"

namespace tilewise::conformance {

namespace {

// A workspace of exactly the bytes that the plan asks for, full of NaN, between guards.
class GuardedWorkspace {
public:
    explicit GuardedWorkspace(size_t bytes) : bytes_(bytes), memory_(bytes + 3 * kAlignment, kGuard) {
        const auto address = reinterpret_cast<uintptr_t>(memory_.data()) + kAlignment;
        first_ = kAlignment + (kAlignment - address % kAlignment) % kAlignment;
        std::memset(memory_.data() + first_, 0xff, bytes);
    }
    std::span<std::byte> span() { return {reinterpret_cast<std::byte*>(memory_.data() + first_), bytes_}; }
    bool is_damaged() const {
        const auto differs = [](unsigned char byte) { return byte != kGuard; };
        return std::any_of(memory_.begin(), memory_.begin() + static_cast<std::ptrdiff_t>(first_), differs) ||
               std::any_of(memory_.begin() + static_cast<std::ptrdiff_t>(first_ + bytes_), memory_.end(), differs);
    }

private:
    static constexpr size_t kAlignment = 64;
    static constexpr unsigned char kGuard = 0xa5;
    size_t bytes_;
    std::vector<unsigned char> memory_;
    size_t first_ = 0;
};

void set_scalars(const ProblemSpec& spec, const Instance& instance, Attention* attention) {
    attention->mask.causal = spec.mask.causal;
    attention->mask.top_left = spec.mask.top_left;
    attention->mask.window_left = spec.mask.left;
    attention->mask.window_right = spec.mask.right;
    attention->mask.chunk = spec.mask.chunk;
    attention->mask.block = spec.mask.block;
    attention->mask.prefix = spec.mask.prefix;
    attention->score.softmax_scale = spec.score.scale;
    attention->score.softcap = spec.score.softcap;
    attention->score.dropout_p = spec.score.dropout_p;
    attention->score.dropout_seed = spec.score.dropout_seed;
    attention->score.dropout_offset = spec.score.dropout_offset;
    attention->cache.rotary_interleaved = spec.cache.rotary_interleaved;
    if (!spec.lengths.bounds) return;
    if (instance.has(Slot::kCuSeqlensQ)) attention->lengths.max_seqlen_q = instance.max_rows_q;
    if (instance.has(Slot::kCuSeqlensK)) attention->lengths.max_seqlen_k = instance.max_rows_k;
}

void set_options(const RunSpec& run, const std::string& kernel, Options* options) {
    options->deterministic = run.deterministic;
    options->batch_invariant = run.batch_invariant;
    options->num_splits = run.num_splits;
    options->num_threads = run.num_threads;
    options->kernel = kernel;
}

// ALiBi slopes and sinks are f32 beside every element type.
DType widened(Slot slot, DType dtype) {
    return is_floating(dtype) && slot != Slot::kAlibiSlopes && slot != Slot::kSink ? DType::kF64 : dtype;
}

Outcome run_call(const Device& device, const Instance& instance, const Options& options, bool in_f64,
                 const CallEdit& edit) {
    std::map<Slot, Storage> memory;
    Attention attention;
    for (const auto& [slot, tensor] : instance.tensors) {
        Storage& storage =
            memory.try_emplace(slot, tensor, in_f64 ? widened(slot, tensor.dtype) : tensor.dtype).first->second;
        tensor_of(attention, slot) = storage.view();
    }
    set_scalars(instance.spec, instance, &attention);
    attention.options = options;
    if (edit) edit(attention);
    Outcome outcome;
    try {
        const Plan plan(device, instance.spec.op, attention);
        outcome.kernel = plan.kernel();
        GuardedWorkspace workspace(plan.workspace_bytes());
        plan.launch(attention, Scratch(workspace.span()));
        if (workspace.is_damaged())
            outcome.damage = "workspace: bytes outside of the " + std::to_string(plan.workspace_bytes()) +
                             " that the plan asked for changed";
    } catch (const Error& error) {
        outcome.status = error.status();
        outcome.message = error.what();
    }
    for (auto& [slot, storage] : memory) {
        const std::string damage = storage.find_damage();
        if (!damage.empty() && outcome.damage.empty()) outcome.damage = std::string(name_of(slot)) + ": " + damage;
        if (instance.at(slot).access == Access::kIn) continue;
        Output& output = outcome.outputs[slot];
        output.values = storage.values();
        for (int64_t i = 0; i < instance.at(slot).num_elements(); ++i)
            output.unwritten.push_back(storage.is_unwritten(i) ? 1 : 0);
    }
    return outcome;
}

}  // namespace

Outcome run_kernel(const Device& device, const Instance& instance, const std::string& kernel, const CallEdit& edit) {
    Options options;
    set_options(instance.spec.run, kernel, &options);
    return run_call(device, instance, options, false, edit);
}

Outcome run_oracle(const Device& device, const Instance& instance) {
    Options options;
    options.num_threads = 1;
    switch (instance.spec.op) {
    case Op::kBackward: options.kernel = "cpu_reference_backward"; break;
    case Op::kAppend: options.kernel = "cpu_append"; break;
    default: options.kernel = "cpu_reference_forward"; break;
    }
    return run_call(device, instance, options, true, {});
}

}  // namespace tilewise::conformance
