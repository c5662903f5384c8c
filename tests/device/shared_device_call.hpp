// A call to one kernel row on the GPU, without a plan around it: the tensors of a KernelCall, copied to the device, and back to be
// compared with what a CPU row makes of the same call. Tests that use it are skipped on a machine without a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "../unit/kernel_call.hpp"

namespace tilewise::test {

inline bool has_gpu() {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}
#define TILEWISE_NEEDS_GPU() \
    if (!has_gpu()) GTEST_SKIP() << "no GPU"

// Device memory that is filled with bytes that are NaN in every element type.
class DeviceMemory {
public:
    explicit DeviceMemory(size_t bytes) : bytes_(std::max<size_t>(bytes, 64)) {
        EXPECT_EQ(cudaMalloc(&data_, bytes_), cudaSuccess);
        EXPECT_EQ(cudaMemset(data_, 0xff, bytes_), cudaSuccess);
    }
    ~DeviceMemory() { static_cast<void>(cudaFree(data_)); }
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;

    void* data() const { return data_; }
    template <class T> T* as() const { return static_cast<T*>(data_); }
    template <class T> void write(const std::vector<T>& values) {
        ASSERT_LE(values.size() * sizeof(T), bytes_);
        EXPECT_EQ(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
    }
    template <class T> std::vector<T> read(size_t count) const {
        std::vector<T> values(count);
        EXPECT_EQ(cudaMemcpy(values.data(), data_, count * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
        return values;
    }

private:
    size_t bytes_;
    void* data_ = nullptr;
};

class DeviceCall {
public:
    // Copies every tensor of `call` to the device, with the strides that it has there.
    explicit DeviceCall(const KernelCall& call) {
        step.problem = call.problem;
        step.sizes = sizes_of(call.problem);
        for (size_t i = 0; i < kNumArgs; ++i) {
            const Arg arg = static_cast<Arg>(i);
            if (!call.problem.has(arg)) continue;
            memory_[arg] = std::make_unique<DeviceMemory>(call.bytes(arg).size());
            memory_[arg]->write(call.bytes(arg));
            arguments.pointers[arg] = memory_[arg]->data();
        }
    }

    // Lays the row out, gives it a workspace, launches and waits.
    void run(const KernelRow& row) {
        step.row = &row;
        DeviceInfo device;
        device.kind = DeviceKind::kCuda;
        device.cuda.num_multiprocessors = 132;
        device.cuda.memory_bytes_per_second = 1e12;
        if (row.layout != nullptr) row.layout(step, device);
        int64_t bytes = 0;
        for (const WorkspaceBlock& block : step.workspace) bytes = std::max(bytes, block.offset + block.bytes);
        workspace_ = std::make_unique<DeviceMemory>(static_cast<size_t>(bytes));
        arguments.workspace = workspace_->data();
        arguments.workspace_bytes = bytes;
        const Status status = row.launch(step, arguments);
        ASSERT_TRUE(status.ok()) << status.message();
        wait();
    }
    static void wait() { ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess) << cudaGetErrorString(cudaGetLastError()); }

    std::vector<unsigned char> bytes(Arg arg) const {
        const TensorDesc& tensor = step.problem[arg];
        return memory_[arg]->read<unsigned char>(static_cast<size_t>(tensor.num_elements() * size_of(tensor.dtype)));
    }
    Values values(Arg arg) const {
        const std::vector<unsigned char> raw = bytes(arg);
        const DType dtype = step.problem[arg].dtype;
        Values result;
        for (int64_t n = 0; n < step.problem[arg].num_elements(); ++n) {
            int32_t integer = 0;
            if (dtype == DType::kI32) std::memcpy(&integer, raw.data() + n * 4, 4);
            result.push_back(dtype == DType::kI32 ? integer : cpu::load_element(raw.data(), dtype, n));
        }
        return result;
    }

    Step step;
    Arguments arguments;

private:
    PerArg<std::unique_ptr<DeviceMemory>> memory_;
    std::unique_ptr<DeviceMemory> workspace_;
};

}  // namespace tilewise::test
