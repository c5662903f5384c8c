// Tensors in files, whatever the format: "q.npy", "model.safetensors:layer.0.q", or "qkv.safetensors" (the tensor is then
// named as the argument that it is for).
#pragma once

#include <vector>

#include "host_tensor.hpp"

namespace tilewise::cli {

// `argument` is the caller's name of the tensor ("q"); it leads every message.
HostTensor load_tensor(const std::string& argument, const std::string& place);
// True where the file at `place` is a .safetensors file that holds a tensor named `argument`.
bool has_tensor(const std::string& argument, const std::string& place);

struct NamedTensor {
    std::string name;
    const HostTensor* tensor = nullptr;  // contiguous
};
// One tensor to a .npy file, any number to a .safetensors file. Nothing is left behind on failure.
void save_tensors(const std::string& path, std::span<const NamedTensor> tensors, bool force);

enum class TensorFormat { kNpy, kSafetensors };
// By the ending of the file's name; throws UsageError for another ending.
TensorFormat format_of(const std::string& argument, const std::string& path);

}  // namespace tilewise::cli
