// Attention of all layers with its key-value cache, through Tilewise: the only file that knows the library.
//
//   q (new_tokens, num_heads_q, head_dim), k and v (new_tokens, num_heads_kv, head_dim) -> out, of q's shape
//
// One call appends k and v to a layer's cache, rotates q and k by their positions on the way, and attends causally to
// everything in the cache: tilewise::Op::kDecode, for a prompt of many tokens as for a single new one. On a GPU the cache stays in its
// memory; q, k, v and the result travel at each call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config.hpp"
#include "tilewise/tilewise.hpp"

namespace tilewise::generate {

struct AttentionOptions {
    std::string device = "cpu";      // or a GPU: "cuda", "cuda:0"
    bool oracle = false;             // the double-precision reference kernel instead of what the plan chooses
    std::string cache_type = "f32";  // or f16, bf16: then q and the result are rounded to it as well
    std::int64_t page_size = 0;      // 0: a dense cache
    int threads = 1;
};

class CachedAttention {
public:
    // Room for `capacity` tokens in each layer.
    CachedAttention(const HeadShape& heads, std::int64_t layers, std::int64_t capacity,
                    const AttentionOptions& options);

    // Every layer attends once for the same new tokens; advance() then moves on to the next ones.
    void attend(std::int64_t layer, const float* q, const float* k, const float* v, std::int64_t new_tokens,
                float* out);
    void advance(std::int64_t new_tokens);

    double seconds() const { return seconds_; }  // spent in attend() so far
    std::string description() const;

private:
    struct Layer {
        // (1, capacity, num_heads_kv, head_dim) or (pages, page_size, num_heads_kv, head_dim)
        tilewise::DeviceMemory k, v;
    };
    struct Pointers {
        const void *q, *k, *v;
        void* out;
    };
    struct Staging {
        std::vector<std::uint16_t> q, k, v, out;
    };
    struct OnDevice {
        tilewise::DeviceMemory q, k, v, out;
    };

    // What positions and pages look up, for all layers, on the device.
    struct Tables {
        std::int64_t positions = 0, pages = 0;
        tilewise::DeviceMemory rotary_cos, rotary_sin;  // f32 (positions, rotary_dim / 2)
        std::int32_t length = 0;                        // tokens in the cache
        tilewise::DeviceMemory cache_seqlens;           // int32 (1): the same
        tilewise::DeviceMemory page_table;              // int32 (1, pages), if paged
    };

    void make_tables(std::int64_t capacity);
    void set_length();
    // The launch between copies to the device and back.
    void launch_there(const Layer& layer, const Pointers& host, std::int64_t new_tokens);
    tilewise::Attention describe(const Layer& layer, const Pointers& at, std::int64_t new_tokens) const;
    void launch(const Layer& layer, const Pointers& at, std::int64_t new_tokens);

    HeadShape heads_;
    AttentionOptions options_;
    tilewise::DType dtype_;
    tilewise::Device device_;
    tilewise::Workspace workspace_{device_};
    std::optional<tilewise::Plan>
        plan_;  // for planned_tokens_ new tokens, the same in every layer and at every position
    std::int64_t planned_tokens_ = 0;

    std::vector<Layer> layers_;
    Staging staging_;     // 16-bit copies of q, k, v and the result
    OnDevice on_device_;  // and those in a GPU's memory
    Tables tables_;
    double seconds_ = 0;
};

}  // namespace tilewise::generate
