// Draws specs. Sizes are small, so that thousands of problems take minutes; a budget of multiply-adds keeps the rare large ones in check. What the
// contract forbids to combine is not drawn: every spec from here is well-formed.
#include "conformance/random_problem.hpp"

#include <algorithm>

#include "conformance/kernels.hpp"
#include "conformance/random.hpp"

namespace tilewise::conformance {

namespace {

constexpr double kMaxProducts = 1.5e6;

int draw_length(Random& random) {
    const double kind = random.uniform();
    if (kind < 0.15) return random.between(0, 2);
    if (kind < 0.75) return random.between(1, 20);
    if (kind < 0.96) return random.between(20, 80);
    return random.between(100, 200);
}

int64_t draw_dim(Random& random, int largest) {
    const double kind = random.uniform();
    if (kind < 0.1) return random.between(1, 3);
    if (kind < 0.5) return random.between(4, 40);
    if (kind < 0.9) return 8 * random.between(1, 10);
    return random.between(80, largest);
}

SizesSpec draw_sizes(Random& random) {
    SizesSpec sizes;
    sizes.batch = random.chance(0.01) ? 0 : random.between(1, 3);
    sizes.seqlen_q = draw_length(random);
    sizes.seqlen_k = draw_length(random);
    sizes.heads_kv = random.between(1, 3);
    sizes.heads_q = sizes.heads_kv * random.pick({1, 1, 2, 3, 5});
    sizes.head_dim = draw_dim(random, 256);
    sizes.head_dim_v = random.chance(0.5) ? sizes.head_dim : draw_dim(random, 512);
    const auto products = [&] {
        return static_cast<double>(sizes.batch * sizes.heads_q * sizes.seqlen_q * sizes.seqlen_k) *
               static_cast<double>(sizes.head_dim + sizes.head_dim_v);
    };
    while (products() > kMaxProducts) {
        if (sizes.heads_q > sizes.heads_kv)
            sizes.heads_q = sizes.heads_kv;
        else if (sizes.heads_kv > 1)
            sizes.heads_q = sizes.heads_kv = 1;
        else
            (sizes.seqlen_q > sizes.seqlen_k ? sizes.seqlen_q : sizes.seqlen_k) /= 2;
    }
    return sizes;
}

std::vector<int> draw_each(Random& random, int64_t count, int low, int64_t high) {
    std::vector<int> values;
    for (int64_t i = 0; i < count; ++i)
        values.push_back(random.between(std::min(low, static_cast<int>(high)), static_cast<int>(high)));
    return values;
}

// At most each of `limits`.
std::vector<int> draw_below(Random& random, const std::vector<int>& limits) {
    std::vector<int> values;
    for (const int limit : limits) values.push_back(random.between(0, limit));
    return values;
}

void draw_query_lengths(ProblemSpec& p, Random& random) {
    std::vector<int> rows(static_cast<size_t>(p.sizes.batch), static_cast<int>(p.sizes.seqlen_q));
    if (p.sizes.batch > 0 && random.chance(0.3)) {
        rows = p.lengths.rows_q = draw_each(random, p.sizes.batch, 0, p.sizes.seqlen_q);
        p.lengths.bounds = random.chance(0.5);
        if (random.chance(0.3)) p.lengths.spare_rows = random.between(1, 4);
    }
    if (random.chance(0.15)) p.lengths.used_q = draw_below(random, rows);
}

// Keys of a forward or backward.
void draw_key_lengths(ProblemSpec& p, Random& random) {
    const bool forward = p.op == Op::kForward;
    std::vector<int> rows(static_cast<size_t>(p.sizes.batch), static_cast<int>(p.sizes.seqlen_k));
    if (p.sizes.batch > 0 && random.chance(0.3)) {
        rows = p.lengths.rows_k = draw_each(random, p.sizes.batch, 0, p.sizes.seqlen_k);
    } else if (forward && random.chance(0.3)) {
        if (random.chance(0.7)) p.cache.page_size = random.pick({1, 2, 3, 7, 16, 33, 64});
        p.cache.batch_idx = p.sizes.batch > 0 && random.chance(0.4);
    }
    if (random.chance(0.25)) rows = p.lengths.used_k = draw_below(random, rows);
    if (p.lengths.rows_k.empty() && random.chance(0.15)) p.lengths.leftpad = draw_below(random, rows);
}

void draw_cache(ProblemSpec& p, Random& random) {
    const int capacity = static_cast<int>(p.sizes.seqlen_k);
    if (random.chance(0.5)) p.cache.page_size = random.pick({1, 2, 3, 7, 16, 33, 64});
    p.cache.batch_idx = random.chance(0.3);
    std::vector<int> room = draw_each(random, p.sizes.batch, 0, capacity);
    const bool appends = p.op == Op::kAppend || random.chance(0.75);
    if (appends && p.sizes.batch > 0 && random.chance(0.4)) {
        p.cache.ragged_new = draw_below(random, room);
        if (p.lengths.spare_rows == 0 && random.chance(0.2)) p.lengths.spare_rows = random.between(1, 3);
        for (size_t i = 0; i < room.size(); ++i) room[i] -= p.cache.ragged_new[i];
    } else if (appends) {
        int shared = capacity;
        for (const int rows : room) shared = std::min(shared, rows);
        p.cache.new_rows = std::min(std::max(shared, p.op == Op::kAppend ? 1 : 0), random.between(1, 6));
        if (p.cache.new_rows > shared) p.cache.new_rows = 0;
        for (int& rows : room) rows -= p.cache.new_rows;
    }
    if (p.op == Op::kAppend && !p.cache.appends()) p.cache.ragged_new.assign(room.size(), 0);
    p.cache.lengths = room;
    if (p.op == Op::kDecode && random.chance(0.2)) p.lengths.leftpad = draw_below(random, room);
    if (!p.cache.appends() || p.sizes.head_dim < 2 || random.chance(0.4)) return;
    p.cache.rotary_dim = 2 * random.between(1, static_cast<int>(p.sizes.head_dim / 2));
    p.cache.rotary_interleaved = random.chance(0.5);
    p.cache.rotary_f32 = random.chance(0.5);
    if (random.chance(0.3)) p.cache.rotary_seqlens = draw_each(random, p.sizes.batch, 0, 50);
}

PairSpec draw_pair(Random& random, bool mask) {
    PairSpec pair{true, random.chance(0.4) ? 0u : static_cast<uint32_t>(random.below(16)), random.chance(0.3),
                  DType::kNone};
    if (mask && random.chance(0.3)) pair.dtype = DType::kBits;
    if (!mask && random.chance(0.4)) pair.dtype = DType::kF32;
    if (pair.dtype == DType::kBits) pair.broadcast &= ~uint32_t{kKeyAxis};
    return pair;
}

void draw_mask(ProblemSpec& p, Random& random) {
    MaskSpec& mask = p.mask;
    const double kind = random.uniform();
    if (kind > 0.3 && kind < 0.7) mask.causal = true;
    if (kind > 0.6 && kind < 0.85) mask.left = random.between(0, 30);
    if (kind > 0.7 && kind < 0.9) mask.right = random.between(0, 30);
    if (kind > 0.88) mask.chunk = random.between(1, 40);
    // Causal, or a right side of 0, leaves a block nothing to hide and is refused.
    if (!mask.causal && mask.right.value_or(-1) != 0 && random.chance(0.1)) mask.block = random.between(1, 40);
    const bool positional = mask.causal || mask.left || mask.right || mask.chunk > 0 || mask.block > 0;
    if (positional) mask.top_left = random.chance(0.2);
    if (mask.causal && !mask.left && random.chance(0.3)) {
        if (random.chance(0.5))
            mask.prefix = random.between(1, 60);
        else
            mask.prefix_lens = draw_each(random, p.sizes.batch, 0, 60);
    }
    if (random.chance(0.15)) mask.mask = draw_pair(random, true);
    mask.intervals = random.chance(0.08);
}

void draw_score(ProblemSpec& p, Random& random) {
    ScoreSpec& score = p.score;
    if (random.chance(0.2)) score.scale = static_cast<float>(2 * random.uniform());
    if (random.chance(0.15)) score.softcap = static_cast<float>(0.2 + 10 * random.uniform());
    if (random.chance(0.15)) {
        score.dropout_p = static_cast<float>(random.pick({0.1, 0.25, 0.5, 0.9}));
        score.dropout_seed = random.bits();
        score.dropout_offset = random.bits();
    }
    if (random.chance(0.15)) score.alibi_rank = random.between(1, 2);
    if (random.chance(0.15)) score.bias = draw_pair(random, false);
    score.sink = random.chance(0.15);
}

Layout draw_layout(Random& random) {
    return random.pick({Layout::kContiguous, Layout::kContiguous, Layout::kContiguous, Layout::kHeadsFirst,
                        Layout::kPaddedRows, Layout::kStridedDim, Layout::kDimFirst, Layout::kUnaligned});
}

void draw_run(ProblemSpec& p, Random& random) {
    p.layout = draw_layout(random);
    p.output_layout = draw_layout(random);
    const bool cached = p.cache.page_size > 0 || p.cache.batch_idx || !p.cache.lengths.empty();
    const bool whole = p.lengths.used_q.empty() && p.lengths.used_k.empty() && p.lengths.leftpad.empty();
    if (random.chance(0.05)) p.layout = Layout::kSharedHeads;
    if (!cached && whole && random.chance(0.05)) p.layout = Layout::kSharedBatch;
    const bool backward = p.op == Op::kBackward;
    if (random.chance(0.1)) p.data = random.pick({Data::kVeryNegative, Data::kOutlier, Data::kZeros});
    if (!backward && random.chance(0.05)) p.data = random.pick({Data::kNaNKey, Data::kNaNValue});
    p.run.num_threads = random.between(0, 3);
    p.run.deterministic = random.chance(0.1);
    p.run.batch_invariant = random.chance(0.1);
    if (p.op == Op::kForward || p.op == Op::kDecode) {
        if (random.chance(0.25)) p.run.num_splits = random.between(1, 6);
        p.run.lse = random.chance(0.8);
    }
    p.run.grad_lse = backward && random.chance(0.4);
}

// Every kernel gets its share, whatever the plan would choose.
std::string draw_kernel(const ProblemSpec& spec, DType dtype, const std::string& kind, Random& random) {
    if (random.chance(0.3) || spec.op == Op::kAppend || dtype == DType::kF64) return {};
    static const std::vector<Kernel> all = list_kernels();
    const std::string op = spec.op == Op::kBackward ? "backward" : "forward";
    std::vector<std::string> names;
    for (const Kernel& kernel : all)
        if (kernel.device == kind && kernel.op == op && !is_reference(kernel) &&
            std::find(kernel.dtypes.begin(), kernel.dtypes.end(), dtype) != kernel.dtypes.end())
            names.push_back(kernel.name);
    return names.empty() ? std::string() : names[static_cast<size_t>(random.below(static_cast<int64_t>(names.size())))];
}

}  // namespace

RandomProblem random_problem(uint64_t seed, const std::string& kind) {
    Random random(seed);
    RandomProblem problem;
    ProblemSpec& spec = problem.spec;
    const double which = random.uniform();
    spec.op = which < 0.4 ? Op::kForward : which < 0.72 ? Op::kBackward : which < 0.95 ? Op::kDecode : Op::kAppend;
    spec.seed = random.bits();
    spec.sizes = draw_sizes(random);
    if (spec.op == Op::kDecode || spec.op == Op::kAppend) spec.sizes.batch = std::max<int64_t>(spec.sizes.batch, 1);
    if (spec.op != Op::kAppend) draw_query_lengths(spec, random);
    if (spec.op == Op::kDecode || spec.op == Op::kAppend)
        draw_cache(spec, random);
    else
        draw_key_lengths(spec, random);
    if (spec.op != Op::kAppend) {
        draw_mask(spec, random);
        draw_score(spec, random);
    }
    draw_run(spec, random);
    problem.dtype =
        random.pick({DType::kF32, DType::kBF16, DType::kF16, DType::kF32, DType::kBF16, DType::kF16, DType::kBF16});
    if (random.chance(0.03)) problem.dtype = DType::kF64;
    if (problem.dtype == DType::kF64) spec.run.num_splits = 0;
    problem.kernel = draw_kernel(spec, problem.dtype, kind, random);
    problem.ill_formed = random.chance(0.1);
    return problem;
}

}  // namespace tilewise::conformance
