// JSON forms of devices, kernels and plans. The keys are part of the public interface: tests and the program's --json read them.
#include <nlohmann/json.hpp>

#include "core/plan.hpp"
#include "core/registry.hpp"

namespace tilewise {
namespace {

using Json = nlohmann::ordered_json;  // keys in the order a reader expects

// Names of devices come from the hardware: bytes that are no UTF-8 are replaced instead of thrown on.
std::string dumped(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json json_of(const DeviceInfo& device) {
    Json json;
    json["kind"] = device.kind == DeviceKind::kCpu ? "cpu" : "cuda";
    json["index"] = device.index;
    json["recorded"] = device.recorded;
    json["name"] = device.name;
    if (device.kind == DeviceKind::kCpu) {
        json["isa"] = name_of(device.cpu.isa);
        json["num_cores"] = device.cpu.num_cores;
        json["l1d_bytes"] = device.cpu.l1d_bytes;
        json["l2_bytes"] = device.cpu.l2_bytes;
        json["features"] = device.cpu.features;
        return json;
    }
    json["compute_capability"] = device.cuda.compute_capability;
    json["num_multiprocessors"] = device.cuda.num_multiprocessors;
    json["shared_memory_per_block"] = device.cuda.shared_memory_per_block;
    json["l2_bytes"] = device.cuda.l2_bytes;
    json["memory_bytes"] = device.cuda.memory_bytes;
    json["memory_bytes_per_second"] = device.cuda.memory_bytes_per_second;
    json["bf16_flops_per_second"] = device.cuda.bf16_flops_per_second;
    return json;
}

Json json_of(const TensorDesc& tensor) {
    Json json;
    json["dtype"] = name_of(tensor.dtype);
    json["shape"] = Json::array();
    json["stride"] = Json::array();
    for (int axis = 0; axis < tensor.rank; ++axis) {
        json["shape"].push_back(tensor.dim(axis));
        json["stride"].push_back(tensor.step(axis));
    }
    json["alignment"] = tensor.alignment;
    return json;
}

Json json_of(const MaskSpec& mask) {
    return {{"window_left", mask.window_left},
            {"window_right", mask.window_right},
            {"chunk", mask.chunk},
            {"block", mask.block},
            {"prefix", mask.prefix},
            {"diagonal", mask.top_left ? "top_left" : "bottom_right"}};
}

Json json_of_score(const Problem& problem) {
    return {{"softmax_scale", softmax_scale_of(problem)},
            {"softcap", problem.score.softcap},
            {"dropout_p", problem.score.dropout_p},
            {"dropout_seed", problem.score.dropout_seed},
            {"dropout_offset", problem.score.dropout_offset}};
}

Json json_of(const Problem& problem) {
    Json json;
    json["op"] = name_of(problem.op);
    json["tensors"] = Json::object();
    for (size_t i = 0; i < kNumArgs; ++i) {
        const Arg arg = static_cast<Arg>(i);
        if (problem.has(arg)) json["tensors"][name_of(arg)] = json_of(problem[arg]);
    }
    if (problem.has(Arg::kQ)) {  // append and combine have neither mask nor score
        json["mask"] = json_of(problem.mask);
        json["score"] = json_of_score(problem);
    }
    json["options"] = {{"deterministic", problem.exec.deterministic},
                       {"batch_invariant", problem.exec.batch_invariant},
                       {"rotary_interleaved", problem.exec.rotary_interleaved},
                       {"num_splits", problem.exec.num_splits},
                       {"num_threads", problem.exec.num_threads},
                       {"max_seqlen_q", problem.exec.max_seqlen_q},
                       {"max_seqlen_k", problem.exec.max_seqlen_k},
                       {"kernel", problem.exec.kernel}};
    return json;
}

Json json_of(const std::vector<WorkspaceBlock>& blocks) {
    Json json = Json::array();
    for (const WorkspaceBlock& block : blocks)
        json.push_back({{"name", block.name}, {"offset", block.offset}, {"bytes", block.bytes}});
    return json;
}

Json json_of(const Step& step) {
    Json json;
    json["op"] = name_of(step.problem.op);
    json["kernel"] = step.row->name;
    json["tile_m"] = step.tiling.tile_m;
    json["tile_n"] = step.tiling.tile_n;
    json["num_stages"] = step.tiling.num_stages;
    json["packed_heads"] = step.tiling.packed_heads;
    json["min_split_keys"] = step.tiling.min_split_keys;
    json["clustered"] = step.tiling.clustered;
    json["heads_per_section"] = step.tiling.heads_per_section;
    json["num_blocks"] = step.tiling.num_blocks;
    json["num_splits"] = step.num_splits;
    json["num_threads"] = step.num_threads;
    json["num_chunks"] = step.num_chunks;
    json["workspace"] = json_of(step.workspace);
    return json;
}

}  // namespace

std::string to_json(const DeviceInfo& device) { return dumped(json_of(device)); }

std::string to_json(const KernelRow& row) {
    Json json;
    json["name"] = row.name;
    json["device"] = row.device == DeviceKind::kCpu ? "cpu" : "cuda";
    json["op"] = name_of(row.op);
    json["dtypes"] = Json::array();
    for (const DType dtype : row.dtypes) json["dtypes"].push_back(name_of(dtype));
    json["max_head_dim"] = row.max_head_dim;
    json["max_head_dim_v"] = row.max_head_dim_v;
    json["isa"] = row.device == DeviceKind::kCpu ? name_of(static_cast<Isa>(row.isa)) : std::to_string(row.isa);
    json["features"] = row.features;
    return dumped(json);
}

std::string to_json(const Plan& plan) {
    Json json;
    json["op"] = name_of(plan.problem.op);
    json["device"] = json_of(plan.device);
    json["problem"] = json_of(plan.problem);
    json["steps"] = Json::array();
    for (const Step& step : plan.steps) json["steps"].push_back(json_of(step));
    json["shared_workspace"] = json_of(plan.shared_blocks);
    json["workspace_bytes"] = plan.workspace_bytes;
    json["predicted_seconds"] = plan.predicted_seconds;
    json["notes"] = plan.notes;
    json["refused"] = Json::array();
    for (const Refusal& refusal : plan.refused)
        json["refused"].push_back({{"kernel", refusal.kernel}, {"reason", refusal.reason}});
    return dumped(json);
}

}  // namespace tilewise
