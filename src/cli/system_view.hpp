// What the operating system says about this machine: files under /proc, /sys and /dev, and the environment.
// Everything is read below `root` ("" in production), so that tests can show the program machines that they do not have.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace tilewise::cli {

struct PciGpu {
    std::string address;  // "0000:3b:00.0"
    std::string driver;   // kernel module bound to it: "nvidia", "nouveau", "vfio-pci", or empty
};

struct SystemView {
    std::vector<PciGpu> gpus;    // NVIDIA display controllers on the PCI bus
    bool is_wsl = false;         // Windows' GPU device is there
    std::string driver_version;  // of the loaded kernel module: "580.65.06", or empty
    int num_nodes = 0;           // /dev/nvidia0, /dev/nvidia1, ...
    bool has_control_node = false;
    bool can_open_nodes = false;  // for reading and writing, by this user
    int num_cores = 0;            // of the machine, whether this process may use them or not
    std::map<std::string, std::string> environment;
};

SystemView look_at_system(const std::string& root);

// Major number of a driver version, 0 where there is none.
int major_of(const std::string& driver_version);

}  // namespace tilewise::cli
