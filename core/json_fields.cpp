#include "core/json_fields.h"

#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"

namespace ladder {
namespace {

using nlohmann::json;

constexpr int kDeepest = 16;
constexpr std::size_t kShown = 60;  // characters of a value

std::string shown(const json& value) {
  return one_line(value.dump(-1, ' ', false, json::error_handler_t::replace), kShown);
}

template <class T>
std::string range_of(const char* kind, T low, T high) {
  const bool is_open = high == std::numeric_limits<T>::max();
  if (low == std::numeric_limits<T>::lowest() && is_open) return kind;
  return is_open ? fmt::format("{} of at least {}", kind, low) : fmt::format("{} from {} to {}", kind, low, high);
}

}  // namespace

json parse_object(std::string_view text, const std::string& what) {
  const auto look = [&](int depth, json::parse_event_t, json&) {
    if (depth > kDeepest) throw UsageError(fmt::format("{} is nested deeper than {} levels", what, kDeepest));
    return true;
  };
  const json parsed = json::parse(text, look, /*allow_exceptions=*/false);
  if (!parsed.is_object()) throw UsageError(fmt::format("{} is no JSON object", what));
  return parsed;
}

JsonFields::JsonFields(const json& value, std::string what, Missing missing)
    : json_(value), what_(std::move(what)), missing_(missing) {
  if (!json_.is_object())
    throw UsageError(fmt::format("{} configuration is {}: a JSON object is right", what_, shown(json_)));
}

const json* JsonFields::find(const char* key) const {
  const auto found = json_.find(key);
  if (found != json_.end()) return &*found;
  if (missing_ == Missing::is_wrong) throw UsageError(fmt::format("{} {} is missing", what_, key));
  return nullptr;
}

const json& JsonFields::object(const char* key) const {
  const auto found = json_.find(key);
  if (found == json_.end()) throw UsageError(fmt::format("{} {} is missing", what_, key));
  return *found;
}

void JsonFields::wrong(const char* key, const json& value, const std::string& right) const {
  throw UsageError(fmt::format("{} {} {} is not supported: {} is right", what_, key, shown(value), right));
}

void JsonFields::no_choice(const char* key, const std::string& word, const std::vector<std::string>& words) const {
  throw UsageError(fmt::format("{} {} '{}' is not supported; there are: {}", what_, key, one_line(word, kShown),
                               fmt::join(words, ", ")));
}

bool JsonFields::flag(const char* key, const json& value) const {
  if (!value.is_boolean()) wrong(key, value, "true or false");
  return value.get<bool>();
}

std::int64_t JsonFields::integer(const char* key, const json& value, std::int64_t low, std::int64_t high) const {
  constexpr auto kMost = std::uint64_t{std::numeric_limits<std::int64_t>::max()};
  const bool fits = value.is_number_integer() && !(value.is_number_unsigned() && value.get<std::uint64_t>() > kMost);
  if (!fits || value.get<std::int64_t>() < low || value.get<std::int64_t>() > high) {
    wrong(key, value, range_of("a whole number", low, high));
  }
  return value.get<std::int64_t>();
}

std::uint64_t JsonFields::integer(const char* key, const json& value, std::uint64_t low, std::uint64_t high) const {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() < low || value.get<std::uint64_t>() > high) {
    wrong(key, value, range_of("a whole number", low, high));
  }
  return value.get<std::uint64_t>();
}

double JsonFields::number(const char* key, const json& value, double low, double high) const {
  const double found = value.is_number() ? value.get<double>() : std::nan("");
  if (!std::isfinite(found) || found < low || found > high) wrong(key, value, range_of("a number", low, high));
  return found;
}

void JsonFields::read(const char* key, std::string& target) const {
  const json* const found = find(key);
  if (found == nullptr) return;
  if (!found->is_string()) wrong(key, *found, "a word");
  target = found->get<std::string>();
}

void JsonFields::read(const char* key, std::vector<double>& target, std::size_t most, double low, double high) const {
  const json* const found = find(key);
  if (found == nullptr) return;
  if (!found->is_array() || found->size() > most) wrong(key, *found, fmt::format("a list of at most {} numbers", most));
  std::vector<double> values;
  for (const json& value : *found) values.push_back(number(key, value, low, high));
  target = std::move(values);
}

void JsonFields::read(const char* key, std::vector<int>& target, std::size_t most, int low, int high) const {
  const json* const found = find(key);
  if (found == nullptr) return;
  if (!found->is_array() || found->size() > most) wrong(key, *found, fmt::format("a list of at most {} numbers", most));
  std::vector<int> values;
  for (const json& value : *found) {
    values.push_back(static_cast<int>(integer(key, value, std::int64_t{low}, std::int64_t{high})));
  }
  target = std::move(values);
}

}  // namespace ladder
