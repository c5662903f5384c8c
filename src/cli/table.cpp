// Column widths, alignment and the quoting rules of Markdown and CSV.
#include "table.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tilewise::cli {
namespace {

std::string replaced(std::string text, const std::string& what, const std::string& with) {
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size())) {
        text.replace(at, what.size(), with);
    }
    return text;
}

std::string csv_cell(const std::string& cell) {
    if (cell.find_first_of(",\"\r\n") == std::string::npos) return cell;
    return "\"" + replaced(cell, "\"", "\"\"") + "\"";
}

}  // namespace

std::vector<size_t> Table::widths() const {
    std::vector<size_t> widths;
    for (size_t i = 0; i < columns_.size(); ++i) {
        size_t width = columns_[i].title.size();
        for (const auto& row : rows_) width = std::max(width, row[i].size());
        widths.push_back(width);
    }
    return widths;
}

std::string Table::line(const std::vector<std::string>& cells, const std::vector<size_t>& widths) const {
    std::string out;
    for (size_t i = 0; i < columns_.size(); ++i) {
        if (i > 0) out += "  ";
        out += columns_[i].align == Align::kRight ? fmt::format("{:>{}}", cells[i], widths[i])
                                                  : fmt::format("{:<{}}", cells[i], widths[i]);
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return out + "\n";
}

std::string Table::text() const {
    std::vector<std::string> titles;
    for (const Column& column : columns_) titles.push_back(column.title);
    const std::vector<size_t> width = widths();
    std::string out = line(titles, width);
    for (const auto& row : rows_) out += line(row, width);
    return out;
}

std::string Table::markdown() const {
    std::string out = "|";
    for (const Column& column : columns_) out += fmt::format(" {} |", column.title);
    out += "\n|";
    for (const Column& column : columns_) out += column.align == Align::kRight ? "---:|" : "---|";
    out += "\n";
    for (const auto& row : rows_) {
        out += "|";
        for (const std::string& cell : row) out += fmt::format(" {} |", replaced(cell, "|", "\\|"));
        out += "\n";
    }
    return out;
}

std::string Table::csv() const {
    std::string out;
    const auto append = [&out](const std::string& cell, bool first) { out += (first ? "" : ",") + csv_cell(cell); };
    for (size_t i = 0; i < columns_.size(); ++i) append(columns_[i].title, i == 0);
    out += "\n";
    for (const auto& row : rows_) {
        for (size_t i = 0; i < row.size(); ++i) append(row[i], i == 0);
        out += "\n";
    }
    return out;
}

}  // namespace tilewise::cli
