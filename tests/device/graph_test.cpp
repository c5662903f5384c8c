// Launches are captured in CUDA graphs: nothing in them allocates, waits or reads the device. The graph then runs on what lies in its
// tensors at that time.
#include "problems.hpp"

namespace gpu_test {
namespace {

using tilewise::Op;

class Graph {
public:
    // Captures `record`, which puts work on the stream that it is given.
    template <class Record> explicit Graph(Record&& record) {
        cudaGraph_t graph = nullptr;
        cuda_ok(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
        cuda_ok(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
        record(stream_);
        cuda_ok(cudaStreamEndCapture(stream_, &graph));
        cuda_ok(cudaGraphGetNodes(graph, nullptr, &num_nodes_));
        cuda_ok(cudaGraphInstantiate(&executable_, graph, 0));
        cuda_ok(cudaGraphDestroy(graph));
    }
    ~Graph() {
        cudaGraphExecDestroy(executable_);
        cudaStreamDestroy(stream_);
    }
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;

    void run() {
        cuda_ok(cudaGraphLaunch(executable_, stream_));
        cuda_ok(cudaStreamSynchronize(stream_));
    }
    size_t num_nodes() const { return num_nodes_; }

private:
    cudaStream_t stream_ = nullptr;
    cudaGraphExec_t executable_ = nullptr;
    size_t num_nodes_ = 0;
};

TEST(DeviceGraph, AForwardIsCapturedAndRunsOnNewData) {
    TILEWISE_NEEDS_GPUS(1);
    cuda_ok(cudaSetDevice(0));
    const tilewise::Device device("cuda:0");
    Forward captured(device, 1), direct(device, 77);
    const Planned planned(device, Op::kForward, captured.call);
    Graph graph([&](void* stream) { planned.launch(captured.call, stream); });
    EXPECT_GE(graph.num_nodes(), 1u);
    graph.run();
    const Bits first = bits_of(captured.o.get());
    planned.launch(captured.call);
    EXPECT_EQ(bits_of(captured.o.get()), first);

    captured.q.set(direct.q.get());
    captured.k.set(direct.k.get());
    captured.v.set(direct.v.get());
    captured.o.clear();
    graph.run();
    planned.launch(direct.call);
    EXPECT_EQ(bits_of(captured.o.get()), bits_of(direct.o.get()));
    EXPECT_NE(bits_of(captured.o.get()), first);
}

TEST(DeviceGraph, ABackwardIsCaptured) {
    TILEWISE_NEEDS_GPUS(1);
    cuda_ok(cudaSetDevice(0));
    const tilewise::Device device("cuda:0");
    const Forward forward(device, 3);
    Planned(device, Op::kForward, forward.call).launch(forward.call);
    tilewise::synchronize(device);
    Backward backward(device, forward, 9);
    backward.call.options.deterministic = true;
    const Planned planned(device, Op::kBackward, backward.call);
    planned.launch(backward.call);
    const Bits expected[] = {bits_of(backward.grad_q.get()), bits_of(backward.grad_k.get()),
                             bits_of(backward.grad_v.get())};
    for (Array<tilewise::BF16>* gradient : {&backward.grad_q, &backward.grad_k, &backward.grad_v}) gradient->clear();
    Graph graph([&](void* stream) { planned.launch(backward.call, stream); });
    for (int i = 0; i < 3; ++i) graph.run();  // workspaces are set up by the launch itself
    EXPECT_EQ(bits_of(backward.grad_q.get()), expected[0]);
    EXPECT_EQ(bits_of(backward.grad_k.get()), expected[1]);
    EXPECT_EQ(bits_of(backward.grad_v.get()), expected[2]);
}

// Lengths lie on the device, so one captured step decodes token after token.
TEST(DeviceGraph, ADecodeStepIsCapturedOnce) {
    TILEWISE_NEEDS_GPUS(1);
    cuda_ok(cudaSetDevice(0));
    const tilewise::Device device("cuda:0");
    Decode captured(device, 5), direct(device, 5);
    const Planned planned(device, Op::kDecode, captured.call);
    Graph graph([&](void* stream) { planned.launch(captured.call, stream); });
    std::vector<int32_t> lengths = captured.cache_seqlens.get();
    for (int step = 0; step < 20; ++step) {
        const auto token = values(Decode::b * Decode::h * Decode::d, static_cast<uint32_t>(100 + step));
        for (Decode* decode : {&captured, &direct}) {
            decode->q.set(token);
            decode->cache_seqlens.set(lengths);
        }
        graph.run();
        planned.launch(direct.call);
        ASSERT_EQ(bits_of(captured.o.get()), bits_of(direct.o.get())) << "step " << step;
        for (int32_t& length : lengths) ++length;
    }
    EXPECT_EQ(bits_of(captured.k.get()), bits_of(direct.k.get()));
    EXPECT_EQ(bits_of(captured.v.get()), bits_of(direct.v.get()));
}

// The first launch of a process may be a captured one: loading a kernel does not break the capture.
TEST(DeviceGraph, OneCallFormsAreCapturedToo) {
    TILEWISE_NEEDS_GPUS(1);
    cuda_ok(cudaSetDevice(0));
    const tilewise::Device device("cuda:0");
    Sizes other;
    other.d = 96;
    Forward forward(device, 11, other);
    const tilewise::DeviceMemory workspace(device, tilewise::workspace_bytes(device, Op::kForward, forward.call));
    Graph graph([&](void* stream) {
        tilewise::forward(device, forward.call, {std::span<std::byte>(workspace), stream});
    });
    graph.run();
    const Bits captured = bits_of(forward.o.get());
    tilewise::forward(device, forward.call, {std::span<std::byte>(workspace), nullptr});
    EXPECT_EQ(bits_of(forward.o.get()), captured);
}

}  // namespace
}  // namespace gpu_test
