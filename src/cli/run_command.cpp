// `tilewise run`: q, k, v from files, options as flags -> o and lse in files. Long work is cut into independent parts (whole
// sequences or groups of heads) so that its progress can be shown; every part runs the kernel of the whole call's plan.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "atomic_file.hpp"
#include "commands.hpp"
#include "device_call.hpp"
#include "error.hpp"
#include "flags.hpp"
#include "progress.hpp"
#include "slots.hpp"
#include "tensor_file.hpp"
#include "work.hpp"

namespace tilewise::cli {
namespace {

// A part takes around a tenth of a second to a few seconds, depending on the machine.
constexpr double kPartFlops = 2e10;
constexpr double kMaxParts = 1e6;

struct RunFlags {
    std::map<std::string, std::string> places;  // argument -> file
    std::string input;
    std::string out;
    std::string lse;
    bool force = false;
    std::string device = "cpu";
    MaskFlags mask;
    ScoreFlags score;
    ExecFlags exec;
};

struct FileArgument {
    const char* name;  // of the slot
    const char* help;
};
constexpr FileArgument kFileArguments[] = {
    {"q", "(batch, seqlen_q, heads, head_dim), or packed (total_q, heads, head_dim)"},
    {"k", "(batch, seqlen_k, heads_kv, head_dim), packed, or paged (pages, page_size, heads_kv, head_dim)"},
    {"v", "like k, with head_dim_v"},
    {"mask", "bool, broadcast to (batch, heads, seqlen_q, seqlen_k): true is visible"},
    {"bias", "added to the scores, broadcast likewise"},
    {"alibi_slopes", "f32 (heads) or (batch, heads)"},
    {"sink", "f32 (heads)"},
    {"cu_seqlens_q", "(batch + 1): first row of each packed sequence"},
    {"cu_seqlens_k", "(batch + 1)"},
    {"seqused_q", "(batch): queries in use"},
    {"seqused_k", "(batch): keys in use"},
    {"leftpad_k", "(batch): first valid key"},
    {"prefix_lens", "(batch): keys that every query sees"},
    {"key_begin", "(batch, seqlen_q): first key of each query"},
    {"key_end", "(batch, seqlen_q): end of each query's keys"},
    {"page_table", "(batch, max_pages): page ids"},
    {"cache_batch_idx", "(batch): cache row of each sequence"},
};

const Slot& slot_named(const std::string& name) {
    const auto all = slots();
    return *std::find_if(all.begin(), all.end(), [&](const Slot& slot) { return slot.name == name; });
}

// numpy makes 64-bit integers unless told otherwise; lengths and ids that fit are taken.
HostTensor narrowed(const std::string& name, HostTensor tensor) {
    if (tensor.dtype() != DType::kI64 || !tensor.is_contiguous()) return tensor;
    HostTensor result(name, DType::kI32, tensor.shape());
    const auto wide = tensor.as<int64_t>();
    for (size_t i = 0; i < wide.size(); ++i) {
        if (wide[i] != static_cast<int32_t>(wide[i]))
            throw Failure(fmt::format("{}: {} does not fit into 32 bits", name, wide[i]));
        result.as<int32_t>()[i] = static_cast<int32_t>(wide[i]);
    }
    return result;
}

class Runner {
public:
    explicit Runner(const RunFlags& flags) : flags_(flags) {}

    void run() {
        check_outputs();
        read_inputs();
        make_outputs();
        const Device device = open_device(flags_.device);
        const Ran ran = device.is_host() ? compute_on_host(device) : compute_on_gpu(device);
        write_outputs();
        fmt::print("{} in {:.3g} s ({:.3g} TFLOP/s)\n", ran.kernel, ran.seconds,
                   forward_flops(call_) / ran.seconds * 1e-12);
        fmt::print("out  {}  {}\n", to_text(call_.o), flags_.out);
        if (call_.lse.given())
            fmt::print("lse  {}  {}\n", to_text(call_.lse), flags_.lse.empty() ? flags_.out : flags_.lse);
    }

private:
    bool one_file() const { return flags_.lse.empty() && format_of("out", flags_.out) == TensorFormat::kSafetensors; }

    void check_outputs() const {
        format_of("out", flags_.out);
        check_can_write(flags_.out, flags_.force);
        if (flags_.lse.empty()) return;
        format_of("lse", flags_.lse);
        if (flags_.lse == flags_.out)
            throw UsageError("lse: is the same file as out; without --lse both go into one .safetensors file");
        check_can_write(flags_.lse, flags_.force);
    }

    void read_inputs() {
        if (!flags_.input.empty() && !flags_.input.ends_with(".safetensors")) {
            throw UsageError(fmt::format("input: \"{}\"; NAME.safetensors is allowed", flags_.input));
        }
        call_.mask = mask_of(flags_.mask);
        call_.score = score_of(flags_.score);
        call_.options = options_of(flags_.exec);
        for (const FileArgument& argument : kFileArguments) {
            const std::string name = argument.name;
            std::string place = flags_.places.count(name) > 0 ? flags_.places.at(name) : "";
            const bool needed = name == "q" || name == "k" || name == "v";
            if (place.empty() && !flags_.input.empty() && (needed || has_tensor(name, flags_.input)))
                place = flags_.input;
            if (place.empty() && needed)
                throw UsageError(fmt::format("{}: no file is given; --{} or --input names one", name, name));
            if (place.empty()) continue;
            HostTensor& tensor = memory_[name] = narrowed(name, load_tensor(name, place));
            slot_named(name).of(call_) = tensor.view(name);
        }
    }

