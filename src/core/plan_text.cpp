// A plan for people: the call and its device, the kernel of each step with tiles and workspace, notes, and why other kernels were
// refused. The golden tests compare this text, so it holds nothing of the machine that made it.
#include <fmt/format.h>

#include "core/plan_parts.hpp"

namespace tilewise {
namespace {

// "1234567" as "1,234,567".
std::string grouped(int64_t number) {
    std::string digits = fmt::format("{}", number);
    for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3)
        digits.insert(static_cast<size_t>(at), ",");
    return digits;
}

std::string plural(int64_t count, const char* word) {
    return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s");
}

void add_blocks(std::string& text, const std::vector<WorkspaceBlock>& blocks) {
    for (const WorkspaceBlock& block : blocks)
        text += fmt::format("  {:<16} {} bytes at {}\n", block.name, grouped(block.bytes), grouped(block.offset));
}

std::string choices_of(const Step& step, const DeviceInfo& device) {
    std::vector<std::string> words;
    if (step.tiling.tile_m > 0) words.push_back(fmt::format("tile {} x {}", step.tiling.tile_m, step.tiling.tile_n));
    if (step.tiling.num_stages > 0) words.push_back(plural(step.tiling.num_stages, "stage"));
    if (step.tiling.num_blocks > 0) words.push_back(fmt::format("at most {} blocks", step.tiling.num_blocks));
    if (step.tiling.packed_heads > 1) words.push_back(fmt::format("{} heads a tile", step.tiling.packed_heads));
    if (step.num_splits > 1)
        words.push_back(plural(step.num_splits, "key split") + (step.tiling.clustered ? " in a cluster" : ""));
    if (step.num_chunks > 1) words.push_back(plural(step.num_chunks, "key chunk"));
    if (device.kind == DeviceKind::kCpu) words.push_back(plural(step.num_threads, "thread"));
    return fmt::format("{}", fmt::join(words, ", "));
}

void add_step(std::string& text, const Plan& plan, size_t index) {
    const Step& step = plan.steps[index];
    text += plan.steps.size() == 1 ? std::string("kernel ")
                                   : fmt::format("step {}, {}: ", index + 1, name_of(step.problem.op));
    text += step.row->name + "\n";
    if (const std::string choices = choices_of(step, plan.device); !choices.empty())
        text += fmt::format("  {}\n", choices);
    for (size_t i = 0; i < kNumArgs; ++i) {
        const Arg arg = static_cast<Arg>(i);
        if (step.redirected[arg] > 0)
            text += fmt::format("  {:<16} in the workspace at {}: {}\n", name_of(arg),
                                grouped(step.redirected[arg] - 1), to_string(step.problem[arg]));
    }
    add_blocks(text, step.workspace);
}

}  // namespace

std::string to_text(const Plan& plan) {
    const std::string problem = to_string(plan.problem);  // its first line is the op
    std::string text = fmt::format("{} on {}\n", name_of(plan.problem.op), to_string(plan.device));
    text += problem.substr(problem.find('\n') + 1);
    for (size_t i = 0; i < plan.steps.size(); ++i) add_step(text, plan, i);
    if (plan.steps.empty()) {
        text += "no kernel\n";
    } else {
        text += fmt::format("workspace {} bytes\n", grouped(plan.workspace_bytes));
        add_blocks(text, plan.shared_blocks);
        text += fmt::format("predicted {}\n", duration(plan.predicted_seconds));
    }
    for (const std::string& note : plan.notes) text += fmt::format("note: {}\n", note);
    if (!plan.refused.empty()) text += "refused\n";
    for (const std::string& line : grouped_refusals(plan.refused, 0, plan.refused.size()))
        text += fmt::format("  {}\n", line);
    return text;
}

}  // namespace tilewise
