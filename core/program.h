// A program's main(): its streams, its exit status and the line that says why it failed.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace ladder {

// The exit status of a program: that of run(), 2 after a UsageError, 1 after another exception, whose words follow `name`
// on standard error, and 1 where standard output did not take what was printed, as on a full disk. A standard stream that
// the caller has closed is /dev/null before run() starts, so no file of the program gets its number.
int program_status(std::string_view name, const std::function<int()>& run);

// Prints "NAME: WORDS" on standard error. Words may come from a file or another process: control characters are replaced,
// and long words are cut.
void print_error(std::string_view name, std::string words);

}  // namespace ladder
