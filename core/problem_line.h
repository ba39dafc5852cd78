// A problem is one line of text: words such as "n32 h64 w64 c64 k64 bias bf16". This reads its words; what they mean is
// the layer's own business (see dev/conv3x3/conv3x3.h for a user).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"

namespace ladder {

class ProblemLine {
 public:
  // Splits `line` at white space. Throws UsageError on an empty line or a repeated word. `usage` is an example line
  // shown in every error.
  ProblemLine(std::string_view line, std::string usage);

  // The number after `letter`, which must stand in the line exactly once, between `least` and `most`.
  std::int64_t size(std::string_view letter, std::int64_t least, std::int64_t most);

  // The same, or `otherwise` where the line has no such word.
  std::int64_t size_or(std::string_view letter, std::int64_t otherwise, std::int64_t least, std::int64_t most);

  // The numbers after `letter`, of which commas stand between ("dims32,64,128"), each between `least` and `most`.
  std::vector<std::int64_t> sizes(std::string_view letter, std::int64_t least, std::int64_t most);

  // The number after `letter`, positive and finite, or `otherwise` where the line has no such word.
  float positive_or(std::string_view letter, float otherwise);

  // True if the bare word stands in the line.
  bool flag(std::string_view word);

  // The line's dtype word, or `otherwise` where it has none.
  Dtype dtype(Dtype otherwise);

  // Throws UsageError if a word was left unread.
  void finish() const;

  [[noreturn]] void fail(const std::string& what) const;

 private:
  struct Word {
    std::string text;
    bool used = false;
  };
  std::optional<std::string_view> take(std::string_view letter);  // the text after `letter`, which may be a number
  std::optional<std::int64_t> integer(std::string_view letter, std::int64_t least, std::int64_t most);

  std::string line_;
  std::string usage_;
  std::vector<Word> words_;
};

// The dtype word of `line`, if it has one.
std::optional<Dtype> dtype_of(std::string_view line);

}  // namespace ladder
