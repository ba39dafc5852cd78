#include "core/problem_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/error.h"

namespace ladder {
namespace {

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

std::vector<std::string> split(std::string_view line) {
  std::vector<std::string> words;
  for (auto it = line.begin(); it != line.end();) {
    it = std::find_if_not(it, line.end(), is_space);
    const auto end = std::find_if(it, line.end(), is_space);
    if (it != end) words.emplace_back(it, end);
    it = end;
  }
  return words;
}

std::string printable(std::string_view line) {
  constexpr std::size_t kMax = 120;
  return one_line(line, kMax);
}

// Null unless all of `text` is a finite number that a T can hold.
template <class T>
std::optional<T> number(std::string_view text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [parse_end, error] = std::from_chars(text.data(), end, value);
  return error == std::errc{} && parse_end == end ? std::optional(value) : std::nullopt;
}

// The part of `word` after `letter` where it looks like a number, so that "h-1" is a bad h and not an unknown word.
std::optional<std::string_view> number_after(std::string_view letter, std::string_view word) {
  if (!word.starts_with(letter) || word.size() == letter.size()) return std::nullopt;
  const std::string_view remainder = word.substr(letter.size());
  const bool is_foreign =
      static_cast<unsigned char>(remainder[0]) > 0x7f;  // a digit of another script, as a full-width one
  const bool numeric = (remainder[0] >= '0' && remainder[0] <= '9') || remainder[0] == '-' || remainder[0] == '+' ||
                       remainder[0] == '.' || is_foreign;
  return numeric ? std::optional(remainder) : std::nullopt;
}

}  // namespace

ProblemLine::ProblemLine(std::string_view line, std::string usage) : line_(line), usage_(std::move(usage)) {
  for (std::string& word : split(line)) {
    if (std::any_of(words_.begin(), words_.end(), [&](const Word& w) { return w.text == word; })) {
      fail(fmt::format("'{}' stands in it twice", printable(word)));
    }
    words_.push_back({.text = std::move(word)});
  }
  if (words_.empty()) fail("it is empty");
}

std::optional<std::string_view> ProblemLine::take(std::string_view letter) {
  std::optional<std::string_view> found;
  for (Word& word : words_) {
    const auto digits = number_after(letter, word.text);
    if (!digits) continue;
    if (found) fail(fmt::format("'{}' stands in it twice", letter));
    word.used = true;
    found = digits;
  }
  return found;
}

std::optional<std::int64_t> ProblemLine::integer(std::string_view letter, std::int64_t least, std::int64_t most) {
  const auto digits = take(letter);
  if (!digits) return std::nullopt;
  const auto value = number<std::int64_t>(*digits);
  if (value && *value >= least && *value <= most) return value;
  fail(fmt::format("'{}{}' should be {} and a whole number from {} to {}", letter, printable(*digits), letter, least,
                   most));
}

std::int64_t ProblemLine::size(std::string_view letter, std::int64_t least, std::int64_t most) {
  const auto value = integer(letter, least, most);
  if (!value) fail(fmt::format("it lacks '{}'", letter));
  return *value;
}

std::int64_t ProblemLine::size_or(std::string_view letter, std::int64_t otherwise, std::int64_t least,
                                  std::int64_t most) {
  return integer(letter, least, most).value_or(otherwise);
}

std::vector<std::int64_t> ProblemLine::sizes(std::string_view letter, std::int64_t least, std::int64_t most) {
  const auto digits = take(letter);
  if (!digits) fail(fmt::format("it lacks '{}'", letter));
  std::vector<std::int64_t> values;
  for (std::size_t begin = 0; begin <= digits->size();) {
    const std::size_t end = std::min(digits->find(',', begin), digits->size());
    const auto value = number<std::int64_t>(digits->substr(begin, end - begin));
    if (!value || *value < least || *value > most) {
      fail(fmt::format("'{}{}' should be {} and whole numbers from {} to {} with commas between", letter,
                       printable(*digits), letter, least, most));
    }
    values.push_back(*value);
    begin = end + 1;
  }
  return values;
}

float ProblemLine::positive_or(std::string_view letter, float otherwise) {
  const auto digits = take(letter);
  if (!digits) return otherwise;
  const auto value = number<float>(*digits);
  if (value && *value > 0) return *value;
  fail(fmt::format("'{}{}' should be {} and a positive number such as 1e-6", letter, printable(*digits), letter));
}

bool ProblemLine::flag(std::string_view text) {
  const auto word = std::find_if(words_.begin(), words_.end(), [&](const Word& w) { return w.text == text; });
  if (word == words_.end()) return false;
  word->used = true;
  return true;
}

Dtype ProblemLine::dtype(Dtype otherwise) {
  std::optional<Dtype> found;
  for (Word& word : words_) {
    const auto dtype = parse_dtype(word.text);
    if (!dtype) continue;
    if (found) fail("it names two dtypes");
    word.used = true;
    found = dtype;
  }
  return found.value_or(otherwise);
}

void ProblemLine::finish() const {
  for (const Word& word : words_) {
    if (!word.used) fail(fmt::format("unknown word '{}'", printable(word.text)));
  }
}

void ProblemLine::fail(const std::string& what) const {
  throw UsageError(fmt::format("problem '{}': {}; a problem reads '{}'", printable(line_), what, usage_));
}

std::optional<Dtype> dtype_of(std::string_view line) {
  for (const std::string& word : split(line)) {
    if (const auto dtype = parse_dtype(word)) return dtype;
  }
  return std::nullopt;
}

}  // namespace ladder
