// Work of a problem and a roofline for it. FLOPs: a multiply-add is two; forward 2 (d + dv) a visible pair, backward 2 (3 d + 2 dv)
// (S again, dP, dQ, dK, dV). Bytes: every tensor of the call once, of a paged pool only what the batch can reach.
#include "core/cost.hpp"

#include <algorithm>

#include "core/registry.hpp"

namespace tilewise {
namespace {

// Rows whose interval is looked at; the rows between two of them count like the first. Exact up to this many rows.
constexpr int64_t kMaxSampledRows = 256;

// A core at 3 GHz; a socket's memory is shared, so more threads than about ten add no bandwidth.
constexpr double kCoreHertz = 3e9;
constexpr double kCoreBytesPerSecond = 12e9;
constexpr double kSocketBytesPerSecond = 120e9;

// Computing and moving never hide each other completely. The share also decides between instruction sets where memory is the limit.
constexpr double kNotOverlapped = 0.1;

double average_length(int64_t total, int64_t batch, int64_t max_seqlen) {
    const double average = static_cast<double>(total) / static_cast<double>(std::max<int64_t>(batch, 1));
    return std::min(average, static_cast<double>(max_seqlen));
}

// Visible pairs of one head of one sequence.
double pairs_of_sequence(const MaskSpec& spec, int64_t seqlen_q, int64_t seqlen_k) {
    if (seqlen_q <= 0 || seqlen_k <= 0) return 0;
    if (!is_positional(spec)) return static_cast<double>(seqlen_q) * static_cast<double>(seqlen_k);
    const IntervalMask mask = resolve_mask(spec, static_cast<int32_t>(seqlen_q), static_cast<int32_t>(seqlen_k));
    const int64_t step = ceil_div(seqlen_q, kMaxSampledRows);
    double pairs = 0;
    for (int64_t row = 0; row < seqlen_q; row += step) {
        const int64_t rows = std::min(step, seqlen_q - row);
        const Interval keys = row_interval(mask, static_cast<int32_t>(row + (rows - 1) / 2));
        pairs += static_cast<double>(rows) * (keys.end - keys.begin);
    }
    return pairs;
}

bool is_cache(Arg arg) { return arg == Arg::kK || arg == Arg::kV; }
bool is_rotary(Arg arg) { return arg == Arg::kRotaryCos || arg == Arg::kRotarySin; }

double bytes_of(const Problem& problem, const Sizes& sizes, Arg arg) {
    const TensorDesc& tensor = problem[arg];
    int64_t elements = std::min(tensor.num_elements(), tensor.last_offset() + 1);  // a broadcast axis is read once
    if (tensor.num_elements() == 0 || is_rotary(arg)) elements = 0;  // of the rotary tables a few rows are read
    if (is_cache(arg) && problem.op == Op::kAppend) elements = 0;    // written where k_new and v_new say, counted below
    if (is_cache(arg) && (sizes.page_size > 0 || problem.has(Arg::kCacheBatchIdx))) {
        const int64_t width = tensor.dim(2) * tensor.dim(3);
        elements = std::min(elements, sizes.batch * sizes.max_seqlen_k * width);
    }
    const bool twice = arg == Arg::kKNew || arg == Arg::kVNew;  // read, and written to the cache
    return static_cast<double>(elements) * static_cast<double>(size_of(tensor.dtype)) * (twice ? 2.0 : 1.0);
}

double flops_per_cycle(Isa isa, DType dtype) {
    switch (isa) {
    case Isa::kScalar:
        return 4;  // a multiply and an add of two baseline vectors' worth is what plain loops reach at best
    case Isa::kAvx2: return 32;  // two fused multiply-adds of 8 lanes
    case Isa::kAvx512: return 64;
    case Isa::kAvx512Bf16: return dtype == DType::kBF16 ? 128 : 64;
    }
    return 4;
}

}  // namespace

double visible_pairs(const Problem& problem, const Sizes& sizes) {
    const auto seqlen_q = static_cast<int64_t>(average_length(sizes.total_q, sizes.batch, sizes.max_seqlen_q));
    const auto seqlen_k = static_cast<int64_t>(average_length(sizes.total_k, sizes.batch, sizes.max_seqlen_k));
    return static_cast<double>(sizes.batch) * pairs_of_sequence(problem.mask, seqlen_q, seqlen_k);
}

Work work_of(const Problem& problem, const Sizes& sizes) {
    Work work;
    const double d = static_cast<double>(sizes.head_dim), dv = static_cast<double>(sizes.head_dim_v);
    const double heads = static_cast<double>(sizes.num_heads_q);
    switch (problem.op) {
    case Op::kForward:
    case Op::kDecode: work.flops = 2 * heads * visible_pairs(problem, sizes) * (d + dv); break;
    case Op::kBackward: work.flops = 2 * heads * visible_pairs(problem, sizes) * (3 * d + 2 * dv); break;
    case Op::kAppend: break;  // moves bytes
    case Op::kCombine: work.flops = 2 * static_cast<double>(problem[Arg::kPartialO].num_elements()); break;
    }
    for (size_t i = 0; i < kNumArgs; ++i) work.bytes += bytes_of(problem, sizes, static_cast<Arg>(i));
    return work;
}

Rates cuda_rates(const DeviceInfo& device) {
    return {std::max(device.cuda.bf16_flops_per_second, 1.0), std::max(device.cuda.memory_bytes_per_second, 1.0)};
}

Rates cpu_rates(Isa isa, DType dtype, int32_t num_threads) {
    const double threads = std::max(num_threads, 1);
    return {threads * kCoreHertz * flops_per_cycle(isa, dtype),
            std::min(threads * kCoreBytesPerSecond, kSocketBytesPerSecond)};
}

double roofline_seconds(const Work& work, const Rates& rates) {
    const double computing = work.flops / rates.flops_per_second, moving = work.bytes / rates.bytes_per_second;
    return std::max(computing, moving) + kNotOverlapped * std::min(computing, moving);
}

double roofline_seconds(const Step& step, const DeviceInfo& device) {
    const Work work = work_of(step.problem, step.sizes);
    if (device.kind == DeviceKind::kCuda) return roofline_seconds(work, cuda_rates(device));
    const Isa isa = step.row == nullptr ? Isa::kScalar : static_cast<Isa>(step.row->isa);
    return roofline_seconds(work, cpu_rates(isa, element_type_of(step.problem), step.num_threads));
}

}  // namespace tilewise
