// Devices: what is detected here is consistent, quotas of control groups are read, recorded values are those of the real parts.
#include "core/device.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>

#include "core/cgroup.hpp"
#include "fake_kernels.hpp"

namespace tilewise {
namespace {

TEST(Device, DetectedCpuIsConsistent) {
    const DeviceInfo device = detect_cpu();
    EXPECT_EQ(device.kind, DeviceKind::kCpu);
    EXPECT_FALSE(device.recorded);
    EXPECT_FALSE(device.name.empty());
    EXPECT_GE(device.cpu.num_cores, 1);
    EXPECT_LE(device.cpu.num_cores, static_cast<int32_t>(std::max(1u, std::thread::hardware_concurrency())));
    EXPECT_GE(device.cpu.l1d_bytes, 4 << 10);
    EXPECT_GE(device.cpu.l2_bytes, device.cpu.l1d_bytes);
    EXPECT_EQ(device, detect_cpu());
    const std::string features = " " + device.cpu.features + " ";
    const auto has = [&](const char* name) {
        return features.find(std::string(" ") + name + " ") != std::string::npos;
    };
    const bool avx2 = has("avx2") && has("fma") && has("f16c");
    const bool avx512 = has("avx512f") && has("avx512bw") && has("avx512dq") && has("avx512vl");
    EXPECT_EQ(device.cpu.isa >= Isa::kAvx2, avx2);
    EXPECT_EQ(device.cpu.isa >= Isa::kAvx512, avx2 && avx512);
    EXPECT_EQ(device.cpu.isa == Isa::kAvx512Bf16, device.cpu.isa >= Isa::kAvx512 && has("avx512bf16"));
}

// A folder that plays the root of a file system.
class CgroupTest : public testing::Test {
protected:
    void SetUp() override {
        const std::string pattern = (std::filesystem::temp_directory_path() / "tilewise_cgroup_XXXXXX").string();
        root_ = pattern;
        ASSERT_NE(mkdtemp(root_.data()), nullptr);
    }
    void TearDown() override { std::filesystem::remove_all(root_); }
    void write(const std::string& path, const std::string& text) {
        std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
        std::ofstream(root_ + path) << text;
    }
    std::string root_;
};

TEST_F(CgroupTest, NoGroupsNoLimit) { EXPECT_EQ(cgroup_cpu_quota(root_), 0); }

TEST_F(CgroupTest, VersionTwo) {
    write("/proc/self/cgroup", "0::/pods/job\n");
    write("/sys/fs/cgroup/pods/job/cpu.max", "max 100000\n");
    EXPECT_EQ(cgroup_cpu_quota(root_), 0);
    write("/sys/fs/cgroup/pods/cpu.max", "350000 100000\n");
    EXPECT_EQ(cgroup_cpu_quota(root_), 3.5) << "a limit above the group holds for it";
    write("/sys/fs/cgroup/pods/job/cpu.max", "200000 100000\n");
    EXPECT_EQ(cgroup_cpu_quota(root_), 2);
}

// The path is the host's, the mounted folder is the container's own group.
TEST_F(CgroupTest, VersionTwoInsideAContainer) {
    write("/proc/self/cgroup", "0::/kubepods/pod1/container2\n");
    write("/sys/fs/cgroup/cpu.max", "150000 100000\n");
    EXPECT_EQ(cgroup_cpu_quota(root_), 1.5);
}

TEST_F(CgroupTest, VersionOne) {
    write("/proc/self/cgroup", "5:memory:/job\n4:cpu,cpuacct:/job\n0::/\n");
    write("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
    write("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
    EXPECT_EQ(cgroup_cpu_quota(root_), 0);
    write("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "400000\n");
    EXPECT_EQ(cgroup_cpu_quota(root_), 4);
}

TEST_F(CgroupTest, BrokenFilesLimitNothing) {
    write("/proc/self/cgroup", "nonsense\n::\n0::/\n");
    write("/sys/fs/cgroup/cpu.max", "12");
    EXPECT_EQ(cgroup_cpu_quota(root_), 0);
    write("/sys/fs/cgroup/cpu.max", "100000 0");
    EXPECT_EQ(cgroup_cpu_quota(root_), 0);
}

TEST(Device, RecordedDevicesAreDistinctAndMarked) {
    std::set<std::string> keys;
    for (const RecordedDevice& device : recorded_devices()) {
        EXPECT_TRUE(keys.insert(device.key).second) << device.key;
        EXPECT_TRUE(device.info.recorded) << device.key;
        EXPECT_FALSE(device.info.name.empty()) << device.key;
        EXPECT_NE(to_string(device.info).find(device.info.name), std::string::npos);
    }
    for (const char* key : {"h200", "a100", "rtx4090", "rtx3090", "rtx5090", "t4", "cpu-avx512bf16", "cpu-avx2"})
        EXPECT_TRUE(keys.count(key)) << key;
}

TEST(Device, RecordedValues) {
    const CudaInfo h200 = fake::recorded("h200").cuda;
    EXPECT_EQ(h200.compute_capability, 90);
    EXPECT_EQ(h200.num_multiprocessors, 132);
    EXPECT_EQ(h200.shared_memory_per_block, 232448);
    EXPECT_EQ(fake::recorded("a100").cuda.shared_memory_per_block, 166912);
    EXPECT_EQ(fake::recorded("rtx3090").cuda.shared_memory_per_block, 101376);
    EXPECT_EQ(fake::recorded("rtx5090").cuda.compute_capability, 120);
    EXPECT_EQ(fake::recorded("t4").cuda.compute_capability, 75);
    EXPECT_EQ(fake::recorded("cpu-avx2").cpu.isa, Isa::kAvx2);
}

TEST(Device, JsonHoldsTheFieldsOfItsKind) {
    const auto gpu = nlohmann::json::parse(to_json(fake::recorded("h200")));
    EXPECT_EQ(gpu["kind"], "cuda");
    EXPECT_EQ(gpu["compute_capability"], 90);
    EXPECT_FALSE(gpu.contains("isa"));
    const auto cpu = nlohmann::json::parse(to_json(fake::recorded("cpu-avx2")));
    EXPECT_EQ(cpu["kind"], "cpu");
    EXPECT_EQ(cpu["isa"], "avx2");
    EXPECT_EQ(cpu["num_cores"], 16);
    DeviceInfo odd = detect_cpu();
    odd.name = "not UTF-8: \xff";
    EXPECT_FALSE(nlohmann::json::parse(to_json(odd))["name"].get<std::string>().empty());
}

}  // namespace
}  // namespace tilewise
