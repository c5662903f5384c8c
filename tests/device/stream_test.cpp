// Launches run on the caller's stream and on no other: work queued before them there is seen, and other streams are not waited for.
#include <thread>

#include "problems.hpp"

namespace gpu_test {
namespace {

using tilewise::Op;

TEST(DeviceStream, ALaunchComesAfterWhatItsStreamHolds) {
    TILEWISE_NEEDS_GPUS(1);
    const tilewise::Device device("cuda:0");
    Forward expected(device, 21), forward(device, 22);
    const Planned planned(device, Op::kForward, forward.call);
    planned.launch(expected.call);
    const Bits wanted = bits_of(expected.o.get());

    const tilewise::Stream stream(device);
    const tilewise::DeviceMemory delay(device, size_t{256} << 20);
    for (int round = 0; round < 10; ++round) {
        forward.q.clear();
        forward.o.clear();
        // The inputs arrive on the stream behind long other work; a launch on another stream would read NaN.
        for (int i = 0; i < 20; ++i) tilewise::fill(device, delay.data(), 0, delay.size(), stream.c());
        const auto bring = [&](const Array<tilewise::BF16>& to, const Array<tilewise::BF16>& from, int64_t count) {
            tilewise::copy(device, to.data(), from.data(), static_cast<size_t>(count) * 2, stream.c());
        };
        const Sizes& s = forward.sizes;
        bring(forward.q, expected.q, s.b * s.sq * s.h * s.d);
        bring(forward.k, expected.k, s.b * s.sk * s.hk * s.d);
        bring(forward.v, expected.v, s.b * s.sk * s.hk * s.d);
        planned.launch(forward.call, stream.c());
        stream.synchronize();
        ASSERT_EQ(bits_of(forward.o.get()), wanted) << "round " << round;
    }
}

TEST(DeviceStream, AStreamOfTheCallersRuntimeServes) {
    TILEWISE_NEEDS_GPUS(1);
    cuda_ok(cudaSetDevice(0));
    const tilewise::Device device("cuda:0");
    Forward forward(device, 23);
    const Planned planned(device, Op::kForward, forward.call);
    planned.launch(forward.call);
    const Bits wanted = bits_of(forward.o.get());
    cudaStream_t stream = nullptr;
    cuda_ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    forward.o.clear();
    planned.launch(forward.call, stream);
    cuda_ok(cudaStreamSynchronize(stream));
    EXPECT_EQ(bits_of(forward.o.get()), wanted);
    cuda_ok(cudaStreamDestroy(stream));
}

// One plan, many threads, each with a stream, a workspace and outputs of its own.
TEST(DeviceStream, ThreadsShareAPlan) {
    TILEWISE_NEEDS_GPUS(1);
    const tilewise::Device device("cuda:0");
    Forward shared(device, 24);
    const Planned planned(device, Op::kForward, shared.call);
    planned.launch(shared.call);
    const Bits wanted = bits_of(shared.o.get());
    constexpr size_t kThreads = 4;
    std::vector<int> right(kThreads, 0);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < kThreads; ++i)
        threads.emplace_back([&, i] {
            const tilewise::Stream stream(device);
            const tilewise::DeviceMemory workspace(device, planned.plan().workspace_bytes());
            for (int round = 0; round < 10; ++round) {
                Forward own(device, 24);
                planned.plan().launch(own.call, {std::span<std::byte>(workspace), stream.c()});
                stream.synchronize();
                if (bits_of(own.o.get()) == wanted) ++right[i];
            }
        });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(right, std::vector<int>(kThreads, 10));
}

TEST(DeviceStream, PointersOfTheWrongPlaceAreRefused) {
    TILEWISE_NEEDS_GPUS(1);
    cuda_ok(cudaSetDevice(0));
    const tilewise::Device device("cuda:0");
    Forward forward(device, 25);
    const Planned planned(device, Op::kForward, forward.call);
    const Sizes& s = forward.sizes;
    std::vector<tilewise::BF16> on_host = forward.v.get();
    tilewise::Attention wrong = forward.call;
    wrong.v = {on_host, {s.b, s.sk, s.hk, s.d}};
    try {
        planned.launch(wrong);
        ADD_FAILURE() << "host memory was taken";
    } catch (const tilewise::Error& error) {
        EXPECT_EQ(error.status(), tilewise::Status::kInvalidArgument);
        EXPECT_EQ(std::string(error.what()).rfind("v: the pointer is host memory", 0), 0u) << error.what();
    }
    // Managed and page-locked memory is the device's as well.
    for (const bool managed : {true, false}) {
        void* memory = nullptr;
        const size_t bytes = on_host.size() * sizeof(tilewise::BF16);
        cuda_ok(managed ? cudaMallocManaged(&memory, bytes, cudaMemAttachGlobal) : cudaMallocHost(&memory, bytes));
        std::memcpy(memory, on_host.data(), bytes);
        wrong.v = {static_cast<tilewise::BF16*>(memory), {s.b, s.sk, s.hk, s.d}};
        planned.launch(wrong);
        const Bits from_there = bits_of(forward.o.get());
        planned.launch(forward.call);
        EXPECT_EQ(bits_of(forward.o.get()), from_there);
        cuda_ok(managed ? cudaFree(memory) : cudaFreeHost(memory));
    }
}

}  // namespace
}  // namespace gpu_test
