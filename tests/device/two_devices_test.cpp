// The library uses the plan's device, whatever is current, and leaves the thread with the context that it had.
#include <thread>

#include "problems.hpp"

namespace gpu_test {
namespace {

using tilewise::Op;

TEST(DeviceGuard, AThreadKeepsItsDevice) {
    TILEWISE_NEEDS_GPUS(1);
    const int last = num_gpus() - 1;
    cuda_ok(cudaSetDevice(last));
    cuda_ok(cudaFree(nullptr));
    const tilewise::Device device("cuda:0");
    Forward forward(device, 31);
    Planned(device, Op::kForward, forward.call).launch(forward.call);
    tilewise::synchronize(device);
    int current = -1;
    cuda_ok(cudaGetDevice(&current));
    EXPECT_EQ(current, last);
    // "cuda" is the device that is current.
    EXPECT_EQ(tilewise::Device("cuda").json(), tilewise::Device("cuda:" + std::to_string(last)).json());
    // And in a thread that never chose one, launches work too.
    Bits elsewhere;
    std::thread([&] {
        Planned(device, Op::kForward, forward.call).launch(forward.call);
        elsewhere = bits_of(forward.o.get());
    }).join();
    EXPECT_EQ(bits_of(forward.o.get()), elsewhere);
}

TEST(DeviceList, TellsWhatThePlannerKnows) {
    TILEWISE_NEEDS_GPUS(1);
    EXPECT_EQ(tilewise::devices().at(1), "cuda:0");
    const std::string json = tilewise::Device("cuda:0").json();
    EXPECT_NE(json.find("\"compute_capability\""), std::string::npos) << json;
    EXPECT_EQ(json.find("\"recorded\":true"), std::string::npos) << json;
}

TEST(TwoDevices, TurnsAreTakenOnBoth) {
    TILEWISE_NEEDS_GPUS(2);
    cuda_ok(cudaSetDevice(0));
    const tilewise::Device first("cuda:0"), second("cuda:1");
    Forward here(first, 32), there(second, 32);
    const Planned on_first(first, Op::kForward, here.call), on_second(second, Op::kForward, there.call);
    const tilewise::Stream stream(second);
    for (int round = 0; round < 5; ++round) {
        here.o.clear();
        there.o.clear();
        on_first.launch(here.call);
        on_second.launch(there.call, stream.c());
        stream.synchronize();
        EXPECT_EQ(bits_of(here.o.get()), bits_of(there.o.get()));
        int current = -1;
        cuda_ok(cudaGetDevice(&current));
        EXPECT_EQ(current, 0);
    }
}

TEST(TwoDevices, TheOthersMemoryIsRefusedByName) {
    TILEWISE_NEEDS_GPUS(2);
    const tilewise::Device first("cuda:0"), second("cuda:1");
    Forward here(first, 33), there(second, 33);
    const Planned planned(first, Op::kForward, here.call);
    tilewise::Attention wrong = here.call;
    wrong.k = there.call.k;
    try {
        planned.launch(wrong);
        ADD_FAILURE() << "memory of another device was taken";
    } catch (const tilewise::Error& error) {
        EXPECT_STREQ(error.what(), "k: the pointer is memory of cuda:1; the plan was made for cuda:0");
    }
}

}  // namespace
}  // namespace gpu_test
