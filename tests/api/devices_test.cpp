// Devices and kernels as the C interface lists them.
#include <nlohmann/json.hpp>
#include <set>

#include "support.hpp"

namespace {

using namespace api_test;
using nlohmann::json;

TEST(Devices, RealOnesComeFirst) {
    const int32_t real = tilewise_device_count(0), all = tilewise_device_count(1);
    ASSERT_GE(real, 1);
    ASSERT_GT(all, real);
    EXPECT_STREQ(tilewise_device_name(0), "cpu");
    for (int32_t i = 0; i < all; ++i) {
        const std::string name = tilewise_device_name(i);
        EXPECT_EQ(name.rfind("recorded:", 0) == 0, i >= real) << name;
    }
    EXPECT_EQ(tilewise_device_name(-1), nullptr);
    EXPECT_EQ(tilewise_device_name(all), nullptr);
}

TEST(Devices, EveryNameOpensAndDescribesItself) {
    const int32_t count = tilewise_device_count(1);
    for (int32_t i = 0; i < count; ++i) {
        const char* name = tilewise_device_name(i);
        const DevicePtr device = open(name);
        ASSERT_NE(device, nullptr) << name;
        const json description = json::parse(tilewise_device_json(device.get()));
        EXPECT_TRUE(description.at("kind") == "cpu" || description.at("kind") == "cuda") << name;
        EXPECT_FALSE(description.at("name").get<std::string>().empty()) << name;
        EXPECT_EQ(description.at("recorded").get<bool>(), i >= tilewise_device_count(0)) << name;
    }
}

TEST(Devices, UnknownNames) {
    tilewise_device* device = nullptr;
    const auto expect_refused = [&](const char* name, tilewise_status status, const char* part) {
        device = reinterpret_cast<tilewise_device*>(&device);
        expect_refusal(tilewise_device_open(name, &device), status, "device", part);
        EXPECT_EQ(device, nullptr);
        EXPECT_NE(std::string(tilewise_last_error()).find(name), std::string::npos);
    };
    expect_refused("gpu", TILEWISE_INVALID_ARGUMENT, "cpu");
    expect_refused("CPU", TILEWISE_INVALID_ARGUMENT, "cpu");
    expect_refused("recorded:h20", TILEWISE_INVALID_ARGUMENT, "h200");
    expect_refused("", TILEWISE_INVALID_ARGUMENT, "cpu");
    expect_refused("cuda0", TILEWISE_INVALID_ARGUMENT, "cuda:N");
    expect_refused("cuda:x", tilewise_device_count(0) > 1 ? TILEWISE_INVALID_ARGUMENT : TILEWISE_UNSUPPORTED, "cuda:");
}

// Whatever is missing (kernels, driver, GPU), the message says which, and what there is instead.
TEST(Devices, AGpuThatIsNotThereIsExplained) {
    const bool has_gpu = tilewise_device_count(0) > 1;
    std::vector<std::string> absent{"cuda:999"};
    if (!has_gpu) absent.insert(absent.end(), {"cuda", "cuda:0"});
    tilewise_device* device = nullptr;
    for (const std::string& name : absent) {
        EXPECT_EQ(tilewise_device_open(name.c_str(), &device),
                  has_gpu ? TILEWISE_INVALID_ARGUMENT : TILEWISE_UNSUPPORTED);
        EXPECT_EQ(device, nullptr);
        const std::string message = tilewise_last_error();
        EXPECT_EQ(message.rfind("device: \"" + name + "\"", 0), 0u) << message;
        const auto says = [&](const char* part) { return message.find(part) != std::string::npos; };
        EXPECT_EQ(says("this machine has cuda:0"), has_gpu) << message;
        EXPECT_EQ(says("no CUDA kernels") || says("NVIDIA driver"), !has_gpu) << message;
        EXPECT_EQ(says("\"cpu\" runs"), !has_gpu) << message;
    }
}

TEST(Kernels, DescribeThemselves) {
    const int32_t count = tilewise_kernel_count();
    ASSERT_GT(count, 0);
    std::set<std::string> names, ops;
    for (int32_t i = 0; i < count; ++i) {
        const json kernel = json::parse(tilewise_kernel_json(i));
        names.insert(kernel.at("name").get<std::string>());
        ops.insert(kernel.at("op").get<std::string>());
        EXPECT_TRUE(kernel.at("device").is_string());
        EXPECT_FALSE(kernel.at("dtypes").empty());
        EXPECT_GT(kernel.at("max_head_dim").get<int>(), 0);
        EXPECT_GT(kernel.at("max_head_dim_v").get<int>(), 0);
        EXPECT_TRUE(kernel.at("isa").is_string());
        EXPECT_TRUE(kernel.at("features").is_string());
    }
    EXPECT_EQ(names.size(), static_cast<size_t>(count)) << "names are unique";
    for (const char* op : {"forward", "backward", "append", "combine"}) EXPECT_TRUE(ops.count(op)) << op;
    EXPECT_EQ(tilewise_kernel_json(-1), nullptr);
    EXPECT_EQ(tilewise_kernel_json(count), nullptr);
}

}  // namespace
