// Declares the flags and translates them into the library's options.
#include "flags.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <utility>

#include "error.hpp"
#include "host_tensor.hpp"

namespace tilewise::cli {
namespace {

constexpr std::array<std::pair<Op, const char*>, 5> kOps{{
    {Op::kForward, "forward"},
    {Op::kBackward, "backward"},
    {Op::kDecode, "decode"},
    {Op::kAppend, "append"},
    {Op::kCombine, "combine"},
}};

// "5,-1,0". One argument, which CLI11 would take for a short option or split at the commas before it counts.
std::vector<int64_t> parse_list(const std::string& flag, const std::string& text) {
    std::vector<int64_t> values;
    const char* at = text.data();
    const char* const end = at + text.size();
    while (true) {
        int64_t value = 0;
        const auto [next, error] = std::from_chars(at, end, value);
        if (error != std::errc() || (next != end && *next != ',')) {
            throw UsageError(fmt::format("{}: \"{}\"; whole numbers between commas are allowed", flag.substr(2), text));
        }
        values.push_back(value);
        if (next == end) return values;
        at = next + 1;
    }
}

CLI::Option* add_list(CLI::App& app, const std::string& flag, std::vector<int64_t>& values, const std::string& help) {
    const auto store = [flag, &values](const std::string& text) { values = parse_list(flag, text); };
    return app.add_option_function<std::string>(flag, store, help);
}

void add_flags(CLI::App& app, ShapeFlags& flags) {
    const char* group = "Shapes";
    app.add_option("--op", flags.op, "forward, backward, decode, append or combine")
        ->capture_default_str()
        ->group(group);
    app.add_option("--batch", flags.batch, "sequences")->capture_default_str()->group(group);
    app.add_option("--seqlen-q", flags.seqlen_q, "queries of a sequence [1024; decode: the new tokens]")->group(group);
    app.add_option("--seqlen-k", flags.seqlen_k, "keys that a sequence attends to, new tokens included [seqlen-q]")
        ->group(group);
    app.add_option("--heads", flags.heads, "query heads")->capture_default_str()->group(group);
    app.add_option("--heads-kv", flags.heads_kv, "key and value heads; divides the query heads [heads]")->group(group);
    app.add_option("--head-dim", flags.head_dim, "elements of a query or key")->capture_default_str()->group(group);
    app.add_option("--head-dim-v", flags.head_dim_v, "elements of a value [head-dim]")->group(group);
    app.add_option("--dtype", flags.dtype, "f32, f16, bf16 or f64")->capture_default_str()->group(group);
    app.add_option("--layout", flags.layout, "order of the axes in memory: bshd or bhsd")
        ->check(CLI::IsMember({"bshd", "bhsd"}))
        ->capture_default_str()
        ->group(group);
}

void add_flags(CLI::App& app, LengthFlags& flags) {
    const char* group = "Lengths and cache";
    add_list(app, "--ragged", flags.ragged, "packed sequences with these numbers of queries; sets the batch")
        ->type_name("N,N,...")
        ->group(group);
    add_list(app, "--ragged-k", flags.ragged_k, "their numbers of keys [ragged]")->type_name("N,N,...")->group(group);
    app.add_option("--leftpad", flags.leftpad, "unused keys at the start of each sequence")->group(group);
    app.add_option("--page-size", flags.page_size, "keys and values in pages of this many rows")->group(group);
    app.add_option("--new-tokens", flags.new_tokens, "keys that decode or append writes to the cache")->group(group);
    app.add_option("--rotary-dim", flags.rotary_dim, "rotates this many elements of queries and new keys")
        ->group(group);
    app.add_flag("--rotary-interleaved", flags.rotary_interleaved, "rotates neighbours, not halves")->group(group);
}

void add_flags(CLI::App& app, TensorFlags& flags) {
    const char* group = "Optional tensors";
    app.add_option("--alibi", flags.alibi, "ALiBi slopes with axes h or bh")
        ->check(CLI::IsMember({"h", "bh"}))
        ->group(group);
    app.add_option("--bias", flags.bias, "additive bias with axes bhqk, 1 where it is broadcast: 1hqk, 11qk")
        ->group(group);
    app.add_option("--bool-mask", flags.bool_mask, "boolean mask with such axes")->group(group);
    app.add_flag("--sink", flags.sink, "one sink logit a head")->group(group);
    app.add_flag("--no-lse", flags.no_lse, "forward and decode without lse")->group(group);
    app.add_flag("--grad-bias", flags.grad_bias, "backward with the gradient of the bias")->group(group);
    app.add_flag("--grad-sink", flags.grad_sink, "backward with the gradient of the sink")->group(group);
}

}  // namespace

void add_flags(CLI::App& app, MaskFlags& flags) {
    const char* group = "Mask";
    app.add_flag("--causal", flags.causal, "keys up to the diagonal")->group(group);
    add_list(app, "--window", flags.window, "keys from LEFT before the diagonal to RIGHT after it; -1 is unlimited")
        ->type_name("LEFT,RIGHT")
        ->group(group);
    app.add_option("--chunk", flags.chunk, "only keys of the same chunk of this many")->group(group);
    app.add_option("--block", flags.block, "only keys up to the end of the block of this many that holds the diagonal")
        ->group(group);
    app.add_option("--prefix", flags.prefix, "this many first keys are visible to every query")->group(group);
    app.add_flag("--top-left", flags.top_left, "the diagonal begins at query 0, key 0 [it ends at the last of both]")
        ->group(group);
}

void add_flags(CLI::App& app, ScoreFlags& flags) {
    const char* group = "Scores";
    app.add_option("--scale", flags.scale, "softmax scale [head-dim^-0.5]")->group(group);
    app.add_option("--softcap", flags.softcap, "s becomes softcap * tanh(s / softcap)")->group(group);
    app.add_option("--dropout", flags.dropout, "probability that an entry of P is dropped")->group(group);
    app.add_option("--seed", flags.seed, "of dropout")->group(group);
    app.add_option("--offset", flags.offset, "of dropout")->group(group);
}

void add_flags(CLI::App& app, ExecFlags& flags) {
    const char* group = "Execution";
    app.add_option("--splits", flags.splits, "splits of the keys; combine: parts [the plan chooses]")->group(group);
    app.add_option("--threads", flags.threads, "CPU threads [one a core]")->group(group);
    app.add_option("--kernel", flags.kernel, "the kernel to use, by its name in `tilewise info`")->group(group);
    app.add_flag("--deterministic", flags.deterministic, "grad_q bitwise repeatable")->group(group);
    app.add_flag("--batch-invariant", flags.batch_invariant, "bits of a row do not depend on other rows")->group(group);
}

void add_flags(CLI::App& app, ProblemFlags& flags) {
    add_flags(app, flags.shape);
    add_flags(app, flags.lengths);
    add_flags(app, flags.mask);
    add_flags(app, flags.score);
    add_flags(app, flags.tensors);
    add_flags(app, flags.exec);
}

Mask mask_of(const MaskFlags& flags) {
    if (flags.chunk > std::numeric_limits<int32_t>::max() || flags.chunk < std::numeric_limits<int32_t>::min()) {
        throw UsageError(fmt::format("chunk: {} does not fit into 32 bits", flags.chunk));
    }
    Mask mask{.causal = flags.causal,
              .top_left = flags.top_left,
              .chunk = static_cast<int32_t>(flags.chunk),
              .prefix = flags.prefix,
              .block = flags.block};
    if (!flags.window.empty()) {
        if (flags.window.size() != 2) {
            throw UsageError(fmt::format("window: {} has {} numbers; LEFT,RIGHT is allowed",
                                         fmt::join(flags.window, ","), flags.window.size()));
        }
        mask.window_left = flags.window[0];
        mask.window_right = flags.window[1];
    }
    return mask;
}

Score score_of(const ScoreFlags& flags) {
    return {.softmax_scale = flags.scale,
            .softcap = flags.softcap,
            .dropout_p = flags.dropout,
            .dropout_seed = flags.seed,
            .dropout_offset = flags.offset};
}

Options options_of(const ExecFlags& flags) {
    return {.deterministic = flags.deterministic,
            .batch_invariant = flags.batch_invariant,
            .num_splits = flags.splits,
            .num_threads = flags.threads,
            .kernel = flags.kernel};
}

Op op_of(const std::string& name) {
    for (const auto& [op, known] : kOps) {
        if (name == known) return op;
    }
    throw UsageError(
        fmt::format("op: \"{}\" is unknown; allowed are forward, backward, decode, append and combine", name));
}

const char* name_of(Op op) {
    for (const auto& [known, name] : kOps) {
        if (op == known) return name;
    }
    return "unknown";
}

DType dtype_of(const std::string& argument, const std::string& name) {
    const DType dtype = dtype_named(name);
    const std::array allowed{DType::kF32, DType::kF16, DType::kBF16, DType::kF64};
    if (std::find(allowed.begin(), allowed.end(), dtype) == allowed.end()) {
        throw UsageError(fmt::format("{}: \"{}\" is unknown; allowed are f32, f16, bf16 and f64", argument, name));
    }
    return dtype;
}

Device open_device(const std::string& name) {
    // The list of devices asks the CUDA driver, which a run on the CPU has no need of. A GPU that cannot be opened has a better
    // reason than its absence from the list.
    if (name == "cpu" || name.starts_with("cuda")) return Device(name);
    const std::vector<std::string> names = devices(true);
    for (const std::string& candidate : {name, "recorded:" + name}) {
        if (std::find(names.begin(), names.end(), candidate) != names.end()) return Device(candidate);
    }
    throw UsageError(fmt::format("device: \"{}\" is unknown; known are {}", name, fmt::join(names, ", ")));
}

}  // namespace tilewise::cli
