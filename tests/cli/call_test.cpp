// Calls made up from flags: computed in parts they give what they give whole, and the comparison with the oracle sees both right
// results, however little of them it looks at, and a wrong element.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "error.hpp"
#include "grid.hpp"
#include "oracle.hpp"
#include "slots.hpp"
#include "synthetic.hpp"
#include "timing.hpp"

namespace tilewise::cli {
namespace {

// The flags of `tilewise plan`, read as a grid file's values are.
ProblemFlags flags_of(const std::string& toml) { return parse_grid("test", "[[grid]]\n" + toml).at(0).flags; }

constexpr const char* kProblems[] = {
    "batch=3\nseqlen-q=65\nseqlen-k=90\nheads=6\nheads-kv=3\nhead-dim=16\nhead-dim-v=24\ncausal=true\nalibi='bh'\nbias="
    "'bhqk'\nsink=true",
    "batch=2\nseqlen-q=70\nheads=4\nhead-dim=20\nlayout='bhsd'\ndtype='bf16'\nbool-mask='b1qk'\nbias='1h1k'\nalibi='h'"
    "\nwindow='30,4'",
    "ragged='33,0,50'\nragged-k='40,7,66'\nheads=4\nheads-kv=2\nhead-dim=32\nsoftcap=20.0\nsink=true\ntop-left="
    "true\ncausal=true",
    "batch=2\nseqlen-q=5\nseqlen-k=75\nheads=4\nheads-kv=2\nhead-dim=32\npage-size=16\nleftpad=3\ncausal=true\nprefix="
    "4",
};

void run(const Call& call) {
    const Device cpu("cpu");
    prepare(cpu, call);
    Workspace workspace;
    launch(plan_of(cpu, call), call, workspace);
}

TEST(Parts, give_what_the_whole_gives) {
    const Device cpu("cpu");
    for (const char* problem : kProblems) {
        const Call whole = make_call(flags_of(problem), Contents::kRandom);
        run(whole);
        for (const int64_t count : {2, 4, 100}) {
            const Call cut = copy_of(make_call(flags_of(problem), Contents::kRandom));
            const std::vector<Part> parts = parts_of(cut.attention, count);
            EXPECT_GT(parts.size(), 1U);
            EXPECT_LE(parts.size(), static_cast<size_t>(count));
            for (const Part& part : parts) forward(cpu, part_of(cut.attention, part));
            EXPECT_LE(worst_error(cut.attention.o, whole.attention.o, DType::kF32), 1.0) << problem;
            EXPECT_LE(worst_error(cut.attention.lse, whole.attention.lse, DType::kF32), 1.0) << problem;
        }
    }
}

TEST(Parts, dropout_stays_whole) {
    const Call call = make_call(flags_of("batch=4\nseqlen-q=8\ndropout=0.5"), Contents::kNone);
    EXPECT_EQ(parts_of(call.attention, 100).size(), 1U);
}

TEST(Oracle, agrees_however_little_it_sees) {
    const Device cpu("cpu");
    for (const std::string problem : kProblems) {
        for (const char* op : {"forward", "backward"}) {
            const bool paged = problem.find("page-size") != std::string::npos;
            if (paged && std::string(op) == "backward") continue;  // backward takes no page table
            const Call call = make_call(flags_of(problem + "\nop='" + op + "'"), Contents::kRandom);
            run(call);
            for (const double flops : {1e12, 2e5, 1.0}) {
                const OracleCheck check = check_with_oracle(call, flops);
                EXPECT_TRUE(!check.done || check.passed()) << problem << op << flops << check.where << check.worst;
                // What cannot be cut is left out, and said so.
                EXPECT_TRUE(check.done || (flops < 1e12 && check.what.find("too large") == 0)) << check.what;
            }
        }
    }
}

TEST(Oracle, looks_at_the_edge_of_large_calls) {
    const Call call = make_call(flags_of("seqlen-q=80\nseqlen-k=120\nhead-dim=16\nheads=2\nop='backward'\ncausal=true"),
                                Contents::kRandom);
    run(call);
    const OracleCheck check = check_with_oracle(call, 1.0);
    EXPECT_TRUE(check.passed());
    EXPECT_EQ(check.what, "last 32 rows and 32 keys");
    // An element outside of what was looked at goes unseen; the last key's gradient does not.
    Call wrong = copy_of(call);
    wrong.memory.at("grad_v").as<float>()[0] += 1;
    EXPECT_TRUE(check_with_oracle(wrong, 1.0).passed());
    EXPECT_FALSE(check_with_oracle(wrong, 1e12).passed());
    wrong.memory.at("grad_v").as<float>()[size_t{119} * 2 * 16] += 1;
    const OracleCheck seen = check_with_oracle(wrong, 1.0);
    EXPECT_FALSE(seen.passed());
    EXPECT_EQ(seen.where, "grad_v");
}

TEST(Oracle, is_patient_before_it_leaves_gradients_out) {
    // Without a mask every query counts in every key's gradient: 0.4 MFLOP for the head, or the rows alone.
    const Call call = make_call(flags_of("seqlen-q=40\nhead-dim=16\nheads=2\nop='backward'"), Contents::kRandom);
    run(call);
    EXPECT_EQ(check_with_oracle(call, 1e5).what, "first head");
    EXPECT_EQ(check_with_oracle(call, 1e4).what, "last 32 rows, grad_q only");
}

TEST(Oracle, sees_elements_that_nobody_wrote) {
    const Call call = make_call(flags_of("seqlen-q=20\nhead-dim=16\nheads=2"), Contents::kRandom);
    run(call);
    Call wrong = copy_of(call);
    wrong.memory.at("o").as<float>()[37] = std::nanf("");
    EXPECT_TRUE(std::isinf(check_with_oracle(wrong, 1e12).worst));
}

TEST(Oracle, decodes_again) {
    const Call call = make_call(flags_of("op='decode'\nbatch=2\nseqlen-k=50\nnew-tokens=3\nrotary-dim=16\nhead-dim="
                                         "32\npage-size=8\ncausal=true\ndtype='f16'"),
                                Contents::kRandom);
    run(call);
    const OracleCheck check = check_with_oracle(call, 1e12);
    EXPECT_TRUE(check.passed()) << check.where << check.worst;
}

// On every device of this machine: moved there, run there, and brought back, a call's outputs are the oracle's.
TEST(DeviceCalls, run_where_they_are_moved) {
    for (const std::string& name : devices()) {
        const Device device(name);
        for (const char* op : {"forward", "backward", "decode"}) {
            const Call host = make_call(flags_of("seqlen-q=70\nheads=4\nheads-kv=2\nhead-dim=32\ncausal=true\nlayout="
                                                 "'bhsd'\ndtype='bf16'\nop='" +
                                                 std::string(op) + "'"),
                                        Contents::kRandom);
            const DeviceCall first(device, host);
            EXPECT_GT(first.bytes(), 0);
            prepare(device, first.call());
            const DeviceCall second = first.clone();
            const Plan plan = plan_of(device, second.call());
            Workspace workspace(device);
            launch(plan, second.call(), workspace);
            first.fetch();
            EXPECT_FALSE(check_with_oracle(host, 1e12).passed()) << "the clone ran, not the first";
            second.fetch();
            const OracleCheck check = check_with_oracle(host, 1e12);
            EXPECT_TRUE(check.passed()) << name << " " << op << " " << check.where << check.worst;
        }
    }
}

TEST(Timing, is_taken_on_every_device) {
    for (const std::string& name : devices()) {
        const Device device(name);
        const Call host = make_call(flags_of("seqlen-q=64\nheads=2\nhead-dim=64\ndtype='f16'"), Contents::kRandom);
        const DeviceCall call(device, host);
        const Timing timing = time_call(device, plan_of(device, call.call()), call, 0.01);
        EXPECT_GE(timing.repeats, 5);
        EXPECT_GT(timing.median, 0);
        EXPECT_LE(timing.p10, timing.median);
        EXPECT_LE(timing.median, timing.p90);
        EXPECT_LT(timing.median, 1);
        call.fetch();
        EXPECT_TRUE(check_with_oracle(host, 1e12).passed()) << name;
    }
}

TEST(Calls, are_the_same_for_the_same_seed) {
    const ProblemFlags flags = flags_of("seqlen-q=9\nheads=2\nhead-dim=8");
    const Call a = make_call(flags, Contents::kRandom, 5), b = make_call(flags, Contents::kRandom, 5),
               c = make_call(flags, Contents::kRandom, 6);
    const auto same = [](const Call& x, const Call& y) {
        return std::memcmp(x.memory.at("q").bytes().data(), y.memory.at("q").bytes().data(),
                           x.memory.at("q").bytes().size()) == 0;
    };
    EXPECT_TRUE(same(a, b));
    EXPECT_FALSE(same(a, c));
}

TEST(Calls, sizes_that_overflow_are_refused) {
    EXPECT_THROW(
        make_call(flags_of("batch=1000000\nseqlen-q=1000000000\nheads=100000\nhead-dim=1000"), Contents::kNone),
        Failure);
    EXPECT_THROW(make_call(flags_of("batch=-1"), Contents::kNone), UsageError);
    EXPECT_THROW(make_call(flags_of("seqlen-k=-5"), Contents::kNone), UsageError);
}

}  // namespace
}  // namespace tilewise::cli
