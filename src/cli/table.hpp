// A small table of text cells: aligned for people, as Markdown, or as CSV.
#pragma once

#include <string>
#include <vector>

namespace tilewise::cli {

class Table {
public:
    enum class Align { kLeft, kRight };
    struct Column {
        std::string title;
        Align align = Align::kLeft;
    };

    explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
    // As many cells as columns.
    void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
    bool empty() const { return rows_.empty(); }

    std::string text() const;
    std::string markdown() const;
    std::string csv() const;

private:
    std::vector<size_t> widths() const;
    std::string line(const std::vector<std::string>& cells, const std::vector<size_t>& widths) const;

    std::vector<Column> columns_;
    std::vector<std::vector<std::string>> rows_;
};

}  // namespace tilewise::cli
