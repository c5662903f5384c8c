// Which tensors a call takes: a table of argument x operation, then pairs that belong together and pairs that exclude each
// other. A tensor without effect is refused instead of ignored: whoever passes one expects it to matter.
#include <array>
#include <string>

#include "core/validate_rules.hpp"

namespace tilewise::rules {

namespace {

enum class Use : uint8_t { kRefused, kAllowed, kRequired };
constexpr size_t kNumOps = 5;

struct ArgRow {
    Arg arg;
    std::array<Use, kNumOps> use;  // in the order of Op: forward, backward, decode, append, combine
    const char* advice = "";       // instead of it, where it is refused
};

constexpr Use no = Use::kRefused;
constexpr Use may = Use::kAllowed;
constexpr Use must = Use::kRequired;

constexpr ArgRow kArgRows[] = {
    {Arg::kQ, {must, must, must, no, no}},
    {Arg::kK, {must, must, must, must, no}},
    {Arg::kV, {must, must, must, must, no}},
    {Arg::kO, {must, must, must, no, must}},
    {Arg::kLse, {may, must, may, no, may}},
    {Arg::kGradO, {no, must, no, no, no}},
    {Arg::kGradLse, {no, may, no, no, no}},
    {Arg::kGradQ, {no, must, no, no, no}},
    {Arg::kGradK, {no, must, no, no, no}},
    {Arg::kGradV, {no, must, no, no, no}},
    {Arg::kGradBias, {no, may, no, no, no}},
    {Arg::kGradSink, {no, may, no, no, no}},
    {Arg::kCuSeqlensQ, {may, may, may, no, no}, "a ragged o of combine is (total_q, num_heads_q, head_dim_v)"},
    {Arg::kCuSeqlensK, {may, may, no, no, no}, "a cache is dense or paged; ragged new keys take cu_seqlens_k_new"},
    {Arg::kSequsedQ, {may, may, may, no, no}},
    {Arg::kSequsedK, {may, may, no, no, no}, "the keys in a cache are counted by cache_seqlens"},
    {Arg::kLeftpadK, {may, may, may, no, no}, "append counts rows and positions from the start of the cache"},
    {Arg::kMask, {may, may, may, no, no}},
    {Arg::kKeyBegin, {may, may, may, no, no}},
    {Arg::kKeyEnd, {may, may, may, no, no}},
    {Arg::kPrefixLens, {may, may, may, no, no}},
    {Arg::kAlibiSlopes, {may, may, may, no, no}},
    {Arg::kBias, {may, may, may, no, no}},
    {Arg::kSink, {may, may, may, no, no}},
    {Arg::kCacheSeqlens, {no, no, may, must, no}, "forward and backward take seqused_k"},
    {Arg::kCacheBatchIdx, {may, no, may, may, no}, "a cache has no gradient; gather its rows into k and v first"},
    {Arg::kPageTable, {may, no, may, may, no}, "a cache has no gradient; gather its pages into k and v first"},
    {Arg::kKNew, {no, no, may, must, no}},
    {Arg::kVNew, {no, no, may, must, no}},
    {Arg::kCuSeqlensKNew, {no, no, may, may, no}},
    {Arg::kRotaryCos, {no, no, may, may, no}, "rotary is applied where keys enter the cache"},
    {Arg::kRotarySin, {no, no, may, may, no}, "rotary is applied where keys enter the cache"},
    {Arg::kRotarySeqlens, {no, no, may, may, no}},
    {Arg::kPartialO, {no, no, no, no, must}},
    {Arg::kPartialLse, {no, no, no, no, must}},
    {Arg::kErrorFlag, {no, no, may, may, no}, "it is raised where keys enter the cache"},
    {Arg::kQRotated, {no, no, no, no, no}, "it is the library's own"},
    {Arg::kTotalSeqlens, {no, no, no, no, no}, "it is the library's own"},
};
static_assert(std::size(kArgRows) == kNumArgs, "every argument has a row");

struct NeedRow {
    Arg arg;
    Arg needed;
    const char* why;
};
constexpr NeedRow kNeedRows[] = {
    {Arg::kKNew, Arg::kVNew, "keys and values are appended together"},
    {Arg::kVNew, Arg::kKNew, "keys and values are appended together"},
    {Arg::kKNew, Arg::kCacheSeqlens, "it says where the new keys go"},
    {Arg::kCuSeqlensKNew, Arg::kKNew, "it has no effect alone"},
    {Arg::kRotaryCos, Arg::kRotarySin, "rotary takes both tables"},
    {Arg::kRotarySin, Arg::kRotaryCos, "rotary takes both tables"},
    {Arg::kRotaryCos, Arg::kKNew, "rotary is applied where keys enter the cache"},
    {Arg::kRotarySeqlens, Arg::kRotaryCos, "it has no effect alone"},
    {Arg::kErrorFlag, Arg::kKNew, "it is raised where keys enter the cache"},
    {Arg::kGradBias, Arg::kBias, "there is no bias to differentiate"},
    {Arg::kGradSink, Arg::kSink, "there is no sink to differentiate"},
};

struct ExclusionRow {
    Arg arg;
    Arg other;
    const char* instead;
};
constexpr ExclusionRow kExclusionRows[] = {
    {Arg::kPageTable, Arg::kCuSeqlensK, "the lengths of a paged k are seqused_k"},
    {Arg::kLeftpadK, Arg::kCuSeqlensK, "cu_seqlens_k says where each sequence begins"},
    {Arg::kCacheBatchIdx, Arg::kCuSeqlensK, "it selects rows of a dense cache or of the page table"},
};

// "allowed for decode, append; <advice>"
std::string allowed_uses(const ArgRow& row) {
    std::string text;
    for (size_t op = 0; op < kNumOps; ++op) {
        if (row.use[op] == Use::kRefused) continue;
        text += text.empty() ? "allowed for " : ", ";
        text += name_of(static_cast<Op>(op));
    }
    if (*row.advice != '\0') text += (text.empty() ? "" : "; ") + std::string(row.advice);
    return text;
}

Status check_use(const Problem& problem, const ArgRow& row) {
    const Use use = row.use[static_cast<size_t>(problem.op)];
    const char* op = name_of(problem.op);
    if (use == Use::kRequired && !problem.has(row.arg)) return refuse(row.arg, "is not given; {} needs it", op);
    if (use == Use::kRefused && problem.has(row.arg))
        return refuse(row.arg, "{} has no effect on {}; {}", to_string(problem[row.arg]), op, allowed_uses(row));
    return {};
}

}  // namespace

Status check_arguments(const Problem& problem) {
    for (const ArgRow& row : kArgRows) {
        if (Status status = check_use(problem, row); !status.ok()) return status;
    }
    for (const NeedRow& row : kNeedRows) {
        if (problem.has(row.arg) && !problem.has(row.needed))
            return refuse(row.arg, "{} is given without {}; {}", to_string(problem[row.arg]), name_of(row.needed),
                          row.why);
    }
    for (const ExclusionRow& row : kExclusionRows) {
        if (problem.has(row.arg) && problem.has(row.other))
            return refuse(row.arg, "{} is given with {}; {}", to_string(problem[row.arg]), name_of(row.other),
                          row.instead);
    }
    return {};
}

}  // namespace tilewise::rules
