// The child loads the library and prints JSON into the pipe; the parent waits for it at most kTimeoutMilliseconds.
#include "cuda_driver.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

namespace tilewise::cli {
namespace {

using Json = nlohmann::json;

// Starting the driver on a machine with many GPUs takes up to a few seconds.
constexpr int kTimeoutMilliseconds = 10000;
// Of the driver interface, which never changes them.
constexpr int kMajorAttribute = 75;
constexpr int kMinorAttribute = 76;

// The calls of the driver library that are needed, as its documentation declares them; a device is an int, a status too.
struct DriverCalls {
    int (*init)(unsigned);
    int (*driver_version)(int*);
    int (*device_count)(int*);
    int (*device_get)(int*, int);
    int (*device_name)(char*, int, int);
    int (*device_attribute)(int*, int, int);
    int (*device_memory)(size_t*, int);
};

template <class Function> bool find(void* library, const char* name, Function*& function) {
    void* symbol = ::dlsym(library, name);
    static_assert(sizeof(symbol) == sizeof(function));
    std::memcpy(&function, &symbol, sizeof(symbol));
    return symbol != nullptr;
}

bool find_all(void* library, DriverCalls& calls) {
    return find(library, "cuInit", calls.init) && find(library, "cuDriverGetVersion", calls.driver_version) &&
           find(library, "cuDeviceGetCount", calls.device_count) && find(library, "cuDeviceGet", calls.device_get) &&
           find(library, "cuDeviceGetName", calls.device_name) &&
           find(library, "cuDeviceGetAttribute", calls.device_attribute) &&
           find(library, "cuDeviceTotalMem_v2", calls.device_memory);
}

Json describe_gpu(const DriverCalls& calls, int index) {
    int device = 0, major = 0, minor = 0;
    size_t memory = 0;
    std::array<char, 256> name{};
    calls.device_get(&device, index);
    calls.device_name(name.data(), static_cast<int>(name.size()) - 1, device);
    calls.device_attribute(&major, kMajorAttribute, device);
    calls.device_attribute(&minor, kMinorAttribute, device);
    calls.device_memory(&memory, device);
    return {{"name", std::string(name.data())},
            {"compute_capability", 10 * major + minor},
            {"memory_gib", static_cast<double>(memory) / (1 << 30)}};
}

Json ask_in_this_process(const std::string& library) {
    Json answer{{"found", false}, {"gpus", Json::array()}};
    void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        const char* error = ::dlerror();
        answer["load_error"] = error != nullptr ? error : "unknown";
        return answer;
    }
    DriverCalls calls{};
    if (!find_all(handle, calls)) {
        answer["load_error"] = library + " lacks a function of the driver interface";
        return answer;
    }
    answer["found"] = true;
    int version = 0, count = 0;
    calls.driver_version(&version);
    answer["cuda_version"] = version;
    const int init = calls.init(0);
    answer["init_error"] = init;
    if (init != 0) return answer;
    calls.device_count(&count);
    for (int index = 0; index < count; ++index) answer["gpus"].push_back(describe_gpu(calls, index));
    return answer;
}

void write_all(int pipe, const std::string& text) {
    for (size_t at = 0; at < text.size();) {
        const ssize_t written = ::write(pipe, text.data() + at, text.size() - at);
        if (written <= 0) return;
        at += static_cast<size_t>(written);
    }
}

// Everything that arrives before the pipe is closed or the time is over.
std::string read_until_closed(int pipe) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kTimeoutMilliseconds);
    std::string text;
    while (true) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
        pollfd wait{pipe, POLLIN, 0};
        const int ready = left.count() > 0 ? ::poll(&wait, 1, static_cast<int>(left.count())) : 0;
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) return text;
        std::array<char, 4096> part{};
        const ssize_t got = ::read(pipe, part.data(), part.size());
        if (got <= 0) return text;
        text.append(part.data(), static_cast<size_t>(got));
    }
}

// A process that hangs inside the driver may not even die of SIGKILL; it is then left to init.
void end_child(pid_t child) {
    constexpr int kTries = 20;
    ::kill(child, SIGKILL);
    for (int i = 0; i < kTries && ::waitpid(child, nullptr, WNOHANG) == 0; ++i) ::usleep(5000);
}

DriverReport parsed(const std::string& text) {
    DriverReport report;
    const Json json = Json::parse(text, nullptr, false);
    if (json.is_discarded()) {
        report.failure = text.empty() ? "it crashed or did not answer in time" : "its answer was cut off";
        return report;
    }
    report.found = json.value("found", false);
    report.load_error = json.value("load_error", "");
    report.cuda_version = json.value("cuda_version", 0);
    report.init_error = json.value("init_error", 0);
    for (const Json& gpu : json.at("gpus")) {
        report.gpus.push_back({gpu.at("name"), gpu.at("compute_capability"), gpu.at("memory_gib")});
    }
    return report;
}

}  // namespace

DriverReport ask_cuda_driver(const std::string& library) {
    std::array<int, 2> pipe{};
    DriverReport report;
    if (::pipe(pipe.data()) != 0) {
        report.failure = fmt::format("no pipe: {}", std::strerror(errno));
        return report;
    }
    const pid_t child = ::fork();
    if (child == 0) {
        ::close(pipe[0]);
        const Json answer = ask_in_this_process(library);
        write_all(pipe[1], answer.dump(-1, ' ', false, Json::error_handler_t::replace));
        ::_exit(0);
    }
    ::close(pipe[1]);
    if (child < 0) {
        report.failure = fmt::format("no child process: {}", std::strerror(errno));
    } else {
        report = parsed(read_until_closed(pipe[0]));
        end_child(child);
    }
    ::close(pipe[0]);
    return report;
}

}  // namespace tilewise::cli
