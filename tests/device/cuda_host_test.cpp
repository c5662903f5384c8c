// The host side of the CUDA backend. Without a driver or a GPU every question is answered by a status that says what to do; rates of
// GPUs are told, recorded, or those of the generation.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cuda/common/device_guard.hpp"
#include "cuda/common/device_query.hpp"
#include "cuda/common/launch.hpp"
#include "cuda/common/memory.hpp"
#include "cuda/common/tensor_map.hpp"

namespace tilewise::cuda {
namespace {

constexpr int32_t kNoSuchDevice = 999;

TEST(CudaHost, CodesBecomeSentences) {
    EXPECT_TRUE(check(cudaSuccess, "a").ok());
    const Status status = check(cudaErrorNoKernelImageForDevice, "sm80_fwd: the launch");
    EXPECT_EQ(status.code(), StatusCode::kDeviceError);
    EXPECT_EQ(status.message().rfind("sm80_fwd: the launch: ", 0), 0u) << status.message();
    EXPECT_NE(status.message().find("cudaErrorNoKernelImageForDevice"), std::string::npos);
    EXPECT_NE(status.message().find("TILEWISE_CUDA_ARCHS"), std::string::npos) << "what to do";
    EXPECT_EQ(check(cudaErrorInvalidValue, "x").message().find(';'), std::string::npos) << "nothing to advise";
}

TEST(CudaHost, AListWithoutGpusSaysWhy) {
    const FoundDevices found = find_devices();
    EXPECT_EQ(found.status.ok(), !found.devices.empty()) << found.status.message();
    EXPECT_TRUE(found.status.ok() || found.status.message().find("NVIDIA driver") != std::string::npos)
        << found.status.message();
    EXPECT_GE(current_device(), 0);
    for (const DeviceInfo& device : found.devices) {
        EXPECT_EQ(device.kind, DeviceKind::kCuda);
        EXPECT_FALSE(device.recorded);
        EXPECT_FALSE(device.name.empty());
        EXPECT_GT(device.cuda.compute_capability, 30);
        EXPECT_GT(device.cuda.num_multiprocessors, 0);
        EXPECT_GE(device.cuda.shared_memory_per_block, 48 << 10);
        EXPECT_GT(device.cuda.l2_bytes, 0);
        EXPECT_GT(device.cuda.memory_bytes, int64_t{1} << 30);
        EXPECT_GT(device.cuda.memory_bytes_per_second, 1e10);
        EXPECT_GT(device.cuda.bf16_flops_per_second, 1e12);
    }
}

// Without a driver, and with one but no such GPU: a status each, and the next call is none the worse.
TEST(CudaHost, ADeviceThatIsNotThereAnswers) {
    EXPECT_FALSE(DeviceGuard(kNoSuchDevice).status().ok());
    void* memory = nullptr;
    const Status status = memory_functions().allocate(kNoSuchDevice, 64, &memory);
    EXPECT_EQ(status.code(), StatusCode::kDeviceError);
    EXPECT_FALSE(status.message().empty());
    EXPECT_EQ(memory, nullptr);
    EXPECT_FALSE(stream_functions().create(kNoSuchDevice, &memory).ok());
    EXPECT_FALSE(stream_functions().synchronize(kNoSuchDevice, nullptr).ok());
    EXPECT_FALSE(event_functions().create(kNoSuchDevice, &memory).ok());
    const std::vector<const void*> pointers{&memory};
    std::vector<PointerPlace> places(1);
    EXPECT_FALSE(memory_functions().locate(kNoSuchDevice, pointers, places).ok());
    // Nothing is left behind; without a driver the runtime has this one answer to every question.
    EXPECT_TRUE(cudaPeekAtLastError() == cudaSuccess || find_devices().devices.empty());
}

TEST(CudaHost, LaunchesRefuseWhatNoGridHolds) {
    const int64_t too_many = int64_t{1} << 31;
    const Status status = launch_kernel("some_kernel", nullptr, {too_many, 128, 0}, nullptr, {});
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_NE(status.message().find("2147483648"), std::string::npos) << status.message();
    EXPECT_EQ(status.message().rfind("some_kernel: ", 0), 0u);
    EXPECT_EQ(launch_kernel("some_kernel", nullptr, {-1, 128, 0}, nullptr, {}).code(), StatusCode::kInternal);
    EXPECT_TRUE(launch_kernel("some_kernel", nullptr, {0, 128, 0}, nullptr, {}).ok()) << "nothing to do";
}

TEST(CudaHost, TheTensorMapEncoderIsThereOrSaidToBeMissing) {
    TensorMapEncoder encoder = nullptr;
    const Status status = tensor_map_encoder(&encoder);
    EXPECT_EQ(status.ok(), encoder != nullptr) << status.message();
    const bool is_named = status.message().rfind("cuTensorMapEncodeTiled: ", 0) == 0;
    EXPECT_TRUE(status.ok() || (status.code() == StatusCode::kDeviceError && is_named)) << status.message();
}

DeviceInfo gpu(const char* name, int32_t compute_capability, int32_t multiprocessors) {
    DeviceInfo device;
    device.kind = DeviceKind::kCuda;
    device.name = name;
    device.cuda.compute_capability = compute_capability;
    device.cuda.num_multiprocessors = multiprocessors;
    return device;
}

TEST(Rates, ClocksThatAreToldCount) {
    DeviceInfo l40s = gpu("NVIDIA L40S", 89, 142);
    add_rates({9e9, 2.52e9, 384}, &l40s);
    EXPECT_DOUBLE_EQ(l40s.cuda.memory_bytes_per_second, 864e9);
    EXPECT_NEAR(l40s.cuda.bf16_flops_per_second, 362e12, 10e12) << "the data sheet's";
}

TEST(Rates, GeForceAccumulatesAtHalfTheRate) {
    DeviceInfo card = gpu("NVIDIA GeForce RTX 4080 SUPER", 89, 80), workstation = gpu("NVIDIA RTX 4500 Ada", 89, 80);
    add_rates({0, 2.5e9, 0}, &card);
    add_rates({0, 2.5e9, 0}, &workstation);
    EXPECT_DOUBLE_EQ(2 * card.cuda.bf16_flops_per_second, workstation.cuda.bf16_flops_per_second);
}

TEST(Rates, ARecordedNameServesWhereNothingIsTold) {
    for (const RecordedDevice& recorded : recorded_devices()) {
        if (recorded.info.kind != DeviceKind::kCuda) continue;
        DeviceInfo device = recorded.info;
        device.cuda.memory_bytes_per_second = device.cuda.bf16_flops_per_second = 0;
        add_rates({}, &device);
        EXPECT_EQ(device, recorded.info) << recorded.key;
        // And where clocks are told, they say about the same: the table of generations is right.
        DeviceInfo unnamed = recorded.info;
        unnamed.name = unnamed.name.find("GeForce") != std::string::npos ? "GeForce X" : "X";
        add_rates({0, 1.8e9, 0}, &unnamed);
        EXPECT_GT(unnamed.cuda.bf16_flops_per_second, recorded.info.cuda.bf16_flops_per_second * 0.5) << recorded.key;
        EXPECT_LT(unnamed.cuda.bf16_flops_per_second, recorded.info.cuda.bf16_flops_per_second * 1.6) << recorded.key;
    }
}

TEST(Rates, GpusOfNoKnownGenerationGetTheNearestOlderOne) {
    DeviceInfo future = gpu("NVIDIA Z1", 135, 100), ancient = gpu("Tesla K80", 37, 13);
    add_rates({}, &future);
    add_rates({}, &ancient);
    EXPECT_GT(future.cuda.bf16_flops_per_second, 0);
    EXPECT_GT(future.cuda.memory_bytes_per_second, 0);
    EXPECT_GT(ancient.cuda.memory_bytes_per_second, 0);
}

}  // namespace
}  // namespace tilewise::cuda
