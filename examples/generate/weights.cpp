// Names as llama-architecture files give them: token_embd, blk.N.{attn_norm, attn_q, ...}, output_norm, output.
#include "weights.hpp"

#include <set>
#include <string>

#include "kernels.hpp"

namespace tilewise::generate {

namespace {

std::string shape_text(const std::vector<std::int64_t>& dims) {
    std::string out;
    for (const std::int64_t dim : dims) {
        out += (out.empty() ? "(" : ", ") + std::to_string(dim);
    }
    return out + ")";
}

// Fetches tensors with their expected shapes and remembers which it gave.
class Reader {
public:
    explicit Reader(const Gguf& file) : file_(file) {}

    Matrix matrix(const std::string& name, std::int64_t rows, std::int64_t cols) {
        const Tensor& tensor = fetch(name, {cols, rows});
        const TensorTypeInfo& info = tensor_type_info(tensor.type);
        return {tensor.bytes, tensor.type, rows, cols, cols / info.block_elements * info.block_bytes};
    }

    std::vector<float> vector(const std::string& name, std::int64_t size) {
        const Tensor& tensor = fetch(name, {size});
        std::vector<float> out(static_cast<std::size_t>(size));
        kernels().dequantize(tensor.type, tensor.bytes.data(), size, out.data());
        return out;
    }

    void refuse_unused() const {
        for (const auto& [name, tensor] : file_.tensors()) {
            if (used_.find(name) == used_.end()) {
                throw GgufError(printable(name) + ": a tensor that this program's llama model does not use; " +
                                "running the model without it would give wrong text");
            }
        }
    }

private:
    const Tensor& fetch(const std::string& name, const std::vector<std::int64_t>& dims) {
        const Tensor& tensor = file_.tensor(name);
        if (tensor.dims != dims) {
            throw GgufError(name + ": has shape " + shape_text(tensor.dims) + "; the hyperparameters need " +
                            shape_text(dims));
        }
        used_.insert(name);
        return tensor;
    }

    const Gguf& file_;
    std::set<std::string, std::less<>> used_;
};

LayerWeights read_layer(Reader& reader, std::int64_t index, const ModelConfig& config) {
    const std::string prefix = "blk." + std::to_string(index) + ".";
    const std::int64_t q_width = config.heads.num_heads_q * config.heads.head_dim;
    const std::int64_t kv_width = config.heads.num_heads_kv * config.heads.head_dim;
    LayerWeights layer;
    layer.attention_norm = reader.vector(prefix + "attn_norm.weight", config.width);
    layer.q = reader.matrix(prefix + "attn_q.weight", q_width, config.width);
    layer.k = reader.matrix(prefix + "attn_k.weight", kv_width, config.width);
    layer.v = reader.matrix(prefix + "attn_v.weight", kv_width, config.width);
    layer.attention_output = reader.matrix(prefix + "attn_output.weight", config.width, q_width);
    layer.ffn_norm = reader.vector(prefix + "ffn_norm.weight", config.width);
    layer.gate = reader.matrix(prefix + "ffn_gate.weight", config.ffn_width, config.width);
    layer.up = reader.matrix(prefix + "ffn_up.weight", config.ffn_width, config.width);
    layer.down = reader.matrix(prefix + "ffn_down.weight", config.width, config.ffn_width);
    return layer;
}

}  // namespace

Weights read_weights(const Gguf& file, const ModelConfig& config, std::int64_t vocabulary) {
    Reader reader(file);
    Weights weights;
    weights.embedding = reader.matrix("token_embd.weight", vocabulary, config.width);
    for (std::int64_t i = 0; i < config.num_layers; ++i) {
        weights.layers.push_back(read_layer(reader, i, config));
    }
    weights.output_norm = reader.vector("output_norm.weight", config.width);
    weights.output = file.find_tensor("output.weight") == nullptr
                         ? weights.embedding
                         : reader.matrix("output.weight", vocabulary, config.width);
    reader.refuse_unused();
    return weights;
}

void dequantize_row(const Matrix& matrix, std::int64_t row, std::span<float> out) {
    if (row < 0 || row >= matrix.rows) {
        throw std::runtime_error("row: " + std::to_string(row) + "; 0 to " + std::to_string(matrix.rows - 1) +
                                 " are in the matrix");
    }
    if (static_cast<std::int64_t>(out.size()) != matrix.cols) {
        throw std::runtime_error("out: holds " + std::to_string(out.size()) + " floats; a row has " +
                                 std::to_string(matrix.cols));
    }
    kernels().dequantize(matrix.type, matrix.row(row), matrix.cols, out.data());
}

}  // namespace tilewise::generate
