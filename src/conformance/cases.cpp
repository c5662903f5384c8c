// The list of cases out of cases.inc, and the short hands that its lines use.
#include "conformance/case.hpp"

namespace tilewise::conformance {

namespace {

void sizes(ProblemSpec& p, int64_t seqlen_q, int64_t seqlen_k) {
    p.sizes.seqlen_q = seqlen_q;
    p.sizes.seqlen_k = seqlen_k;
}
void heads(ProblemSpec& p, int64_t heads_q, int64_t heads_kv) {
    p.sizes.heads_q = heads_q;
    p.sizes.heads_kv = heads_kv;
}
void dims(ProblemSpec& p, int64_t head_dim, int64_t head_dim_v) {
    p.sizes.head_dim = head_dim;
    p.sizes.head_dim_v = head_dim_v;
}
// For large head dimensions or many heads: the default lengths would only cost time.
void small(ProblemSpec& p) {
    p.sizes.batch = 1;
    if (p.sizes.heads_q == 4) heads(p, 2, 1);
    if (p.sizes.seqlen_q == 65) sizes(p, 35, 70);
}
void ragged_q(ProblemSpec& p, std::vector<int> rows_q) {
    p.sizes.batch = static_cast<int64_t>(rows_q.size());
    p.lengths.rows_q = std::move(rows_q);
}
void ragged(ProblemSpec& p, std::vector<int> rows_q, std::vector<int> rows_k) {
    ragged_q(p, std::move(rows_q));
    p.lengths.rows_k = std::move(rows_k);
}

enum class Passes { both, forward, decode, append };

Case make_case(Passes passes, const char* name, void (*configure)(ProblemSpec&)) {
    Case made;
    made.name = name;
    made.for_backward = passes == Passes::both;
    if (passes == Passes::decode) made.spec.op = Op::kDecode;
    if (passes == Passes::append) made.spec.op = Op::kAppend;
    for (const char c : made.name) made.spec.seed = made.spec.seed * 31 + static_cast<uint64_t>(c);
    configure(made.spec);
    return made;
}

}  // namespace

const std::vector<Case>& all_cases() {
    static const std::vector<Case> cases = {
#define TILEWISE_CASE(passes_, name_, ...) make_case(Passes::passes_, #name_, [](ProblemSpec& p) { __VA_ARGS__; }),
#include "conformance/cases.inc"
#undef TILEWISE_CASE
    };
    return cases;
}

ProblemSpec backward_spec(const Case& forward_case) {
    ProblemSpec spec = forward_case.spec;
    spec.op = Op::kBackward;
    return spec;
}

}  // namespace tilewise::conformance
