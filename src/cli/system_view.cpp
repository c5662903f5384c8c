// Reads sysfs, procfs and the device nodes; every file may be absent.
#include "system_view.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

namespace tilewise::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNvidiaVendor = "0x10de";
constexpr const char* kDisplayClass = "0x03";  // VGA and 3D controllers; the rest of the number is the subclass

std::string text_of(const fs::path& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    std::string content = text.str();
    content.erase(content.find_last_not_of(" \n") + 1);
    return content;
}

std::vector<fs::path> entries_of(const fs::path& folder) {
    std::vector<fs::path> paths;
    std::error_code error;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
        paths.push_back(at->path());
    std::sort(paths.begin(), paths.end());
    return paths;
}

std::vector<PciGpu> find_gpus(const fs::path& root) {
    std::vector<PciGpu> gpus;
    for (const fs::path& device : entries_of(root / "sys/bus/pci/devices")) {
        if (text_of(device / "vendor") != kNvidiaVendor || !text_of(device / "class").starts_with(kDisplayClass))
            continue;
        std::error_code error;
        const fs::path driver = fs::read_symlink(device / "driver", error);
        gpus.push_back({device.filename().string(), error ? "" : driver.filename().string()});
    }
    return gpus;
}

// The first number with dots of "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 ...".
std::string driver_version(const fs::path& root) {
    std::smatch match;
    const std::string text = text_of(root / "proc/driver/nvidia/version");
    return std::regex_search(text, match, std::regex(R"(\b(\d{3}\.\d+(\.\d+)?)\b)")) ? match[1].str() : "";
}

void look_at_nodes(const fs::path& root, SystemView& view) {
    const auto usable = [](const fs::path& path) { return ::access(path.c_str(), R_OK | W_OK) == 0; };
    const fs::path control = root / "dev/nvidiactl";
    std::error_code error;
    view.has_control_node = fs::exists(control, error);
    view.can_open_nodes = view.has_control_node && usable(control);
    static const std::regex name("nvidia[0-9]+");
    for (const fs::path& node : entries_of(root / "dev")) {
        if (!std::regex_match(node.filename().string(), name)) continue;
        ++view.num_nodes;
        view.can_open_nodes = view.can_open_nodes && usable(node);
    }
    view.is_wsl = fs::exists(root / "dev/dxg", error);
}

std::map<std::string, std::string> environment() {
    std::map<std::string, std::string> variables;
    for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
        const std::string entry = *at;
        const size_t equals = entry.find('=');
        if (equals != std::string::npos) variables[entry.substr(0, equals)] = entry.substr(equals + 1);
    }
    return variables;
}

}  // namespace

SystemView look_at_system(const std::string& root) {
    SystemView view;
    const fs::path base = root.empty() ? "/" : root;
    view.gpus = find_gpus(base);
    view.driver_version = driver_version(base);
    look_at_nodes(base, view);
    view.num_cores = static_cast<int>(std::max(::sysconf(_SC_NPROCESSORS_ONLN), 1L));
    view.environment = environment();
    return view;
}

int major_of(const std::string& driver_version) { return std::atoi(driver_version.c_str()); }

}  // namespace tilewise::cli
