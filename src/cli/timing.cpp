// Copies, repetitions and quantiles.
#include "timing.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "slots.hpp"

namespace tilewise::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMinRepeats = 5;
constexpr int kMaxRepeats = 10000;
// Beyond the last-level cache of most CPUs; on a GPU, several times its L2.
constexpr int64_t kRotatedBytes = int64_t{128} << 20;
constexpr int64_t kRotatedCaches = 4;
constexpr int64_t kMaxCopies = 256;

// A batch on a GPU: so much of the device's time, and so long a delay before it.
constexpr double kBatchSeconds = 2e-4;
constexpr double kDelaySeconds = 1e-3;
constexpr size_t kDelayBytes = size_t{64} << 20;
constexpr int kMaxDelayFills = 1000;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// The call and its copies in turn.
class Rotation {
public:
    Rotation(const Device& device, const DeviceCall& call) : call_(call) {
        const auto json = nlohmann::json::parse(device.json());
        const int64_t caches = device.is_host() ? 0 : kRotatedCaches * json.at("l2_bytes").get<int64_t>();
        const int64_t wanted = std::max(kRotatedBytes, caches);
        const int64_t count = std::min(kMaxCopies, wanted / std::max<int64_t>(call.bytes(), 1) + 1);
        for (int64_t i = 1; i < count; ++i) copies_.push_back(call.clone());
    }
    const Call& next() {
        const size_t turn = turn_++ % (copies_.size() + 1);
        return turn == 0 ? call_.call() : copies_[turn - 1].call();
    }

private:
    const DeviceCall& call_;
    std::vector<DeviceCall> copies_;
    size_t turn_ = 0;
};

Timing summary(std::vector<double> times, int repeats) {
    std::sort(times.begin(), times.end());
    return {quantile(times, 0.5), quantile(times, 0.1), quantile(times, 0.9), repeats};
}

Timing time_on_host(const Plan& plan, Rotation& rotation, Workspace& workspace, double seconds) {
    std::vector<double> times;
    const auto begin = Clock::now();
    for (int i = 0; i < kMaxRepeats && (i < kMinRepeats || seconds_since(begin) < seconds); ++i) {
        const Call& call = rotation.next();
        const auto start = Clock::now();
        launch(plan, call, workspace);
        times.push_back(seconds_since(start));
    }
    return summary(times, static_cast<int>(times.size()));
}

// Batches of launches on a GPU.
class BatchTimer {
public:
    BatchTimer(const Device& device, const Plan& plan, Rotation& rotation, Workspace& workspace)
        : device_(device),
          plan_(plan),
          rotation_(rotation),
          workspace_(workspace),
          scratch_(device, kDelayBytes),
          begin_(device),
          end_(device) {
        choose_delay();
        choose_batch();
    }

    // Seconds of a launch, the mean of one batch.
    double measure() {
        for (int i = 0; i < num_fills_; ++i) fill(device_, scratch_.data(), 0, scratch_.size());
        begin_.record();
        for (int i = 0; i < batch_; ++i) launch(plan_, rotation_.next(), workspace_);
        end_.record();
        return seconds_between(begin_, end_) / batch_;
    }
    int batch() const { return batch_; }

private:
    void choose_delay() {
        constexpr int kTries = 8;
        for (int i = 0; i < 2; ++i) {  // the first time warms up
            begin_.record();
            for (int j = 0; j < kTries; ++j) fill(device_, scratch_.data(), 0, scratch_.size());
            end_.record();
            const double one = std::max(seconds_between(begin_, end_) / kTries, 1e-7);
            num_fills_ = static_cast<int>(std::clamp(kDelaySeconds / one + 1, 1.0, double{kMaxDelayFills}));
        }
    }

    // As many launches as fill kBatchSeconds, but no more than the host queues during the delay.
    void choose_batch() {
        const double device_seconds = measure();
        synchronize(device_);
        constexpr int kTries = 8;
        const auto start = Clock::now();
        for (int i = 0; i < kTries; ++i) launch(plan_, rotation_.next(), workspace_);
        const double host_seconds = seconds_since(start) / kTries;
        synchronize(device_);
        const double wanted = kBatchSeconds / std::max(device_seconds, 1e-7) + 1;
        const double queued = kDelaySeconds / 2 / std::max(host_seconds, 1e-7);
        batch_ = static_cast<int>(std::max(1.0, std::min(wanted, queued)));
    }

    Device device_;
    const Plan& plan_;
    Rotation& rotation_;
    Workspace& workspace_;
    DeviceMemory scratch_;
    Event begin_, end_;
    int num_fills_ = 1;
    int batch_ = 1;
};

Timing time_on_device(BatchTimer timer, double seconds) {
    std::vector<double> times;
    const auto begin = Clock::now();
    for (int i = 0; i < kMaxRepeats && (i < kMinRepeats || seconds_since(begin) < seconds); ++i)
        times.push_back(timer.measure());
    const int repeats = static_cast<int>(times.size()) * timer.batch();
    return summary(std::move(times), repeats);
}

}  // namespace

Call copy_of(const Call& call) {
    Call copy;
    copy.op = call.op;
    copy.attention = call.attention;
    copy.combination = call.combination;
    for (const auto& [name, tensor] : call.memory) copy.memory[name] = tensor.clone(name);
    const auto move_to_copy = [&copy](const char* name, Tensor& tensor) {
        if (tensor.given()) tensor = copy.memory.at(name).view(name);
    };
    for (const Slot& slot : slots()) move_to_copy(slot.name, slot.of(copy.attention));
    move_to_copy("partial_o", copy.combination.partial_o);
    move_to_copy("partial_lse", copy.combination.partial_lse);
    move_to_copy("o", copy.combination.o);
    move_to_copy("lse", copy.combination.lse);
    return copy;
}

Timing time_call(const Device& device, const Plan& plan, const DeviceCall& call, double seconds) {
    Rotation rotation(device, call);
    Workspace workspace(device);
    launch(plan, call.call(), workspace);
    synchronize(device);
    if (device.is_host()) return time_on_host(plan, rotation, workspace, seconds);
    return time_on_device(BatchTimer(device, plan, rotation, workspace), seconds);
}

double quantile(const std::vector<double>& sorted, double share) {
    const double position = share * static_cast<double>(sorted.size() - 1);
    const auto below = static_cast<size_t>(position);
    const size_t above = std::min(below + 1, sorted.size() - 1);
    return sorted[below] + (position - std::floor(position)) * (sorted[above] - sorted[below]);
}

}  // namespace tilewise::cli
