// The CPU backend beside an unfused attention on OpenBLAS (peer_attention.hpp): batch 1, heads x seqlen, head_dim 64
// and 128, fp32 and bf16, forward and backward, causal and not. Both sides run in this process on the same number of
// threads, in alternating passes; each cell shows medians with the 10th and 90th percentile of the passes, and their
// ratio (above 1: Tilewise is faster).
//
//   FLOP forward = 2 h pairs (d + d), backward = 2 h pairs (3 d + 2 d), pairs = s^2, or s (s + 1) / 2 if causal
//
// counted alike for both, although the peer computes all s^2 pairs. Results are compared; a difference beyond rounding
// ends in exit code 1.
#include <cblas.h>
#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "peer_attention.hpp"
#include "tilewise/tilewise.hpp"

namespace {

struct Settings {
    int64_t heads = 8, seqlen = 2048;
    int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
    int passes = 9;
    std::string out;     // folder for cpu.csv and cpu.json
    std::string kernel;  // pins a kernel
};

struct Cell {
    int64_t dim = 0;
    bool bf16 = false, backward = false, causal = false;
};

struct Times {
    double median = 0, p10 = 0, p90 = 0;
};

struct Result {
    Cell cell;
    std::string kernel;
    Times ours, peer;
    double gflop = 0, error = 0, tolerance = 0;
    double ratio() const { return peer.median / ours.median; }
    bool right() const { return error <= tolerance; }
};

// A (seqlen, heads, dim) tensor of fp32 or bf16.
class Buffer {
public:
    Buffer(int64_t elements, bool bf16) : bf16_(bf16), bytes_(static_cast<size_t>(elements) * (bf16 ? 2 : 4)) {}
    void fill_normal(uint64_t seed) {
        std::mt19937_64 engine(seed);
        std::normal_distribution<float> normal;
        for (int64_t i = 0; i < size(); ++i) set(i, normal(engine));
    }
    int64_t size() const { return static_cast<int64_t>(bytes_.size()) / (bf16_ ? 2 : 4); }
    void* data() { return bytes_.data(); }
    double at(int64_t i) const {
        if (bf16_)
            return static_cast<double>(
                std::bit_cast<float>(uint32_t{reinterpret_cast<const uint16_t*>(bytes_.data())[i]} << 16));
        return static_cast<double>(reinterpret_cast<const float*>(bytes_.data())[i]);
    }

private:
    void set(int64_t i, float value) {
        if (bf16_) {
            reinterpret_cast<uint16_t*>(bytes_.data())[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
        } else {
            reinterpret_cast<float*>(bytes_.data())[i] = value;
        }
    }
    bool bf16_;
    std::vector<unsigned char> bytes_;
};

// Inputs shared by both sides and the outputs of one.
struct Outputs {
    Outputs(const Settings& s, const Cell& c)
        : o(s.seqlen * s.heads * c.dim, c.bf16),
          grad_q(o),
          grad_k(o),
          grad_v(o),
          lse(static_cast<size_t>(s.heads * s.seqlen)) {}
    Buffer o, grad_q, grad_k, grad_v;
    std::vector<float> lse;
};

// Largest difference of two tensors, relative to the largest value.
double difference(const Buffer& a, const Buffer& b) {
    double largest = 0, value = 1e-6;
    for (int64_t i = 0; i < a.size(); ++i) {
        const double error = std::abs(a.at(i) - b.at(i));
        if (!(error <= largest)) largest = std::isnan(error) ? HUGE_VAL : error;
        value = std::max(value, std::abs(b.at(i)));
    }
    return largest / value;
}

Times times_of(std::vector<double> seconds) {
    std::sort(seconds.begin(), seconds.end());
    const auto at = [&](double q) {
        return seconds[static_cast<size_t>(q * static_cast<double>(seconds.size() - 1) + 0.5)];
    };
    return {at(0.5), at(0.1), at(0.9)};
}

template <class Body> double seconds_of(Body&& body) {
    const auto start = std::chrono::steady_clock::now();
    body();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

tilewise::Attention call_of(const Settings& s, const Cell& c, const peer::Tensors& t) {
    const tilewise::DType dtype = c.bf16 ? tilewise::DType::kBF16 : tilewise::DType::kF32;
    const auto tensor = [&](const void* data) { return tilewise::Tensor(data, dtype, {1, s.seqlen, s.heads, c.dim}); };
    tilewise::Attention call;
    call.q = tensor(t.q);
    call.k = tensor(t.k);
    call.v = tensor(t.v);
    call.o = tensor(t.o);
    call.lse = tilewise::Tensor(t.lse, {1, s.heads, s.seqlen});
    call.mask.causal = c.causal;
    call.options.num_threads = s.threads;
    call.options.kernel = s.kernel;
    if (c.backward)
        call.gradients = {.grad_o = tensor(t.grad_o),
                          .grad_q = tensor(t.grad_q),
                          .grad_k = tensor(t.grad_k),
                          .grad_v = tensor(t.grad_v)};
    return call;
}

Result run_cell(const Settings& s, const Cell& c, const tilewise::Device& device) {
    const int64_t elements = s.seqlen * s.heads * c.dim;
    Buffer q(elements, c.bf16), k(q), v(q), grad_o(q);
    uint64_t seed = 1;
    for (Buffer* input : {&q, &k, &v, &grad_o}) input->fill_normal(seed++);
    Outputs ours(s, c), theirs(s, c);
    const auto tensors = [&](Outputs& out) {
        return peer::Tensors{q.data(),      k.data(),          v.data(),          out.o.data(),     out.lse.data(),
                             grad_o.data(), out.grad_q.data(), out.grad_k.data(), out.grad_v.data()};
    };
    peer::Attention unfused({s.heads, s.seqlen, c.dim, c.causal, c.bf16, s.threads});
    const peer::Tensors peer_tensors = tensors(theirs);
    unfused.forward(peer_tensors);  // o and lse of a backward

    const tilewise::Op op = c.backward ? tilewise::Op::kBackward : tilewise::Op::kForward;
    const tilewise::Attention call = call_of(s, c, tensors(ours));
    const tilewise::Plan plan(device, op, call);
    tilewise::Workspace workspace;
    if (c.backward) {
        ours.o = theirs.o;
        ours.lse = theirs.lse;
    }
    const auto run_ours = [&] { plan.launch(call_of(s, c, tensors(ours)), workspace); };
    const auto run_peer = [&] { c.backward ? unfused.backward(peer_tensors) : unfused.forward(peer_tensors); };
    run_ours();
    run_peer();

    Result result;
    result.cell = c;
    result.kernel = plan.kernel();
    const double pairs = c.causal ? 0.5 * static_cast<double>(s.seqlen) * static_cast<double>(s.seqlen + 1)
                                  : static_cast<double>(s.seqlen) * static_cast<double>(s.seqlen);
    const double products = c.backward ? 5.0 : 2.0;
    result.gflop = 2e-9 * products * static_cast<double>(s.heads) * pairs * static_cast<double>(c.dim);
    result.tolerance = c.bf16 ? 2e-2 : 2e-5;
    if (c.backward) {
        result.error = std::max({difference(ours.grad_q, theirs.grad_q), difference(ours.grad_k, theirs.grad_k),
                                 difference(ours.grad_v, theirs.grad_v)});
    } else {
        result.error = difference(ours.o, theirs.o);
    }
    std::vector<double> our_seconds, peer_seconds;
    for (int pass = 0; pass < s.passes; ++pass) {
        our_seconds.push_back(seconds_of(run_ours));
        peer_seconds.push_back(seconds_of(run_peer));
    }
    result.ours = times_of(our_seconds);
    result.peer = times_of(peer_seconds);
    return result;
}

std::string name_of(const Cell& c) {
    return fmt::format("{} {:<4} d{:<3} {}", c.backward ? "backward" : "forward ", c.bf16 ? "bf16" : "fp32", c.dim,
                       c.causal ? "causal" : "full  ");
}

void print_row(const Result& r) {
    const auto times = [](const Times& t) {
        return fmt::format("{:8.2f} ({:7.2f} {:8.2f})", t.median * 1e3, t.p10 * 1e3, t.p90 * 1e3);
    };
    fmt::print("{}  {}  {:6.1f}  {}  {:6.1f}  {:5.2f}  {:.1e}{}\n", name_of(r.cell), times(r.ours),
               r.gflop / r.ours.median, times(r.peer), r.gflop / r.peer.median, r.ratio(), r.error,
               r.right() ? "" : "  WRONG");
    std::fflush(stdout);
}

std::string csv_of(const std::vector<Result>& results) {
    std::string text =
        "pass,dtype,head_dim,causal,kernel,ours_ms,ours_p10_ms,ours_p90_ms,ours_gflops,peer_ms,peer_p10_ms,peer_p90_ms,"
        "peer_gflops,ratio,error\n";
    for (const Result& r : results)
        text += fmt::format("{},{},{},{},{},{:.3f},{:.3f},{:.3f},{:.1f},{:.3f},{:.3f},{:.3f},{:.1f},{:.3f},{:.2e}\n",
                            r.cell.backward ? "backward" : "forward", r.cell.bf16 ? "bf16" : "fp32", r.cell.dim,
                            r.cell.causal ? 1 : 0, r.kernel, r.ours.median * 1e3, r.ours.p10 * 1e3, r.ours.p90 * 1e3,
                            r.gflop / r.ours.median, r.peer.median * 1e3, r.peer.p10 * 1e3, r.peer.p90 * 1e3,
                            r.gflop / r.peer.median, r.ratio(), r.error);
    return text;
}

std::string json_of(const Settings& s, const tilewise::Device& device, const std::vector<Result>& results) {
    std::string rows;
    for (const Result& r : results)
        rows += fmt::format(
            "{}\n    {{\"pass\": \"{}\", \"dtype\": \"{}\", \"head_dim\": {}, \"causal\": {}, \"kernel\": \"{}\", "
            "\"ours_ms\": {:.3f}, \"peer_ms\": {:.3f}, \"ratio\": {:.3f}, \"error\": {:.2e}}}",
            rows.empty() ? "" : ",", r.cell.backward ? "backward" : "forward", r.cell.bf16 ? "bf16" : "fp32",
            r.cell.dim, r.cell.causal, r.kernel, r.ours.median * 1e3, r.peer.median * 1e3, r.ratio(), r.error);
    return fmt::format(
        "{{\n  \"peer\": \"{}\",\n  \"threads\": {},\n  \"heads\": {},\n  \"seqlen\": {},\n  \"passes\": {},\n  "
        "\"device\": {},\n"
        "  \"cells\": [{}\n  ]\n}}\n",
        openblas_get_config(), s.threads, s.heads, s.seqlen, s.passes, device.json(), rows);
}

void write_results(const Settings& s, const tilewise::Device& device, const std::vector<Result>& results) {
    std::filesystem::create_directories(s.out);
    std::ofstream(s.out + "/cpu_peer.csv") << csv_of(results);
    std::ofstream(s.out + "/cpu_peer.json") << json_of(s, device, results);
    fmt::print("written: {0}/cpu_peer.csv, {0}/cpu_peer.json\n", s.out);
}

// These variables make OpenBLAS choose other kernels than the machine's best; it reads them when it is loaded, hence
// the new start.
void restart_without_openblas_settings(char** argv) {
    const char* settings[] = {"OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"};
    if (std::none_of(std::begin(settings), std::end(settings),
                     [](const char* name) { return std::getenv(name) != nullptr; }))
        return;
    for (const char* name : settings) unsetenv(name);
    fmt::print(stderr,
               "OPENBLAS_CORETYPE and OPENBLAS_L2_SIZE are unset for this run: the peer gets its best kernels\n");
    execv("/proc/self/exe", argv);
}

int run(const Settings& settings) {
    const tilewise::Device device("cpu");
    fmt::print("Tilewise {} beside {} ({}); batch 1, {} heads, {} rows, {} threads, {} passes\n", tilewise::version(),
               openblas_get_config(), openblas_get_corename(), settings.heads, settings.seqlen, settings.threads,
               settings.passes);
    fmt::print("{:<25}  {:<26}  {:>6}  {:<26}  {:>6}  {:>5}  {}\n", "", "Tilewise ms (p10, p90)", "GFLOPs",
               "OpenBLAS ms (p10, p90)", "GFLOPs", "ratio", "difference");
    std::vector<Result> results;
    for (const bool backward : {false, true})
        for (const int64_t dim : {64, 128})
            for (const bool bf16 : {false, true})
                for (const bool causal : {false, true}) {
                    results.push_back(run_cell(settings, {dim, bf16, backward, causal}, device));
                    print_row(results.back());
                }
    if (!settings.out.empty()) write_results(settings, device, results);
    const bool right = std::all_of(results.begin(), results.end(), [](const Result& r) { return r.right(); });
    if (!right) fmt::print(stderr, "results differ by more than rounding\n");
    return right ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    restart_without_openblas_settings(argv);
    Settings settings;
    CLI::App app("Times the CPU backend beside an unfused attention on OpenBLAS.");
    app.add_option("--threads", settings.threads, "threads of both sides")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--heads", settings.heads)->check(CLI::PositiveNumber)->capture_default_str();
    app.add_option("--seqlen", settings.seqlen)->check(CLI::PositiveNumber)->capture_default_str();
    app.add_option("--passes", settings.passes, "timed passes of each side and cell")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--kernel", settings.kernel, "the kernel to use instead of the planned one");
    app.add_option("--out", settings.out,
                   "folder to write cpu_peer.csv and cpu_peer.json to, for example bench/results/cpu");
    CLI11_PARSE(app, argc, argv);
    try {
        return run(settings);
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        return 2;
    }
}
