// Builds the tilewise::Attention of an instance, runs it and collects; see run.hpp.
#include "conformance/run.hpp"

#include <algorithm>
#include <cstring>

#include "conformance/buffer.hpp"
#include "conformance/element.hpp"
#include "conformance/storage.hpp"

namespace tilewise::conformance {

namespace {

// A workspace of exactly the bytes that the plan asks for, full of NaN, between guards.
class GuardedWorkspace {
public:
    GuardedWorkspace(const Device& device, size_t bytes)
        : bytes_(bytes), buffer_(device, bytes + 2 * Buffer::kAlignment, kGuard) {
        std::memset(buffer_.bytes().data() + Buffer::kAlignment, 0xff, bytes);
        buffer_.send();
    }
    std::span<std::byte> span() { return {buffer_.address() + Buffer::kAlignment, bytes_}; }
    bool is_damaged() {
        buffer_.fetch();
        const auto differs = [](unsigned char byte) { return byte != kGuard; };
        const auto first = buffer_.bytes().begin() + Buffer::kAlignment;
        return std::any_of(buffer_.bytes().begin(), first, differs) ||
               std::any_of(first + static_cast<std::ptrdiff_t>(bytes_), buffer_.bytes().end(), differs);
    }

private:
    static constexpr unsigned char kGuard = 0xa5;
    size_t bytes_;
    Buffer buffer_;
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

using Memory = std::map<Slot, Storage>;

// Plans, launches and waits; a refusal or failure goes into the outcome.
void make_call(const Device& device, Op op, const Attention& attention, Outcome* outcome) {
    try {
        const Plan plan(device, op, attention);
        outcome->kernel = plan.kernel();
        GuardedWorkspace workspace(device, plan.workspace_bytes());
        plan.launch(attention, Scratch(workspace.span()));
        synchronize(device);
        if (workspace.is_damaged())
            outcome->damage = "workspace: bytes outside of the " + std::to_string(plan.workspace_bytes()) +
                              " that the plan asked for changed";
    } catch (const Error& error) {
        outcome->status = error.status();
        outcome->message = error.what();
    }
}

void collect(const Instance& instance, Memory& memory, Outcome* outcome) {
    for (auto& [slot, storage] : memory) {
        storage.fetch();
        const std::string damage = storage.find_damage();
        if (!damage.empty() && outcome->damage.empty()) outcome->damage = std::string(name_of(slot)) + ": " + damage;
        if (instance.at(slot).access == Access::kIn) continue;
        Output& output = outcome->outputs[slot];
        output.values = storage.values();
        for (int64_t i = 0; i < instance.at(slot).num_elements(); ++i)
            output.unwritten.push_back(storage.is_unwritten(i) ? 1 : 0);
    }
}

Outcome run_call(const Device& device, const Instance& instance, const Options& options, bool in_f64,
                 const CallEdit& edit) {
    Outcome outcome;
    try {
        Memory memory;
        Attention attention;
        for (const auto& [slot, tensor] : instance.tensors) {
            const DType dtype = in_f64 ? widened(slot, tensor.dtype) : tensor.dtype;
            tensor_of(attention, slot) = memory.try_emplace(slot, device, tensor, dtype).first->second.view();
        }
        set_scalars(instance.spec, instance, &attention);
        attention.options = options;
        if (edit) edit(attention);
        make_call(device, instance.spec.op, attention, &outcome);
        collect(instance, memory, &outcome);
    } catch (const Error& error) {  // of the memory: no more of it, or a device that no longer answers
        if (!outcome.ok()) return outcome;
        outcome.status = error.status();
        outcome.message = error.what();
    }
    return outcome;
}

}  // namespace

Outcome run_kernel(const Device& device, const Instance& instance, const std::string& kernel, const CallEdit& edit) {
    Options options;
    set_options(instance.spec.run, kernel, &options);
    return run_call(device, instance, options, false, edit);
}

Outcome run_oracle(const Instance& instance) {
    static const Device cpu("cpu");
    Options options;
    options.num_threads = 1;
    switch (instance.spec.op) {
    case Op::kBackward: options.kernel = "cpu_reference_backward"; break;
    case Op::kAppend: options.kernel = "cpu_append"; break;
    default: options.kernel = "cpu_reference_forward"; break;
    }
    return run_call(cpu, instance, options, true, {});
}

}  // namespace tilewise::conformance
