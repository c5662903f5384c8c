// Memory, streams and events, on every device of this machine; and what is refused before a device is asked.
#include <cstdint>
#include <cstring>

#include "support.hpp"

namespace {

using namespace api_test;

class Memory : public testing::TestWithParam<std::string> {
protected:
    void SetUp() override { device_ = open(GetParam().c_str()); }
    tilewise_device* device() const { return device_.get(); }

private:
    DevicePtr device_;
};

std::vector<std::string> real_devices() {
    std::vector<std::string> names;
    for (int32_t i = 0; i < tilewise_device_count(0); ++i) names.emplace_back(tilewise_device_name(i));
    return names;
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
    std::string name = info.param;
    std::replace(name.begin(), name.end(), ':', '_');
    return name;
}

INSTANTIATE_TEST_SUITE_P(Devices, Memory, testing::ValuesIn(real_devices()), test_name);

void expect_ok(tilewise_status status) { EXPECT_EQ(status, TILEWISE_OK) << tilewise_last_error(); }

TEST_P(Memory, ComesAlignedAndGoes) {
    for (const size_t bytes : {size_t{1}, size_t{63}, size_t{1} << 20}) {
        void* memory = nullptr;
        expect_ok(tilewise_allocate(device(), bytes, &memory));
        ASSERT_NE(memory, nullptr);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 64, 0u);
        expect_ok(tilewise_free(device(), memory));
    }
    void* none = device();
    expect_ok(tilewise_allocate(device(), 0, &none));
    EXPECT_EQ(none, nullptr);
    expect_ok(tilewise_free(device(), nullptr));
}

TEST_P(Memory, IsCopiedAndFilledInTheOrderOfTheStream) {
    void* stream = nullptr;
    expect_ok(tilewise_stream_create(device(), &stream));
    for (void* const order : {static_cast<void*>(nullptr), stream}) {
        void* a = nullptr;
        void* b = nullptr;
        std::vector<unsigned char> sent(4097), back(4097, 0);
        for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<unsigned char>(i * 7);
        expect_ok(tilewise_allocate(device(), sent.size(), &a));
        expect_ok(tilewise_allocate(device(), sent.size(), &b));
        expect_ok(tilewise_copy(device(), a, sent.data(), sent.size(), order));
        expect_ok(tilewise_copy(device(), b, a, sent.size(), order));
        expect_ok(tilewise_fill(device(), b, 0xab, 5, order));
        expect_ok(tilewise_copy(device(), back.data(), b, back.size(), order));
        expect_ok(tilewise_synchronize(device(), order));
        std::fill_n(sent.begin(), 5, static_cast<unsigned char>(0xab));
        EXPECT_EQ(back, sent);
        expect_ok(tilewise_free(device(), a));
        expect_ok(tilewise_free(device(), b));
    }
    expect_ok(tilewise_stream_destroy(device(), stream));
    expect_ok(tilewise_stream_destroy(device(), nullptr));
}

TEST_P(Memory, EventsTellTheTimeBetweenThem) {
    tilewise_event* begin = nullptr;
    tilewise_event* end = nullptr;
    expect_ok(tilewise_event_create(device(), &begin));
    expect_ok(tilewise_event_create(device(), &end));
    void* memory = nullptr;
    constexpr size_t kBytes = size_t{64} << 20;
    expect_ok(tilewise_allocate(device(), kBytes, &memory));
    expect_ok(tilewise_fill(device(), memory, 1, kBytes, nullptr));
    expect_ok(tilewise_event_record(begin, nullptr));
    expect_ok(tilewise_fill(device(), memory, 2, kBytes, nullptr));
    expect_ok(tilewise_event_record(end, nullptr));
    double seconds = -1;
    expect_ok(tilewise_event_elapsed(begin, end, &seconds));
    EXPECT_GT(seconds, 0);
    EXPECT_LT(seconds, 10);
    expect_ok(tilewise_free(device(), memory));
    tilewise_event_destroy(begin);
    tilewise_event_destroy(end);
    tilewise_event_destroy(nullptr);
}

TEST_P(Memory, NothingIsDoneForZeroBytes) {
    expect_ok(tilewise_copy(device(), nullptr, nullptr, 0, nullptr));
    expect_ok(tilewise_fill(device(), nullptr, 0, 0, nullptr));
}

// The sanitizers' allocators end the program instead.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_P(Memory, MoreThanThereIsRunsOut) {
    void* memory = device();
    EXPECT_EQ(tilewise_allocate(device(), size_t{1} << 60, &memory), TILEWISE_OUT_OF_MEMORY);
    EXPECT_EQ(memory, nullptr);
    EXPECT_EQ(std::string(tilewise_last_error()).rfind("bytes:", 0), 0u) << tilewise_last_error();
    EXPECT_EQ(tilewise_allocate(device(), SIZE_MAX, &memory), TILEWISE_OUT_OF_MEMORY);
    expect_ok(tilewise_synchronize(device(), nullptr));  // and what comes after works
}
#endif

TEST_P(Memory, NullsAreNamed) {
    char byte = 0;
    expect_invalid(tilewise_allocate(device(), 1, nullptr), "memory", "null");
    expect_invalid(tilewise_copy(device(), nullptr, &byte, 1, nullptr), "to", "null");
    expect_invalid(tilewise_copy(device(), &byte, nullptr, 1, nullptr), "from", "null");
    expect_invalid(tilewise_fill(device(), nullptr, 0, 1, nullptr), "to", "null");
    expect_invalid(tilewise_stream_create(device(), nullptr), "stream", "null");
    expect_invalid(tilewise_event_create(device(), nullptr), "event", "null");
    tilewise_event* event = nullptr;
    expect_ok(tilewise_event_create(device(), &event));
    double seconds = 0;
    expect_invalid(tilewise_event_elapsed(event, nullptr, &seconds), "end", "null");
    expect_invalid(tilewise_event_elapsed(nullptr, event, &seconds), "begin", "null");
    expect_invalid(tilewise_event_elapsed(event, event, nullptr), "seconds", "null");
    expect_invalid(tilewise_event_record(nullptr, nullptr), "event", "null");
    tilewise_event_destroy(event);
}

TEST(MemoryOf, NoDeviceAndADescriptionIsRefused) {
    char byte = 0;
    void* place = nullptr;
    expect_invalid(tilewise_allocate(nullptr, 1, &place), "device", "null");
    const DevicePtr h200 = open("recorded:h200");
    expect_invalid(tilewise_allocate(h200.get(), 1, &place), "device", "description");
    expect_invalid(tilewise_fill(h200.get(), &byte, 0, 1, nullptr), "device", "recorded:h200");
    expect_invalid(tilewise_synchronize(h200.get(), nullptr), "device", "description");
    EXPECT_EQ(place, nullptr);
}

}  // namespace