    // Shapes that make no sense are left to the library, which names the argument: outputs are made only where q has its axes.
    void make_outputs() {
        const Tensor& q = call_.q;
        if (q.rank() != 3 && q.rank() != 4) {
            throw UsageError(fmt::format(
                "q: {}; (batch, seqlen_q, heads, head_dim) or (total_q, heads, head_dim) is allowed", to_text(q)));
        }
        const Tensor& v = call_.v;
        std::vector<int64_t> rows, lse;
        for (int32_t axis = 0; axis + 1 < q.rank(); ++axis) rows.push_back(q.size(axis));
        lse = q.rank() == 3 ? std::vector{rows[1], rows[0]} : std::vector{rows[0], rows[2], rows[1]};
        rows.push_back(v.rank() > 0 ? v.size(v.rank() - 1) : 0);
        HostTensor& out = memory_["out"] = HostTensor("out", q.dtype(), rows);
        call_.o = out.view("out");
        // Rows that are in no sequence are not written by the call; in a file they are empty rows.
        std::ranges::fill(out.bytes(), std::byte{0});
        if (flags_.lse.empty() && !one_file()) return;
        HostTensor& log_sums = memory_["lse"] =
            HostTensor("lse", q.dtype() == DType::kF64 ? DType::kF64 : DType::kF32, lse);
        call_.lse = log_sums.view("lse");
        if (log_sums.dtype() == DType::kF64)
            std::ranges::fill(log_sums.as<double>(), -HUGE_VAL);
        else
            std::ranges::fill(log_sums.as<float>(), -HUGE_VALF);
    }

    struct Ran {
        std::string kernel;
        double seconds = 0;
    };

    Ran compute_on_host(const Device& device) {
        const auto start = std::chrono::steady_clock::now();
        const std::string kernel = compute_in_parts(device);
        return {kernel, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()};
    }

    // In one piece. The time is the kernels', without the ways to the device and back.
    Ran compute_on_gpu(const Device& device) {
        Call host;
        host.attention = call_;
        const DeviceCall on_gpu(device, host);
        const Plan plan = plan_of(device, on_gpu.call());
        Workspace workspace(device);
        launch(plan, on_gpu.call(), workspace);  // the first launch loads the kernels
        Event begin(device), end(device);
        begin.record();
        launch(plan, on_gpu.call(), workspace);
        end.record();
        const double seconds = seconds_between(begin, end);
        on_gpu.fetch();
        return {plan.kernel(), seconds};
    }

    // Returns the name of the kernel that ran.
    std::string compute_in_parts(const Device& device) {
        Workspace workspace;
        const Plan whole(device, Op::kForward, call_);
        const auto count = static_cast<int64_t>(std::min(forward_flops(call_) / kPartFlops, kMaxParts));
        const std::vector<Part> list = parts_of(call_, count);
        if (list.size() == 1) {
            whole.launch(call_, workspace);
            return whole.kernel();
        }
        Attention pinned = call_;
        pinned.options.kernel = whole.kernel();
        pinned.options.num_splits = nlohmann::json::parse(whole.json()).at("steps").back().at("num_splits");
        Progress progress("run", static_cast<int64_t>(list.size()));
        for (size_t i = 0; i < list.size(); ++i) {
            progress.show(static_cast<int64_t>(i), "parts");
            forward(device, part_of(pinned, list[i]), workspace);
        }
        return whole.kernel();
    }

    void write_outputs() const {
        std::vector<NamedTensor> tensors{{"out", &memory_.at("out")}};
        if (one_file()) tensors.push_back({"lse", &memory_.at("lse")});
        save_tensors(flags_.out, tensors, flags_.force);
        if (flags_.lse.empty()) return;
        const NamedTensor lse{"lse", &memory_.at("lse")};
        save_tensors(flags_.lse, std::span(&lse, 1), flags_.force);
    }

    const RunFlags& flags_;
    std::map<std::string, HostTensor> memory_;
    Attention call_;
};

std::string flag_of(std::string name) {
    std::replace(name.begin(), name.end(), '_', '-');
    return "--" + name;
}

}  // namespace

void add_run(CLI::App& app, int&) {
    CLI::App* command = app.add_subcommand("run", "attention of tensors in .npy or .safetensors files");
    const auto flags = std::make_shared<RunFlags>();
    command->footer("FILE is NAME.npy or NAME.safetensors[:TENSOR]; bf16 in .npy is the void type V2.");
    for (const FileArgument& argument : kFileArguments) {
        command->add_option(flag_of(argument.name), flags->places[argument.name], argument.help)
            ->type_name("FILE")
            ->group("Inputs");
    }
    command
        ->add_option("--input", flags->input, "a .safetensors file with all inputs by their names (q, k, v, bias, ...)")
        ->type_name("FILE")
        ->group("Inputs");
    command->add_option("--out", flags->out, "where o goes; a .safetensors file takes lse too")
        ->required()
        ->type_name("FILE")
        ->group("Outputs");
    command->add_option("--lse", flags->lse, "where lse goes, if to a file of its own")
        ->type_name("FILE")
        ->group("Outputs");
    command->add_flag("--force", flags->force, "replace files that exist")->group("Outputs");
    command->add_option("--device", flags->device, "a device of this machine")
        ->capture_default_str()
        ->group("Execution");
    add_flags(*command, flags->mask);
    add_flags(*command, flags->score);
    add_flags(*command, flags->exec);
    command->callback([flags] { Runner(*flags).run(); });
}

}  // namespace tilewise::cli
