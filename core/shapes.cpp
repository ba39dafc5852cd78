#include "core/shapes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "core/error.h"
#include "core/paths.h"

namespace ladder {
namespace {

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\v\f";
  const auto begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

bool has_name(const auto& items, std::string_view name) {
  return std::any_of(items.begin(), items.end(), [&](const auto& item) { return item.name == name; });
}

std::string file_of(const std::string& layer) { return data_dir() + "/dev/" + layer + "/shapes.txt"; }

}  // namespace

std::vector<ShapeSet> parse_shapes(std::string_view text, const std::string& file) {
  std::vector<ShapeSet> sets;
  int number = 0;
  const auto fail = [&](const std::string& what) { throw Failure(fmt::format("{}:{}: {}", file, number, what)); };
  const auto finish_set = [&] {
    if (!sets.empty() && sets.back().lines.empty()) fail(fmt::format("the set '{}' above is empty", sets.back().name));
  };
  while (!text.empty()) {
    ++number;
    const auto end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = trim(line.substr(0, line.find('#')));
    if (line.empty()) continue;

    if (line.front() == '[') {
      finish_set();
      const std::string_view name = trim(line.substr(1, line.size() - (line.back() == ']' ? 2 : 1)));
      if (line.back() != ']' || !is_name(name)) fail("a heading reads '[set]', in lower-case letters, digits and _");
      if (has_name(sets, name)) fail(fmt::format("the set '{}' is there twice", name));
      sets.push_back({.name = std::string(name), .lines = {}});
      continue;
    }
    const auto colon = line.find(':');
    const std::string_view name = trim(line.substr(0, colon));
    const std::string_view problem = colon == std::string_view::npos ? "" : trim(line.substr(colon + 1));
    if (!is_name(name) || problem.empty()) fail("an entry reads 'name: problem'");
    if (sets.empty()) fail("an entry stands above the first '[set]' heading");
    if (has_name(sets.back().lines, name)) fail(fmt::format("the name '{}' is in this set twice", name));
    sets.back().lines.push_back({.name = std::string(name), .problem = std::string(problem)});
  }
  finish_set();
  return sets;
}

std::vector<ShapeSet> shape_sets(const std::string& layer) {
  const std::string file = file_of(layer);
  std::ifstream in(file);
  if (!in) return {};
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  return parse_shapes(text, file);
}

std::vector<NamedCase> named_cases(const Pass& pass, std::string_view set) {
  std::vector<std::string> names;
  for (const ShapeSet& s : shape_sets(pass.layer)) {
    names.push_back(s.name);
    if (s.name != set) continue;
    std::vector<NamedCase> cases;
    for (const NamedLine& line : s.lines) {
      try {
        cases.push_back({line.name, pass.parse(line.problem)});
      } catch (const UsageError& error) {
        throw Failure(fmt::format("{}: [{}] {}: {}", file_of(pass.layer), set, line.name, error.what()));
      }
    }
    return cases;
  }
  if (names.empty()) throw UsageError(fmt::format("no set '{}': {} does not exist", set, file_of(pass.layer)));
  throw UsageError(fmt::format("{} has no set '{}'; it has: {}", pass.layer, set, fmt::join(names, ", ")));
}

}  // namespace ladder
