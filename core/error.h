// Errors. Library code throws, main() catches: a UsageError is the caller's mistake (exit 2), anything else a
// failure (exit 1). Messages are one line: what was wrong, and what would be right.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace ladder {

struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A kernel was ended that would have run for ever.
struct Endless : Failure {
  using Failure::Failure;
};

// `text` as a message may carry it: in one line, newlines between others being "; " and control characters a space, and
// cut after `most` characters.
std::string one_line(std::string_view text, std::size_t most = std::string::npos);

// Throws Failure with file, line and the text of the condition; `detail` is added after it.
[[noreturn]] void throw_failure(const char* file, int line, const char* condition, const std::string& detail = {});

}  // namespace ladder

// Checks an invariant of ours; a broken one is a bug here, not a usage error. __builtin_LINE() keeps line numbers out of the
// preprocessed tokens: an edited comment changes none of them.
#define LADDER_CHECK(condition, ...)                                                                              \
  do {                                                                                                            \
    if (!(condition)) ::ladder::throw_failure(__FILE__, __builtin_LINE(), #condition __VA_OPT__(, ) __VA_ARGS__); \
  } while (false)
