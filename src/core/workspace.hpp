// Lays named blocks out one behind the other. The same code that sizes the workspace names its offsets, so a kernel cannot
// use more than was asked for.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/plan.hpp"

namespace tilewise {

class WorkspaceLayout {
public:
    explicit WorkspaceLayout(int64_t base = 0) : end_(base) {}
    // Reserves `bytes` (0 allowed) and returns the block's offset, a multiple of kWorkspaceAlignment.
    int64_t add(std::string name, int64_t bytes) {
        const int64_t offset = round_up(end_, kWorkspaceAlignment);
        blocks_.push_back({std::move(name), offset, bytes});
        end_ = offset + bytes;
        return offset;
    }
    int64_t bytes() const { return end_; }
    std::vector<WorkspaceBlock> take_blocks() { return std::move(blocks_); }

private:
    int64_t end_ = 0;
    std::vector<WorkspaceBlock> blocks_;
};

}  // namespace tilewise
