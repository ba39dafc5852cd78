#include "bench/causes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <sstream>

namespace ladder {
namespace {

constexpr std::size_t kColumns = 80;

bool is_number(const std::string& word) {
  return word == "nan" || word == "inf" || word == "-nan" || word == "-inf" ||
         std::ranges::any_of(word, [](unsigned char c) { return std::isdigit(c) != 0; });
}

// The line of the kernel that a reason begins with, or the reason's words without its numbers.
std::string key_of(const std::string& reason) {
  const std::string location = reason.substr(0, reason.find(' '));
  if (location.find(".cu:") != std::string::npos) return location;
  std::istringstream words(reason);
  std::string key;
  for (std::string word; words >> word;) {
    if (!is_number(word)) key += word + ' ';
  }
  return key;
}

}  // namespace

int Causes::add(const Result& failed) {
  const std::string key = key_of(failed.verdict.reason);
  auto found = std::ranges::find_if(
      causes_, [&](const Cause& cause) { return cause.version == failed.version && cause.key == key; });
  if (found == causes_.end()) found = causes_.insert(found, {.version = failed.version, .key = key, .cases = {}});
  found->cases.push_back(failed.problem);
  return static_cast<int>(found - causes_.begin()) + 1;
}

std::string Causes::summary(const std::vector<Result>& results) const {
  std::string text;
  std::set<const Version*> told;
  for (std::size_t i = 0; i < causes_.size(); ++i) {
    const Cause& cause = causes_[i];
    const auto checked = std::ranges::count_if(results, [&](const Result& result) {
      return result.version == cause.version && result.verdict.status != Status::skip;
    });
    std::set<std::string> dtypes;
    for (const Case& c : cause.cases) dtypes.insert(name(c.dtype));
    text += fmt::format("cause {}: {} of {} cases of {}, in {}\n", i + 1, cause.cases.size(), checked,
                        cause.version->label(), fmt::join(dtypes, ", "));
    if (!told.insert(cause.version).second) continue;
    if (const std::string suspicion = rounding_suspected(results, *cause.version); !suspicion.empty()) {
      text += wrapped(suspicion);
    }
  }
  return text;
}

std::string rounding_suspected(const std::vector<Result>& results, const Version& version) {
  int narrow_failed = 0;
  int wide_passed = 0;
  for (const Result& result : results) {
    if (result.version != &version) continue;
    const bool narrow = size_of(result.problem.dtype) == 2;
    const bool failed = result.verdict.status == Status::fail;
    if (failed && (!narrow || result.verdict.reason.find(" is right") == std::string::npos)) return {};
    narrow_failed += failed;
    wide_passed += !narrow && result.verdict.status == Status::pass;
  }
  if (narrow_failed == 0 || wide_passed == 0) return {};
  return "only 2-byte types fail, and fp32 passes: likely a rounding, or a load or store of the wrong type";
}

std::string wrapped(const std::string& text) {
  constexpr std::size_t kIndent = 4;
  std::istringstream words(text);
  std::string lines;
  std::size_t column = kColumns;
  for (std::string word; words >> word;) {
    const bool fits = column + 1 + word.size() <= kColumns;
    if (!fits) lines += (lines.empty() ? "" : "\n") + std::string(kIndent, ' ');
    lines += (fits ? " " : "") + word;
    column = (fits ? column + 1 : kIndent) + word.size();
  }
  return lines + '\n';
}

}  // namespace ladder
