// Byte-pair merging: a sequence of tokens and a ranked list of pairs -> the sequence in which no listed pair is left.
//
// The pair of the lowest rank merges first, the leftmost of equals before the others. A linked list and a heap of
// candidates keep this at n log n, so a long run without spaces costs no more per byte than a word.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace tilewise::generate {

class MergeTable {
public:
    struct Merge {
        std::int32_t rank;
        std::int32_t result;
    };

    // A pair that is listed twice keeps its first merge.
    void add(std::int32_t left, std::int32_t right, Merge merge) { merges_.emplace(key(left, right), merge); }

    const Merge* find(std::int32_t left, std::int32_t right) const {
        const auto found = merges_.find(key(left, right));
        return found == merges_.end() ? nullptr : &found->second;
    }

    std::vector<std::int32_t> apply(const std::vector<std::int32_t>& tokens) const;

private:
    static std::uint64_t key(std::int32_t left, std::int32_t right) {
        return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
    }

    std::unordered_map<std::uint64_t, Merge> merges_;
};

}  // namespace tilewise::generate
