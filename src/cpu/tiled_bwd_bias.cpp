// The gradient of an additive bias: dS of the score that the bias was added to, summed over the axes along which the
// bias is broadcast.
//
//   grad_bias (b | 1, h | 1, sq | 1, sk | 1)
//
// A pass of its own, which computes S and dP again: a unit owns one block of grad_bias and adds up, in a fixed order,
// every head and sequence and tile that reaches it. So the sums need neither atomics nor memory in the workspace beyond
// one tile, whatever the bias's shape; the price, two more products, is paid only by calls that ask for this gradient.
#include <algorithm>

#include "cpu/parallel.hpp"
#include "cpu/tiled_bwd.hpp"

namespace tilewise::cpu {

namespace {

// One axis of grad_bias cut into blocks: an axis of size 1 is one block that takes everything.
struct Axis {
    int64_t size = 1;
    int64_t block = 1;
    bool summed() const { return size == 1; }
    int64_t num_blocks() const { return ceil_div(size, block); }
    // The part of [0, length) that reaches block `index`.
    Interval range(int64_t index, int64_t length) const {
        const int64_t begin = summed() ? 0 : std::min(index * block, length);
        const int64_t end = summed() ? length : std::min((index + 1) * block, length);
        return {static_cast<int32_t>(begin), static_cast<int32_t>(end)};
    }
};

class BiasUnit {
public:
    BiasUnit(const Backward& backward, const PairTensor& grad_bias, unsigned char* memory)
        : backward_(backward), grad_bias_(grad_bias), carver_(memory), work_(backward, carver_) {
        const TensorDesc& shape = backward.step->problem[Arg::kGradBias];
        batches_ = {shape.dim(0), 1};
        heads_ = {shape.dim(1), 1};
        rows_ = {shape.dim(2), backward.step->tiling.tile_m};
        keys_ = {shape.dim(3), backward.step->tiling.tile_n};
        sums_ = carver_.take<float>(rows_.block * work_.tiles.stride.s);
    }

    int64_t num_units() const {
        return batches_.num_blocks() * heads_.num_blocks() * rows_.num_blocks() * keys_.num_blocks();
    }

    void run(int64_t unit) {
        const int64_t key_block = unit % keys_.num_blocks(), row_block = unit / keys_.num_blocks() % rows_.num_blocks();
        const int64_t rest = unit / keys_.num_blocks() / rows_.num_blocks();
        const int64_t head_block = rest % heads_.num_blocks(), batch_block = rest / heads_.num_blocks();
        std::fill_n(sums_, rows_.block * work_.tiles.stride.s, 0.0f);
        const Interval batches = batches_.range(batch_block, backward_.view.sizes.batch);
        const Interval heads = heads_.range(head_block, backward_.view.sizes.num_heads_q);
        for (int64_t batch = batches.begin; batch < batches.end; ++batch)
            for (int64_t head = heads.begin; head < heads.end; ++head)
                add_head(group_of_head(backward_.view, batch, head), row_block, key_block);
        store(batch_block, head_block, row_block, key_block);
    }

private:
    void add_head(const RowGroup& group, int64_t row_block, int64_t key_block) {
        const Interval keys = keys_.range(key_block, group.sequence.seqlen_k);
        const Interval rows = rows_.range(row_block, group.sequence.seqlen_q);
        if (is_empty(rows)) return;
        for (int64_t key = keys.begin; key < keys.end; key += keys_.block) {
            const int64_t end = std::min<int64_t>(key + keys_.block, keys.end);
            work_.load_keys(group, {static_cast<int32_t>(key), static_cast<int32_t>(end)});
            for (int64_t row = rows.begin; row < rows.end; row += rows_.block) {
                const int64_t padded = round_up(rows.end - row, backward_.ops->row_quantum);
                if (!work_.load_rows(group, row, static_cast<int>(std::min(rows_.block, padded)))) continue;
                work_.differentiate(group, false);
                add_tile();
            }
        }
    }

    void add_tile() {
        const TileSpan& span = work_.span();
        for (int row = 0; row < span.num_rows; ++row) {
            const float* ds = work_.tiles.dp + row * work_.tiles.stride.s;
            float* sums = sums_ + (rows_.summed() ? 0 : row * work_.tiles.stride.s);
            if (keys_.summed()) {
                for (int j = 0; j < span.num_keys; ++j) sums[0] += ds[j];
            } else {
                for (int j = 0; j < span.num_keys; ++j) sums[work_.first_column() + j] += ds[j];
            }
        }
    }

    void store(int64_t batch, int64_t head, int64_t row_block, int64_t key_block) {
        const int64_t first_row = row_block * rows_.block, first_key = key_block * keys_.block;
        const int rows = static_cast<int>(std::min(rows_.block, rows_.size - first_row));
        const int keys = static_cast<int>(std::min(keys_.block, keys_.size - first_key));
        for (int row = 0; row < rows; ++row) {
            const float factor = 1.0f;
            void* address = static_cast<unsigned char*>(grad_bias_.data) +
                            grad_bias_.offset(batch, head, first_row + row, first_key) * size_of(grad_bias_.dtype);
            const RowTarget target{&address, grad_bias_.key_stride, grad_bias_.dtype, 1, keys};
            backward_.ops->store_rows(sums_ + row * work_.tiles.stride.s, 0, &factor, target);
        }
    }

    const Backward& backward_;
    const PairTensor& grad_bias_;
    Carver carver_;
    BackwardTiles work_;
    Axis batches_, heads_, rows_, keys_;
    float* sums_ = nullptr;
};

}  // namespace

int64_t bias_scratch_bytes(const Step& step, const TileOps& ops) {
    Carver carver;
    const BackwardTiles work(step, ops, carver);
    carver.take<float>(step.tiling.tile_m * work.tiles.stride.s);
    return carver.bytes();
}

void compute_grad_bias(const Backward& backward, const Arguments& arguments, unsigned char* scratch, int64_t bytes) {
    if (!backward.step->problem.has(Arg::kGradBias)) return;
    const PairTensor grad_bias = pair_tensor(*backward.step, arguments, Arg::kGradBias);
    const int64_t units = BiasUnit(backward, grad_bias, scratch).num_units();
    parallel_for(units, backward.step->num_threads, [&](int64_t unit, int worker) noexcept {
        BiasUnit(backward, grad_bias, scratch + worker * bytes).run(unit);
    });
}

}  // namespace tilewise::cpu
