// Walks cases x element types x kernels. The expensive parts, an instance, its exact answers and the oracle's, are made once for all kernels
// of an element type.
#include "conformance/verify.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>

#include "conformance/case.hpp"
#include "conformance/combine_case.hpp"
#include "conformance/compare.hpp"
#include "conformance/element.hpp"
#include "conformance/kernels.hpp"

namespace tilewise::conformance {

namespace {

bool matches(std::string_view name, std::string_view patterns) {
    for (;;) {
        const size_t comma = patterns.find(',');
        const std::string_view one = patterns.substr(0, comma);
        if (one.starts_with('=') ? name == one.substr(1) : name.find(one) != std::string_view::npos) return true;
        if (comma == std::string_view::npos) return false;
        patterns.remove_prefix(comma + 1);
    }
}

// One problem and the kernels that face it.
struct Item {
    std::string name;
    ProblemSpec spec;
    const CombineCase* combine = nullptr;
    DType dtype = DType::kF32;
    std::vector<Kernel> kernels;
};

const char* op_of(Op op) {
    switch (op) {
    case Op::kBackward: return "backward";
    case Op::kAppend: return "append";
    case Op::kCombine: return "combine";
    default: return "forward";  // a decode ends in one
    }
}

std::vector<Kernel> kernels_for(const std::vector<Kernel>& all, const std::string& op, DType dtype) {
    std::vector<Kernel> serving;
    for (const Kernel& kernel : all)
        if (kernel.op == op && std::find(kernel.dtypes.begin(), kernel.dtypes.end(), dtype) != kernel.dtypes.end())
            serving.push_back(kernel);
    return serving;
}

class Sweep {
public:
    Sweep(const Filter& filter, const Progress& progress)
        : filter_(filter), progress_(progress), device_(filter.device) {
        const std::string kind = filter.device.substr(0, filter.device.find(':'));
        for (const Kernel& kernel : list_kernels())
            if (kernel.device == kind && matches(kernel.name, filter.kernel)) kernels_.push_back(kernel);
        add_items();
        for (const Item& item : items_) total_ += item.kernels.size();
    }

    std::vector<Result> run() {
        std::vector<std::vector<Result>> results(items_.size());
        std::atomic<size_t> next{0};
        const auto work = [&] {
            for (size_t i = next++; i < items_.size(); i = next++)
                results[i] = items_[i].combine != nullptr ? run_combine(items_[i]) : run_item(items_[i]);
        };
        std::vector<std::thread> helpers;
        for (unsigned i = 1; i < num_workers(); ++i) helpers.emplace_back(work);
        work();
        for (std::thread& helper : helpers) helper.join();
        std::vector<Result> all;
        for (std::vector<Result>& some : results) all.insert(all.end(), some.begin(), some.end());
        return all;
    }

private:
    // The CPU's kernels use every core themselves. A GPU would wait for the oracle, which is most of the work.
    unsigned num_workers() const { return device_.is_host() ? 1 : std::max(1u, std::thread::hardware_concurrency()); }

    void add_items() {
        for (const Case& c : all_cases()) {
            if (!matches(c.name, filter_.case_name)) continue;
            add_item({c.name, c.spec, nullptr, DType::kF32, {}});
            if (c.for_backward) add_item({c.name, backward_spec(c), nullptr, DType::kF32, {}});
        }
        for (const CombineCase& c : all_combine_cases()) {
            if (!matches(c.name, filter_.case_name)) continue;
            Item item{c.name, {}, &c, DType::kF32, {}};
            item.spec.op = Op::kCombine;
            add_item(item);
        }
    }

    void add_item(Item item) {
        for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64}) {
            if (item.combine != nullptr && dtype == DType::kF64) continue;  // partial outputs are never f64
            item.dtype = dtype;
            item.kernels = kernels_for(kernels_, op_of(item.spec.op), dtype);
            if (!item.kernels.empty()) items_.push_back(item);
        }
    }

    static Result result_of(const Item& item, const Kernel& kernel) {
        Result result;
        result.kernel = kernel.name;
        result.op = kernel.op;
        result.case_name = item.name;
        result.dtype = name_of(item.dtype);
        return result;
    }

    void report(const Result& result) {
        const std::lock_guard lock(mutex_);
        ++done_;
        if (progress_) progress_(result, done_, total_);
    }

    std::vector<Result> run_item(const Item& item) {
        Instance instance = make_instance(item.spec, item.dtype);
        const Expectation expectation = evaluate(instance);
        std::optional<Outcome> oracle;
        std::vector<Result> results;
        for (const Kernel& kernel : item.kernels) {
            Result result = result_of(item, kernel);
            // Appending has one implementation, so it is judged by the tests' own, like the oracle.
            const bool needs_oracle = !is_reference(kernel) && item.spec.op != Op::kAppend;
            if (needs_oracle && !oracle) oracle = run_oracle(instance);
            const Outcome outcome = run_kernel(device_, instance, kernel.name);
            judge(instance, expectation, outcome, needs_oracle ? &*oracle : nullptr, &result);
            report(result);
            results.push_back(std::move(result));
        }
        return results;
    }

    static void judge(const Instance& instance, const Expectation& expectation, const Outcome& outcome,
                      const Outcome* oracle, Result* result) {
        if (oracle != nullptr && !oracle->ok()) {
            result->status = ResultStatus::kFailed;
            result->message = "the oracle refused: " + oracle->message;
            return;
        }
        if (outcome.status == Status::kUnsupported) {
            result->status = ResultStatus::kRefused;
            result->message = outcome.message;
            return;
        }
        const Verdict verdict = compare(instance, expectation, outcome, oracle);
        result->status = verdict.ok() ? ResultStatus::kPassed : ResultStatus::kFailed;
        result->message = verdict.fault;
        result->worst_ratio = verdict.worst_ratio;
    }

    std::vector<Result> run_combine(const Item& item) {
        std::vector<Result> results;
        for (const Kernel& kernel : item.kernels) {
            Result result = result_of(item, kernel);
            const CombineVerdict verdict = run_combine_case(device_, *item.combine, item.dtype, kernel.name);
            result.status = verdict.fault.empty() ? ResultStatus::kPassed : ResultStatus::kFailed;
            result.message = verdict.fault;
            result.worst_ratio = verdict.worst_ratio;
            report(result);
            results.push_back(std::move(result));
        }
        return results;
    }

    Filter filter_;
    Progress progress_;
    Device device_;
    std::vector<Kernel> kernels_;
    std::vector<Item> items_;
    size_t total_ = 0;

    std::mutex mutex_;  // of what follows, and of progress_
    size_t done_ = 0;
};

}  // namespace

std::vector<Result> verify(const Filter& filter, const Progress& progress) { return Sweep(filter, progress).run(); }

std::vector<std::string> selected_kernels(const Filter& filter) {
    const std::string kind = filter.device.substr(0, filter.device.find(':'));
    std::vector<std::string> names;
    for (const Kernel& kernel : list_kernels())
        if (kernel.device == kind && matches(kernel.name, filter.kernel)) names.push_back(kernel.name);
    return names;
}

std::vector<std::string> selected_cases(const Filter& filter) {
    std::vector<std::string> names;
    for (const Case& c : all_cases())
        if (matches(c.name, filter.case_name)) names.push_back(c.name);
    for (const CombineCase& c : all_combine_cases())
        if (matches(c.name, filter.case_name)) names.push_back(c.name);
    return names;
}

}  // namespace tilewise::conformance
