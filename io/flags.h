// Flags of a program, declared once, to CLI11. `--describe` prints them as JSON (schema ladder.flags/1). A copy of that
// JSON lies beside the program's source (bench/flags.json, train/train_unet.json), and ./ladder makes its own flags
// from the copy, so that its help and its errors need no build.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <regex.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"

namespace ladder::io {

inline const CLI::Validator kFilled(
    [](const std::string& word) { return std::string(word.empty() ? "it is empty" : ""); }, "");

// Validator of a word that is one of `all`.
inline CLI::Validator words(const std::vector<std::string>& all) {
  const std::string list = fmt::format("{}", fmt::join(all, ","));
  return {[all](const std::string& word) {
            if (std::find(all.begin(), all.end(), word) != all.end()) return std::string();
            return fmt::format("one of {}, not '{}'", fmt::join(all, ", "), word);
          },
          list, "words"};
}

// Validator of a number in an interval: "[1, 1000]", "[0, 1)", "(0, )".
inline CLI::Validator limits(const std::string& interval) {
  return {[interval](const std::string& word) {
            const std::string high = interval.substr(interval.find(',') + 2);
            const long double value = std::strtold(word.c_str(), nullptr);
            const long double least = std::strtold(interval.c_str() + 1, nullptr);
            const long double most = std::strtold(high.c_str(), nullptr);
            const bool low_enough = high == ")" || (high.back() == ']' ? value <= most : value < most);
            const bool high_enough = interval.front() == '[' ? value >= least : value > least;
            return low_enough && high_enough ? std::string() : fmt::format("a number in {}, not '{}'", interval, word);
          },
          interval, "limits"};
}

// Validator of a word that matches a POSIX extended regular expression as a whole. Python must read the expression
// alike.
inline CLI::Validator pattern(const std::string& expression) {
  return {[expression](const std::string& word) {
            regex_t compiled;
            LADDER_CHECK(regcomp(&compiled, ("^(" + expression + ")$").c_str(), REG_EXTENDED | REG_NOSUB) == 0,
                         expression);
            const bool matches = regexec(&compiled, word.c_str(), 0, nullptr, 0) == 0;
            regfree(&compiled);
            return matches ? std::string() : fmt::format("{}, not '{}'", expression, word);
          },
          expression, "pattern"};
}

// Add a flag whose words stand for values of another type. Its default is the present value of `target`.
template <class T>
CLI::Option* add_choice(CLI::App& app, const std::string& flag, T& target,
                        const std::vector<std::pair<std::string, T>>& choices, const std::string& help) {
  std::vector<std::string> all;
  std::string now;
  for (const auto& [word, value] : choices) {
    all.push_back(word);
    if (value == target) now = word;
  }
  const auto take = [&target, choices](const std::string& given) {
    for (const auto& [word, value] : choices) {
      if (word == given) target = value;
    }
  };
  return app.add_option_function<std::string>(flag, take, help)->default_str(now)->check(words(all));
}

inline std::vector<std::string> names_of(const std::set<CLI::Option*>& options) {
  std::vector<std::string> names;
  names.reserve(options.size());
  for (const CLI::Option* option : options) names.push_back(option->get_name());
  std::sort(names.begin(), names.end());
  return names;
}

// Text of --describe.
inline std::string describe(CLI::App& app) {
  nlohmann::ordered_json flags = nlohmann::ordered_json::array();
  for (CLI::Option* option : app.get_options()) {
    const std::vector<std::string>& names = option->get_lnames();
    if (names.empty() || names[0] == "help" || names[0] == "describe") continue;
    nlohmann::ordered_json flag = {{"name", "--" + names[0]}, {"group", option->get_group()}};
    if (option->get_items_expected_max() == 0) {
      flag["type"] = "SWITCH";
      if (names.size() > 1) flag["opposite"] = "--" + names[1];
    } else {
      const std::string type = option->get_type_name();
      flag["type"] = type.substr(0, type.find(':'));
      if (!option->get_default_str().empty()) flag["default"] = option->get_default_str();
    }
    for (const char* kind : {"words", "limits", "pattern"}) {
      try {
        const std::string takes = option->get_validator(kind)->get_description();
        flag[kind] = takes;
      } catch (const CLI::OptionNotFound&) {
        continue;
      }
    }
    if (!option->get_excludes().empty()) flag["excludes"] = names_of(option->get_excludes());
    if (!option->get_needs().empty()) flag["needs"] = names_of(option->get_needs());
    flag["help"] = option->get_description();
    flags.push_back(std::move(flag));
  }
  return nlohmann::ordered_json({{"schema", "ladder.flags/1"}, {"flags", flags}}).dump(1) + "\n";
}

// Parse a command line without its program. Returns false if help or a description was asked for, which is then
// printed. Throws UsageError.
inline bool parse(CLI::App& app, std::vector<std::string> words) {
  app.add_flag_callback(
      "--describe", [] {}, "print these flags as JSON and leave");
  if (std::find(words.begin(), words.end(), "--describe") != words.end()) {
    fmt::print("{}", describe(app));
    return false;
  }
  std::reverse(words.begin(), words.end());  // CLI11 expects the reverse order
  try {
    app.parse(words);
  } catch (const CLI::CallForHelp& help) {
    app.exit(help);
    return false;
  } catch (const CLI::ParseError& error) {
    throw UsageError(one_line(error.what()) + " (--help shows what there is)");
  }
  return true;
}

}  // namespace ladder::io
