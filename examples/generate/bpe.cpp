// The merge loop. Stale candidates stay in the heap and are recognised when they come up: their pair is gone.
#include "bpe.hpp"

#include <cstddef>
#include <queue>
#include <tuple>

namespace tilewise::generate {

namespace {

constexpr std::size_t kNone = static_cast<std::size_t>(-1);

struct Symbol {
    std::int32_t token;  // -1 once it has merged into its left neighbour
    std::size_t previous;
    std::size_t next;
};

struct Candidate {
    MergeTable::Merge merge;
    std::size_t left;
    std::int32_t left_token;
    std::int32_t right_token;

    // The heap gives its largest element: the lowest rank, then the leftmost.
    bool operator<(const Candidate& other) const {
        return std::tie(other.merge.rank, other.left) < std::tie(merge.rank, left);
    }
};

class Merger {
public:
    Merger(const MergeTable& table, const std::vector<std::int32_t>& tokens) : table_(table) {
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            symbols_.push_back({tokens[i], i == 0 ? kNone : i - 1, i + 1 == tokens.size() ? kNone : i + 1});
        }
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            consider(i);
        }
    }

    void run() {
        while (!candidates_.empty()) {
            const Candidate best = candidates_.top();
            candidates_.pop();
            if (holds(best)) {
                merge(best);
            }
        }
    }

    std::vector<std::int32_t> tokens() const {
        std::vector<std::int32_t> out;
        for (const Symbol& symbol : symbols_) {
            if (symbol.token >= 0) {
                out.push_back(symbol.token);
            }
        }
        return out;
    }

private:
    void consider(std::size_t left) {
        if (left == kNone || symbols_[left].next == kNone) {
            return;
        }
        const std::int32_t left_token = symbols_[left].token;
        const std::int32_t right_token = symbols_[symbols_[left].next].token;
        if (const MergeTable::Merge* merge = table_.find(left_token, right_token)) {
            candidates_.push({*merge, left, left_token, right_token});
        }
    }

    bool holds(const Candidate& candidate) const {
        const Symbol& left = symbols_[candidate.left];
        return left.token == candidate.left_token && left.next != kNone &&
               symbols_[left.next].token == candidate.right_token;
    }

    void merge(const Candidate& candidate) {
        Symbol& left = symbols_[candidate.left];
        Symbol& right = symbols_[left.next];
        left.token = candidate.merge.result;
        left.next = right.next;
        right.token = -1;
        if (left.next != kNone) {
            symbols_[left.next].previous = candidate.left;
        }
        consider(left.previous);
        consider(candidate.left);
    }

    const MergeTable& table_;
    std::vector<Symbol> symbols_;
    std::priority_queue<Candidate> candidates_;
};

}  // namespace

std::vector<std::int32_t> MergeTable::apply(const std::vector<std::int32_t>& tokens) const {
    Merger merger(*this, tokens);
    merger.run();
    return merger.tokens();
}

}  // namespace tilewise::generate
