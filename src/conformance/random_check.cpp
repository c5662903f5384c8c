// Runs the problem of a seed and judges it: a well-formed one must be computed right, an ill-formed one must be refused with a message that names an
// argument and with no memory changed.
#include <fmt/format.h>

#include "conformance/combine_case.hpp"
#include "conformance/compare.hpp"
#include "conformance/corruption.hpp"
#include "conformance/element.hpp"
#include "conformance/random_problem.hpp"
#include "conformance/tolerance.hpp"

namespace tilewise::conformance {

namespace {

using Kind = RandomVerdict::Kind;

std::string described(uint64_t seed, const RandomProblem& problem) {
    return fmt::format("seed {}: {} {}{}{}", seed, name_of(problem.dtype), to_string(problem.spec),
                       problem.kernel.empty() ? "" : " on ", problem.kernel);
}

RandomVerdict wrong(uint64_t seed, const RandomProblem& problem, const std::string& fault) {
    return {Kind::kWrong, fault + "\n  " + described(seed, problem)};
}

bool names_an_argument(const std::string& message) {
    return is_argument_name(message.substr(0, message.find_first_of(":[ ")));
}

RandomVerdict check_well_formed(const Device& device, uint64_t seed, const RandomProblem& problem, Instance& instance) {
    const Expectation expectation = evaluate(instance);
    const Outcome outcome = run_kernel(device, instance, problem.kernel);
    if (outcome.status == Status::kUnsupported && outcome.damage.empty()) return {Kind::kRefused, outcome.message};
    if (!outcome.ok()) return wrong(seed, problem, "refused: " + outcome.message);
    // The oracle itself is held against the tests' own computation.
    const bool judged_by_oracle = problem.dtype != DType::kF64 && problem.spec.op != Op::kAppend;
    if (!judged_by_oracle) {
        const Verdict verdict = compare(instance, expectation, outcome, nullptr, kRandomSlack);
        return verdict.ok() ? RandomVerdict{} : wrong(seed, problem, verdict.fault);
    }
    const Outcome oracle = run_oracle(instance);
    if (!oracle.ok()) return wrong(seed, problem, "the oracle refused: " + oracle.message);
    const Verdict verdict = compare(instance, expectation, outcome, &oracle, kRandomSlack);
    return verdict.ok() ? RandomVerdict{} : wrong(seed, problem, verdict.fault);
}

RandomVerdict check_ill_formed(const Device& device, uint64_t seed, const RandomProblem& problem, Instance& instance) {
    Random random(seed ^ 0x5eed);
    Corruption corruption;
    // Integers in a GPU's memory are not checked before a launch.
    const bool reads_values = device.is_host();
    for (int attempt = 0; reads_values && attempt < 20 && corruption.names.empty() && random.chance(0.8); ++attempt)
        corruption = corrupt_values(instance, random);
    const CallEdit edit = [&](Attention& attention) {
        while (corruption.names.empty()) corruption = corrupt_call(instance, attention, random);
    };
    const Outcome outcome = run_kernel(device, instance, problem.kernel, edit);
    const std::string subject = "a call with " + corruption.what;
    if (outcome.ok()) return wrong(seed, problem, subject + " was not refused");
    if (!outcome.damage.empty()) return wrong(seed, problem, subject + " was refused, but " + outcome.damage);
    // A GPU's kernel may be unable to serve the call before its pointers are looked at.
    if (!device.is_host() && outcome.status == Status::kUnsupported) return {Kind::kRefused, outcome.message};
    if (outcome.status != Status::kInvalidArgument)
        return wrong(seed, problem,
                     fmt::format("{} got status {}: {}", subject, static_cast<int>(outcome.status), outcome.message));
    for (const auto& [slot, output] : outcome.outputs)
        for (size_t i = 0; i < output.unwritten.size(); ++i)
            if (instance.at(slot).access == Access::kOut && output.unwritten[i] == 0)
                return wrong(seed, problem, fmt::format("{} was refused, but {} was written", subject, name_of(slot)));
    bool named = names_an_argument(outcome.message);
    bool expected = false;
    for (const std::string& name : corruption.names)
        expected = expected || outcome.message.find(name) != std::string::npos;
    if (!named || !expected)
        return wrong(seed, problem, fmt::format("{} was refused with \"{}\"", subject, outcome.message));
    return {Kind::kRefused, outcome.message};
}

RandomVerdict check_combine(const Device& device, uint64_t seed) {
    Random random(seed);
    const DType dtype = random.pick({DType::kF32, DType::kF16, DType::kBF16});
    CombineCase c;
    c.seed = random.bits();
    c.sizes.splits = random.between(0, 7);
    c.sizes.batch = random.between(0, 3);
    c.sizes.rows = random.between(0, 20);
    c.sizes.heads = random.between(1, 4);
    c.sizes.dim = random.between(1, 70);
    c.ragged = random.chance(0.4);
    c.empty_parts = random.uniform();
    c.lse_scale = random.pick({1.0, 10.0, 1e4});
    c.output = random.pick({DType::kF32, DType::kF16, DType::kBF16});
    c.layout = random.pick({Layout::kContiguous, Layout::kPaddedRows, Layout::kStridedDim, Layout::kUnaligned});
    c.lse = random.chance(0.8);
    const CombineVerdict verdict = run_combine_case(device, c, dtype, {});
    if (verdict.fault.empty()) return {};
    return {Kind::kWrong,
            fmt::format("{}\n  seed {}: {} combine splits {} b{} rows {} h{} d{}", verdict.fault, seed, name_of(dtype),
                        c.sizes.splits, c.sizes.batch, c.sizes.rows, c.sizes.heads, c.sizes.dim)};
}

}  // namespace

RandomVerdict check_random_problem(const Device& device, uint64_t seed) {
    if (seed % 50 == 0) return check_combine(device, seed);
    const RandomProblem problem = random_problem(seed, device.is_host() ? "cpu" : "cuda");
    Instance instance = make_instance(problem.spec, problem.dtype);
    return problem.ill_formed ? check_ill_formed(device, seed, problem, instance)
                              : check_well_formed(device, seed, problem, instance);
}

}  // namespace tilewise::conformance
