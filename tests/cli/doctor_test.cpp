// The doctor's conclusions on machines that this one is not: described by folders that look like /sys, /proc and /dev, and by answers of
// a driver. Also the parts of the program that a command line cannot reach.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "doctor_checks.hpp"
#include "element.hpp"
#include "table.hpp"
#include "timing.hpp"
#include "work.hpp"

namespace tilewise::cli {
namespace {

namespace fs = std::filesystem;

class Machine : public ::testing::Test {
protected:
    void SetUp() override {
        std::string pattern = (fs::temp_directory_path() / "tilewise-doctor-XXXXXX").string();
        ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
        root_ = pattern;
        // The tests describe whole machines; this one's settings are no part of them.
        ::unsetenv("CUDA_VISIBLE_DEVICES");
    }
    void TearDown() override { fs::remove_all(root_); }

    void write(const std::string& path, const std::string& text) {
        fs::create_directories((root_ / path).parent_path());
        std::ofstream(root_ / path) << text;
    }
    void add_pci_device(const std::string& vendor, const std::string& kind, const std::string& driver) {
        const std::string folder = "sys/bus/pci/devices/0000:3b:00.0";
        write(folder + "/vendor", vendor + "\n");
        write(folder + "/class", kind + "\n");
        if (!driver.empty()) fs::create_symlink("../../../drivers/" + driver, root_ / folder / "driver");
    }
    void add_driver() {
        write("proc/driver/nvidia/version",
              "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 06:54:38 UTC 2025\n");
    }
    void add_nodes() {
        write("dev/nvidiactl", "");
        write("dev/nvidia0", "");
    }
    SystemView look() const { return look_at_system(root_.string()); }

