#include "core/simt/options.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>

#include "core/error.h"

namespace ladder::simt {

Options& options() {
  static Options process_options = [] {
    Options first;
    if (const char* given = std::getenv("LADDER_SCHEDULE"); given && *given) first.set_schedule(given);
    return first;
  }();
  return process_options;
}

std::string Options::str() const {
  switch (schedule) {
    case Schedule::ascending:
      return "asc";
    case Schedule::descending:
      return "desc";
    case Schedule::random:
      return fmt::format("random:{}", seed);
    case Schedule::greedy:
      return fmt::format("greedy:{}", seed);
    case Schedule::late:
      return fmt::format("late:{}", seed);
  }
  return "";
}

void Options::set_schedule(std::string_view text) {
  auto fail = [&] {
    throw UsageError(
        fmt::format("schedule '{}': expected asc, desc, random[:seed], greedy[:seed] or late[:seed]", text));
  };
  const std::size_t colon = text.find(':');
  const std::string_view word = text.substr(0, colon);
  const bool has_seed = colon != std::string_view::npos;
  const bool seeded = word == "random" || word == "greedy" || word == "late";
  std::uint64_t new_seed = seed;
  if (has_seed) {
    const std::string_view digits = text.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), new_seed);
    if (!seeded || error != std::errc{} || end != digits.data() + digits.size()) fail();
  }
  if (word == "asc") {
    schedule = Schedule::ascending;
  } else if (word == "desc") {
    schedule = Schedule::descending;
  } else if (word == "random") {
    schedule = Schedule::random;
  } else if (word == "greedy") {
    schedule = Schedule::greedy;
  } else if (word == "late") {
    schedule = Schedule::late;
  } else {
    fail();
  }
  seed = new_seed;
}

}  // namespace ladder::simt
