// The fields of a JSON object that somebody else may have written. Each number and word is checked when it is read; what is
// wrong is a UsageError with the field, its value and what would be right.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace ladder {

// The object that `text` holds. Throws UsageError, which begins with `what`, for text that is no JSON object or is nested
// deeper than any configuration; copies and dumps of JSON take stack by its depth.
nlohmann::json parse_object(std::string_view text, const std::string& what);

class JsonFields {
 public:
  enum class Missing { keeps_default, is_wrong };

  // Messages begin with `what`: "the scheduler's". Throws UsageError for JSON that is no object. `json` outlives the reader.
  JsonFields(const nlohmann::json& json, std::string what, Missing missing = Missing::keeps_default);

  // Set `target` to the field's value; a field that is missing keeps what `target` has, or is wrong (Missing). A number is
  // whole where T is, from `low` to `high`, and fits into T; others are finite.
  template <class T>
  void read(const char* key, T& target, T low = least<T>(), T high = std::numeric_limits<T>::max()) const {
    const nlohmann::json* const found = find(key);
    if (found == nullptr) return;
    if constexpr (std::is_same_v<T, bool>) {
      target = flag(key, *found);
    } else if constexpr (std::is_unsigned_v<T>) {
      target = static_cast<T>(integer(key, *found, low, high));
    } else if constexpr (std::is_integral_v<T>) {
      target = static_cast<T>(integer(key, *found, std::int64_t{low}, std::int64_t{high}));
    } else {
      target = static_cast<T>(number(key, *found, low, high));
    }
  }
  void read(const char* key, std::string& target) const;
  // A list of at most `most` numbers from `low` to `high`.
  void read(const char* key, std::vector<double>& target, std::size_t most, double low, double high) const;
  void read(const char* key, std::vector<int>& target, std::size_t most, int low, int high) const;

  // A word that stands for a value.
  template <class T>
  void read(const char* key, T& target, const std::vector<std::pair<std::string, T>>& choices) const {
    std::string word;
    if (find(key) == nullptr) return;
    read(key, word);
    for (const auto& [name, value] : choices) {
      if (name != word) continue;
      target = value;
      return;
    }
    std::vector<std::string> words;
    // NOLINTNEXTLINE(performance-inefficient-vector-operation): the words of an error, a few
    for (const auto& [name, value] : choices) words.push_back(name);
    no_choice(key, word, words);
  }

  // The object of a field that has to be there.
  const nlohmann::json& object(const char* key) const;

 private:
  template <class T>
  static constexpr T least() {
    return std::numeric_limits<T>::lowest();
  }
  const nlohmann::json* find(const char* key) const;  // null where it keeps its default
  bool flag(const char* key, const nlohmann::json& value) const;
  std::int64_t integer(const char* key, const nlohmann::json& value, std::int64_t low, std::int64_t high) const;
  std::uint64_t integer(const char* key, const nlohmann::json& value, std::uint64_t low, std::uint64_t high) const;
  double number(const char* key, const nlohmann::json& value, double low, double high) const;
  [[noreturn]] void wrong(const char* key, const nlohmann::json& value, const std::string& right) const;
  [[noreturn]] void no_choice(const char* key, const std::string& word, const std::vector<std::string>& words) const;

  const nlohmann::json& json_;
  std::string what_;
  Missing missing_;
};

}  // namespace ladder
