// Chooses the format by the file's ending, splits "file:name", and writes through AtomicFile.
#include "tensor_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "atomic_file.hpp"
#include "error.hpp"
#include "npy.hpp"
#include "safetensors.hpp"

namespace tilewise::cli {
namespace {

constexpr std::string_view kNpyEnding = ".npy";
constexpr std::string_view kSafetensorsEnding = ".safetensors";

struct Place {
    std::string path;
    std::string name;
};

// A colon may be part of a path, so it separates only behind the ending that can have names.
Place split(const std::string& argument, const std::string& place) {
    const size_t ending = place.rfind(std::string(kSafetensorsEnding) + ":");
    if (ending == std::string::npos) return {place, argument};
    const size_t colon = ending + kSafetensorsEnding.size();
    return {place.substr(0, colon), place.substr(colon + 1)};
}

}  // namespace

TensorFormat format_of(const std::string& argument, const std::string& path) {
    if (path.ends_with(kNpyEnding)) return TensorFormat::kNpy;
    if (path.ends_with(kSafetensorsEnding)) return TensorFormat::kSafetensors;
    throw UsageError(
        fmt::format("{}: \"{}\" has no known ending; allowed are .npy and .safetensors[:NAME]", argument, path));
}

HostTensor load_tensor(const std::string& argument, const std::string& place) {
    const Place at = split(argument, place);
    const TensorFormat format = format_of(argument, at.path);
    try {
        const FileSource source(at.path);
        return format == TensorFormat::kNpy ? read_npy(source) : SafetensorsFile(source).read(at.name);
    } catch (const Failure& failure) {
        throw Failure(fmt::format("{}: {}", argument, failure.what()));
    }
}

bool has_tensor(const std::string& argument, const std::string& place) {
    const Place at = split(argument, place);
    if (format_of(argument, at.path) != TensorFormat::kSafetensors) return false;
    const FileSource source(at.path);
    const SafetensorsFile file(source);
    return std::any_of(file.entries().begin(), file.entries().end(), [&](const auto& e) { return e.name == at.name; });
}

void save_tensors(const std::string& path, std::span<const NamedTensor> tensors, bool force) {
    for (const NamedTensor& named : tensors) {
        if (!named.tensor->is_contiguous())
            throw Failure(fmt::format("{}: is not contiguous and cannot be written", named.name));
    }
    AtomicFile file(path, force);
    if (format_of("out", path) == TensorFormat::kNpy) {
        if (tensors.size() != 1)
            throw UsageError(fmt::format("out: {} tensors do not fit into one .npy file", tensors.size()));
        file.write(npy_header(tensors[0].tensor->dtype(), tensors[0].tensor->shape()));
    } else {
        std::vector<TensorToWrite> list;
        for (const NamedTensor& named : tensors)
            list.push_back({named.name, named.tensor->dtype(), named.tensor->shape()});
        file.write(safetensors_header(list));
    }
    for (const NamedTensor& named : tensors) file.write(named.tensor->bytes());
    file.commit();
}

}  // namespace tilewise::cli
