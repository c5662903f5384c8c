// Copies, repetitions and quantiles.
#include "timing.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "slots.hpp"

namespace tilewise::cli {
namespace {

constexpr int kMinRepeats = 5;
constexpr int kMaxRepeats = 10000;
// Beyond the last-level cache of most machines.
constexpr size_t kRotatedBytes = size_t{128} << 20;
constexpr size_t kMaxCopies = 64;

std::vector<Call> copies_of(const Call& call) {
    size_t bytes = 1;
    for (const auto& [name, tensor] : call.memory) bytes += tensor.bytes().size();
    std::vector<Call> copies;
    for (size_t i = 1; i < std::min(kMaxCopies, kRotatedBytes / bytes + 1); ++i) copies.push_back(copy_of(call));
    return copies;
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

Timing time_call(const Plan& plan, const Call& call, double seconds) {
    using Clock = std::chrono::steady_clock;
    const std::vector<Call> copies = copies_of(call);
    Workspace workspace;
    launch(plan, call, workspace);

    std::vector<double> times;
    const auto begin = Clock::now();
    const auto elapsed = [](Clock::time_point since) {
        return std::chrono::duration<double>(Clock::now() - since).count();
    };
    for (int i = 0; i < kMaxRepeats && (i < kMinRepeats || elapsed(begin) < seconds); ++i) {
        const size_t turn = static_cast<size_t>(i) % (copies.size() + 1);
        const auto start = Clock::now();
        launch(plan, turn == 0 ? call : copies[turn - 1], workspace);
        times.push_back(elapsed(start));
    }
    std::sort(times.begin(), times.end());
    return {quantile(times, 0.5), quantile(times, 0.1), quantile(times, 0.9), static_cast<int>(times.size())};
}

double quantile(const std::vector<double>& sorted, double share) {
    const double position = share * static_cast<double>(sorted.size() - 1);
    const auto below = static_cast<size_t>(position);
    const size_t above = std::min(below + 1, sorted.size() - 1);
    return sorted[below] + (position - std::floor(position)) * (sorted[above] - sorted[below]);
}

}  // namespace tilewise::cli