    fs::path root_;
};

DriverReport working_driver(int compute_capability) {
    DriverReport report;
    report.found = true;
    report.cuda_version = 13000;
    report.gpus = {{"NVIDIA H200", compute_capability, 140.0}};
    return report;
}

DriverReport no_driver() {
    DriverReport report;
    report.load_error = "libcuda.so.1: cannot open shared object file";
    return report;
}

std::string all_text(const Findings& findings) {
    std::string text;
    for (const Finding& finding : findings) {
        text += std::string(name_of(finding.level)) + " " + finding.text + " -> " + finding.action + "\n";
        if (finding.level >= Level::kWarning) {
            EXPECT_FALSE(finding.action.empty()) << finding.text;
        }
    }
    return text;
}

#define EXPECT_SAYS(findings, exit_code, words)                         \
    EXPECT_EQ(exit_code_of(findings), exit_code) << all_text(findings); \
    EXPECT_NE(all_text(findings).find(words), std::string::npos) << all_text(findings)

BuildFacts cpu_build() { return {false, "0.1.0", "0.1.0", "libtilewise.so", {"cpu_a", "cpu_b"}}; }
BuildFacts gpu_build() { return {true, "0.1.0", "0.1.0", "libtilewise.so", {"cpu_a", "sm90_a"}}; }

TEST_F(Machine, without_gpu_is_good) { EXPECT_SAYS(check_gpus(look(), no_driver(), cpu_build()), 0, "no NVIDIA GPU"); }

TEST_F(Machine, ignores_other_vendors_and_audio) {
    add_pci_device("0x1002", "0x030000", "amdgpu");
    EXPECT_SAYS(check_gpus(look(), no_driver(), cpu_build()), 0, "no NVIDIA GPU");
    fs::remove_all(root_ / "sys");
    add_pci_device("0x10de", "0x040300", "snd_hda_intel");
    EXPECT_SAYS(check_gpus(look(), no_driver(), cpu_build()), 0, "no NVIDIA GPU");
}

TEST_F(Machine, gpu_without_driver) {
    add_pci_device("0x10de", "0x030200", "nouveau");
    EXPECT_SAYS(check_gpus(look(), no_driver(), cpu_build()), 1, "bound to nouveau -> install the NVIDIA driver 580");
}

TEST_F(Machine, container_without_access) {
    add_pci_device("0x10de", "0x030200", "nvidia");
    EXPECT_SAYS(check_gpus(look(), no_driver(), cpu_build()), 1, "--gpus all");
}

TEST_F(Machine, module_without_nodes_or_library) {
    add_pci_device("0x10de", "0x030200", "nvidia");
    add_driver();
    EXPECT_SAYS(check_gpus(look(), no_driver(), cpu_build()), 1, "/dev has no GPU nodes");
    EXPECT_SAYS(check_gpus(look(), no_driver(), cpu_build()), 1, "libcuda.so.1 cannot be loaded");
}

TEST_F(Machine, old_driver) {
    add_driver();
    add_nodes();
    DriverReport report = working_driver(90);
    report.cuda_version = 12020;
    EXPECT_SAYS(check_gpus(look(), report, gpu_build()), 1,
                "driver 580.65.06 runs programs up to CUDA 12.2; 13.0 and driver 580 are needed");
}

TEST_F(Machine, driver_that_does_not_start) {
    add_driver();
    add_nodes();
    DriverReport report = working_driver(90);
    report.gpus.clear();
    for (const auto& [code, words] :
         {std::pair{100, "finds no GPU"}, {803, "different versions"}, {804, "compatibility"}, {999, "999"}}) {
        report.init_error = code;
        EXPECT_SAYS(check_gpus(look(), report, gpu_build()), 1, words);
    }
    DriverReport crashed;
    crashed.failure = "it crashed or did not answer in time";
    EXPECT_SAYS(check_gpus(look(), crashed, gpu_build()), 1, "crashed");
}

TEST_F(Machine, working_gpu) {
    add_pci_device("0x10de", "0x030200", "nvidia");
    add_driver();
    add_nodes();
    EXPECT_SAYS(check_gpus(look(), working_driver(90), gpu_build()), 0,
                "cuda:0 NVIDIA H200, compute capability 9.0, 140 GiB");
    EXPECT_SAYS(check_gpus(look(), working_driver(90), cpu_build()), 1, "this build has no CUDA kernels");
    EXPECT_SAYS(check_gpus(look(), working_driver(75), gpu_build()), 1, "older than 8.0");
}

TEST_F(Machine, hidden_gpus) {
    add_driver();
    add_nodes();
    ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
    EXPECT_SAYS(check_gpus(look(), working_driver(90), gpu_build()), 1, "hides every GPU");
    ::setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    EXPECT_SAYS(check_gpus(look(), working_driver(90), gpu_build()), 0, "renumbers");
    ::unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST_F(Machine, environment) {
    SystemView system;
    system.environment = {{"TILEWISE_FORCE_KERNEL", "cpu_c"}};
    EXPECT_SAYS(check_environment(system, cpu_build()), 2, "no such kernel");
    system.environment = {{"TILEWISE_FORCE_KERNEL", "cpu_b"}};
    EXPECT_SAYS(check_environment(system, cpu_build()), 1, "cpu_b");
    system.environment = {{"TILEWISE_NUM_THREADS", "2"}, {"HOME", "x"}};
    EXPECT_SAYS(check_environment(system, cpu_build()), 0, "TILEWISE_NUM_THREADS=2");
    system.environment = {{"TILEWISE_THREADS", "2"}};
    EXPECT_SAYS(check_environment(system, cpu_build()), 1, "no such variable");
}

TEST_F(Machine, cpu_and_build) {
    SystemView system;
    system.num_cores = 8;
    const std::string cpu = R"({"name":"A","num_cores":2,"isa":"avx2","features":"avx2 fma"})";
    EXPECT_SAYS(check_cpu(cpu, system), 0, "may use 2 of the machine's 8 cores");
    const std::string old = R"({"name":"A","num_cores":8,"isa":"scalar","features":""})";
    EXPECT_SAYS(check_cpu(old, system), 1, "without vector instructions");
    BuildFacts mixed = cpu_build();
    mixed.library_version = "0.2.0";
    EXPECT_SAYS(check_build(mixed), 2, "version 0.2.0");
}

TEST(Driver, absent_and_wrong_libraries_are_reported) {
    const DriverReport absent = ask_cuda_driver("libtilewise-no-such-driver.so.1");
    EXPECT_FALSE(absent.found);
    EXPECT_FALSE(absent.load_error.empty());
    const DriverReport other = ask_cuda_driver("libc.so.6");
    EXPECT_FALSE(other.found);
    EXPECT_NE(other.load_error.find("lacks a function"), std::string::npos);
}

TEST(Driver, answers_through_its_library) {
    ::setenv("FAKE_DRIVER", "work", 1);
    const DriverReport report = ask_cuda_driver(TILEWISE_FAKE_DRIVER);
    EXPECT_TRUE(report.found) << report.load_error << report.failure;
    EXPECT_EQ(report.cuda_version, 13010);
    ASSERT_EQ(report.gpus.size(), 2U);
    EXPECT_EQ(report.gpus[0].name, "First");
    EXPECT_EQ(report.gpus[0].compute_capability, 95);
    EXPECT_EQ(report.gpus[0].memory_gib, 2.0);
    EXPECT_EQ(report.gpus[1].compute_capability, 75);
}

TEST(Driver, may_refuse_or_crash) {
    ::setenv("FAKE_DRIVER", "refuse", 1);
    EXPECT_EQ(ask_cuda_driver(TILEWISE_FAKE_DRIVER).init_error, 100);
    ::setenv("FAKE_DRIVER", "crash", 1);
    EXPECT_NE(ask_cuda_driver(TILEWISE_FAKE_DRIVER).failure.find("crashed"), std::string::npos);
    ::unsetenv("FAKE_DRIVER");
}

TEST(Work, counts_pairs_like_the_definition) {
    const std::vector<Mask> masks = {
        {},
        {.causal = true},
        {.causal = true, .top_left = true},
        {.window_left = 3, .window_right = 2},
        {.window_left = 0, .window_right = -1},
        {.causal = true, .chunk = 4},
        {.causal = true, .prefix = 5},
        {.top_left = true, .chunk = 3},
    };
    for (const Mask& mask : masks) {
        for (const auto& [sq, sk] : {std::pair{7, 7}, {3, 11}, {11, 3}, {0, 5}, {5, 0}}) {
            const int offset = mask.top_left ? 0 : sk - sq;
            int64_t pairs = 0;
            for (int i = 0; i < sq; ++i) {
                for (int j = 0; j < sk; ++j) {
                    const int at = i + offset;
                    const auto chunk_of = [&](int x) { return std::floor(static_cast<double>(x) / mask.chunk); };
                    const int64_t left = mask.window_left.value_or(-1);
                    const int64_t right = mask.causal ? 0 : mask.window_right.value_or(-1);
                    const bool in_window = (left < 0 || j >= at - left) && (right < 0 || j <= at + right);
                    const bool in_chunk = mask.chunk == 0 || chunk_of(j) == chunk_of(at);
                    if ((in_window && in_chunk) || j < mask.prefix) ++pairs;
                }
            }
            EXPECT_EQ(visible_pairs(mask, sq, sk), pairs) << sq << " " << sk;
        }
    }
}

TEST(Element, half_types_round_to_nearest_even) {
    // Every f16 and bf16 value comes back as itself, and the middle between neighbours goes to the even one.
    for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
        const float value = float_from_f16(static_cast<uint16_t>(bits));
        EXPECT_EQ(f16_from_float(value), bits);
        if (bits + 1 == 0x7c00) continue;
        const float next = float_from_f16(static_cast<uint16_t>(bits + 1));
        EXPECT_EQ(f16_from_float(value + (next - value) / 2), bits + bits % 2) << bits;
        EXPECT_EQ(f16_from_float(-value), bits | 0x8000);
    }
    EXPECT_EQ(f16_from_float(65520.0f), 0x7c00);
    EXPECT_EQ(f16_from_float(65519.0f), 0x7bff);
    for (uint32_t bits = 0; bits < 0x7f80; ++bits) {
        EXPECT_EQ(bf16_from_float(float_from_bf16(static_cast<uint16_t>(bits))), bits);
    }
    EXPECT_EQ(bf16_from_float(std::bit_cast<float>(0x3f808000u)), 0x3f80);
    EXPECT_EQ(bf16_from_float(std::bit_cast<float>(0x3f818000u)), 0x3f82);
    EXPECT_TRUE(std::isnan(float_from_bf16(bf16_from_float(std::nanf("")))));
    EXPECT_TRUE(std::isnan(float_from_f16(f16_from_float(std::nanf("")))));
}

TEST(Table, quotes_and_aligns) {
    Table table({{"name"}, {"n", Table::Align::kRight}});
    table.add({"a|b", "1"});
    table.add({"say \"x\", y", "22"});
    EXPECT_EQ(table.text(), "name         n\na|b          1\nsay \"x\", y  22\n");
    EXPECT_EQ(table.markdown(), "| name | n |\n|---|---:|\n| a\\|b | 1 |\n| say \"x\", y | 22 |\n");
    EXPECT_EQ(table.csv(), "name,n\na|b,1\n\"say \"\"x\"\", y\",22\n");
}

TEST(Timing, quantiles_interpolate) {
    EXPECT_DOUBLE_EQ(quantile({1, 2, 3, 4, 5}, 0.5), 3);
    EXPECT_DOUBLE_EQ(quantile({1, 2}, 0.5), 1.5);
    EXPECT_DOUBLE_EQ(quantile({7}, 0.9), 7);
}

}  // namespace
}  // namespace tilewise::cli
