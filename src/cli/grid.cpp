// Expands the alternatives of each grid and lets the flag parser of `tilewise plan` read every combination.
#include "grid.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <sstream>

#include "error.hpp"

namespace tilewise::cli {
namespace {

constexpr size_t kMaxPoints = 10000;

struct Axis {
    std::string key;
    std::vector<std::string> values;
    bool is_flag = false;  // values are true and false
};

std::string text_of(const std::string& where, const toml::node& node) {
    if (const auto text = node.value_exact<std::string>()) return *text;
    if (const auto number = node.value_exact<int64_t>()) return std::to_string(*number);
    if (const auto number = node.value_exact<double>()) return fmt::format("{}", *number);
    if (const auto flag = node.value_exact<bool>()) return *flag ? "true" : "false";
    throw UsageError(fmt::format("{}: a text, a number, true, false or a list of them is allowed", where));
}

Axis axis_of(const std::string& where, const std::string& key, const toml::node& node) {
    Axis axis{key, {}, false};
    std::replace(axis.key.begin(), axis.key.end(), '_', '-');
    if (const toml::array* list = node.as_array()) {
        for (const toml::node& item : *list) axis.values.push_back(text_of(where, item));
    } else {
        axis.values.push_back(text_of(where, node));
    }
    if (axis.values.empty()) throw UsageError(fmt::format("{}: the list is empty", where));
    axis.is_flag =
        std::all_of(axis.values.begin(), axis.values.end(), [](const auto& v) { return v == "true" || v == "false"; });
    return axis;
}

// A TOML table is sorted by name; the order of the points is that of the file.
void add_axes(const std::string& where, const toml::table& table, std::vector<Axis>& axes) {
    std::vector<std::pair<toml::source_position, Axis>> found;
    for (const auto& [key, node] : table) {
        const std::string name(key.str());
        if (name != "name") found.emplace_back(node.source().begin, axis_of(where + ": " + name, name, node));
    }
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (auto& [position, axis] : found) {
        const auto same =
            std::find_if(axes.begin(), axes.end(), [&](const Axis& known) { return known.key == axis.key; });
        if (same != axes.end())
            *same = std::move(axis);
        else
            axes.push_back(std::move(axis));
    }
}

GridPoint point_of(const std::string& where, const std::string& grid, const std::vector<std::string>& arguments) {
    GridPoint point{grid, fmt::format("{}", fmt::join(arguments, " ")), {}};
    CLI::App app;
    add_flags(app, point.flags);
    // CLI11 takes the arguments from the end.
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    try {
        app.parse(std::move(reversed));
    } catch (const CLI::ParseError& error) {
        throw UsageError(fmt::format("{}: {}", where, error.what()));
    }
    return point;
}

void add_points(const std::string& where, const std::string& grid, const std::vector<Axis>& axes,
                std::vector<GridPoint>& points) {
    std::vector<size_t> index(axes.size());
    while (true) {
        std::vector<std::string> arguments;
        for (size_t i = 0; i < axes.size(); ++i) {
            const std::string& value = axes[i].values[index[i]];
            if (axes[i].is_flag && value == "false") continue;
            arguments.push_back("--" + axes[i].key);
            if (!axes[i].is_flag) arguments.push_back(value);
        }
        points.push_back(point_of(where, grid, arguments));
        if (points.size() > kMaxPoints) throw UsageError(fmt::format("{}: more than {} points", where, kMaxPoints));
        size_t axis = axes.size();
        while (axis > 0 && ++index[axis - 1] == axes[axis - 1].values.size()) index[--axis] = 0;
        if (axis == 0) return;
    }
}

}  // namespace

std::vector<GridPoint> parse_grid(const std::string& name, const std::string& toml) {
    toml::table file;
    try {
        file = toml::parse(toml, name);
    } catch (const toml::parse_error& error) {
        throw UsageError(fmt::format("{}: line {}: {}", name, error.source().begin.line, error.description()));
    }
    for (const auto& [key, node] : file) {
        if (key.str() != "defaults" && key.str() != "grid") {
            throw UsageError(fmt::format("{}: {}: is unknown; [defaults] and [[grid]] are allowed", name, key.str()));
        }
    }
    const toml::array* grids = file["grid"].as_array();
    if (grids == nullptr || grids->empty()) throw UsageError(fmt::format("{}: has no [[grid]]", name));
    std::vector<GridPoint> points;
    for (const toml::node& node : *grids) {
        const toml::table* table = node.as_table();
        if (table == nullptr) throw UsageError(fmt::format("{}: grid: is not a table", name));
        const std::string grid = (*table)["name"].value_or(std::string("grid"));
        const std::string where = fmt::format("{}: {}", name, grid);
        std::vector<Axis> axes;
        if (const toml::table* defaults = file["defaults"].as_table()) add_axes(name + ": defaults", *defaults, axes);
        add_axes(where, *table, axes);
        add_points(where, grid, axes, points);
    }
    return points;
}

std::vector<GridPoint> load_grid(const std::string& place) {
    std::vector<std::string> names;
    for (const BuiltInGrid* grid = kBuiltInGrids; grid->name != nullptr; ++grid) {
        if (place == grid->name) return parse_grid(place, grid->toml);
        names.emplace_back(grid->name);
    }
    std::ifstream file(place);
    if (!file)
        throw UsageError(fmt::format("grid: \"{}\" is neither a file nor one of {}", place, fmt::join(names, ", ")));
    std::ostringstream text;
    text << file.rdbuf();
    return parse_grid(place, text.str());
}

}  // namespace tilewise::cli
