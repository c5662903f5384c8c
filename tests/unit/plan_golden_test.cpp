// The text of plans for every recorded device, compared with golden/<registry>/<device>.txt: any change of a choice, a tile, a workspace or a
// reason shows as a difference to be read and committed. `fake` holds invented kernels (the planner alone), `build` those of a build for the CPU,
// `build_cuda` those of one for GPUs too.
//
//   plan_golden_test --regenerate-golden    rewrites the files
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "fake_kernels.hpp"

namespace tilewise {
namespace {

bool g_regenerate = false;

struct NamedProblem {
    const char* name;
    Problem problem;
};

// q, k, v, o, lse of `batch` sequences.
struct AttentionShape {
    int64_t batch, seqlen_q, seqlen_k, num_heads_q, num_heads_kv, head_dim;
};
Problem forward_of(DType dtype, const AttentionShape& s) {
    Problem p;
    p[Arg::kQ] = p[Arg::kO] = contiguous(dtype, {s.batch, s.seqlen_q, s.num_heads_q, s.head_dim});
    p[Arg::kK] = p[Arg::kV] = contiguous(dtype, {s.batch, s.seqlen_k, s.num_heads_kv, s.head_dim});
    p[Arg::kLse] = contiguous(DType::kF32, {s.batch, s.num_heads_q, s.seqlen_q});
    return p;
}

Problem prefill() {
    Problem p = forward_of(DType::kBF16, {1, 4096, 4096, 32, 8, 128});
    p.mask.window_right = 0;
    return p;
}

Problem training() {
    Problem p = forward_of(DType::kF16, {4, 1024, 1024, 16, 16, 64});
    p.op = Op::kBackward;
    p[Arg::kGradO] = p[Arg::kGradQ] = p[Arg::kQ];
    p[Arg::kGradK] = p[Arg::kGradV] = p[Arg::kK];
    p.mask.window_left = 255;
    p.mask.window_right = 0;
    p.score.softcap = 30.0f;
    p.score.dropout_p = 0.1f;
    p.score.dropout_seed = 1;
    return p;
}

Problem paged_decode() {
    Problem p = forward_of(DType::kBF16, {8, 1, 1, 32, 8, 128});
    p.op = Op::kDecode;
    p.mask.window_right = 0;
    p[Arg::kK] = p[Arg::kV] = contiguous(DType::kBF16, {2048, 64, 8, 128});
    p[Arg::kPageTable] = contiguous(DType::kI32, {8, 256});
    p[Arg::kCacheSeqlens] = contiguous(DType::kI32, {8});
    p[Arg::kKNew] = p[Arg::kVNew] = contiguous(DType::kBF16, {8, 1, 8, 128});
    p[Arg::kRotaryCos] = p[Arg::kRotarySin] = contiguous(DType::kF32, {16384, 64});
    return p;
}

Problem ragged_wide_values() {
    Problem p;
    p[Arg::kQ] = contiguous(DType::kF32, {3000, 12, 80});
    p[Arg::kK] = contiguous(DType::kF32, {5000, 4, 80});
    p[Arg::kV] = contiguous(DType::kF32, {5000, 4, 320});
    p[Arg::kO] = contiguous(DType::kF32, {3000, 12, 320});
    p[Arg::kCuSeqlensQ] = p[Arg::kCuSeqlensK] = contiguous(DType::kI32, {17});
    p.exec.max_seqlen_q = 400;
    p.exec.max_seqlen_k = 700;
    return p;
}

Problem strided_doubles() {
    Problem p = forward_of(DType::kF64, {2, 33, 65, 3, 1, 24});
    p[Arg::kK].stride = {65 * 24 * 2, 24 * 2, 24 * 2, 2};
    return p;
}

Problem combine_of_parts() {
    Problem p;
    p.op = Op::kCombine;
    p[Arg::kPartialO] = contiguous(DType::kF32, {6, 2, 512, 8, 128});
    p[Arg::kPartialLse] = contiguous(DType::kF32, {6, 2, 8, 512});
    p[Arg::kO] = contiguous(DType::kF32, {2, 512, 8, 128});
    return p;
}

std::vector<NamedProblem> golden_problems() {
    return {{"prefill", prefill()},
            {"training", training()},
            {"paged decode", paged_decode()},
            {"ragged, wide values", ragged_wide_values()},
            {"strided doubles", strided_doubles()},
            {"combine", combine_of_parts()}};
}

std::string text_for(const DeviceInfo& device, const Registry& registry) {
    std::string text;
    for (const NamedProblem& named : golden_problems()) {
        Plan plan;
        const Status status = make_plan(named.problem, device, registry, &plan);
        text += fmt::format("=== {}\n{}", named.name, to_text(plan));
        if (!status.ok()) text += fmt::format("message: {}\n", status.message());
        text += "\n";
    }
    return text;
}

std::string contents_of(const std::filesystem::path& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

// First line in which two texts differ, for a message that is short.
std::string first_difference(const std::string& expected, const std::string& actual) {
    std::istringstream a(expected), b(actual);
    std::string line_a, line_b;
    for (int line = 1;; ++line) {
        const bool has_a = static_cast<bool>(std::getline(a, line_a)),
                   has_b = static_cast<bool>(std::getline(b, line_b));
        if (!has_a && !has_b) return "the end of the file";
        if (has_a != has_b || line_a != line_b)
            return fmt::format("line {}:\n  golden: {}\n  now:    {}", line, has_a ? line_a : "(end)",
                               has_b ? line_b : "(end)");
    }
}

void check_golden(const std::string& folder, const Registry& registry) {
    for (const RecordedDevice& device : recorded_devices()) {
        const auto path = std::filesystem::path(TILEWISE_GOLDEN_DIR) / folder / fmt::format("{}.txt", device.key);
        const std::string actual = text_for(device.info, registry);
        if (g_regenerate) {
            std::filesystem::create_directories(path.parent_path());
            std::ofstream(path) << actual;
            continue;
        }
        const std::string expected = contents_of(path);
        EXPECT_TRUE(expected == actual)
            << path.string() << " differs at " << first_difference(expected, actual)
            << "\nIf the new plan is meant, run plan_golden_test --regenerate-golden and read the difference.";
    }
}

TEST(PlanGolden, FakeKernels) { check_golden("fake", fake::registry()); }
TEST(PlanGolden, KernelsOfThisBuild) {
    const auto rows = default_registry().rows();
    const bool has_cuda =
        std::any_of(rows.begin(), rows.end(), [](const KernelRow& row) { return row.device == DeviceKind::kCuda; });
    check_golden(has_cuda ? "build_cuda" : "build", default_registry());
}

}  // namespace
}  // namespace tilewise

int main(int argc, char** argv) {
    testing::InitGoogleTest(&argc, argv);
    for (int i = 1; i < argc; ++i) {
        if (std::string_view(argv[i]) == "--regenerate-golden") {
            tilewise::g_regenerate = true;
            continue;
        }
        std::cerr << "unknown argument " << argv[i] << "; allowed is --regenerate-golden\n";
        return 2;
    }
    return RUN_ALL_TESTS();
}
