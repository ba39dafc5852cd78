#include "core/program.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <string>

#include "core/error.h"

namespace ladder {
namespace {

void open_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    // The lowest number that is free is this one.
    if (fcntl(stream, F_GETFD) == -1 && open("/dev/null", O_RDWR) != stream) return;
  }
}

// Empty where standard output has taken all that was printed, or its reader has ended first.
std::string lost_output() {
  errno = 0;
  const bool has_failed = !std::cout.flush() || std::ferror(stdout) != 0;
  const bool is_flushed = std::fflush(stdout) == 0;
  if ((is_flushed && !has_failed) || errno == EPIPE) return "";
  return std::string("standard output: ") +
         (errno != 0 ? std::strerror(errno) : "it did not take all that was printed");
}

}  // namespace

void print_error(std::string_view name, std::string words) {
  constexpr std::size_t kLongest = 4000;
  if (words.size() > kLongest) words = words.substr(0, kLongest) + "...";
  for (char& c : words) {
    if ((static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\t') || c == '\x7f') c = '?';
  }
  const std::string line = (name.empty() ? "" : std::string(name) + ": ") + words + '\n';
  std::fputs(line.c_str(), stderr);
}

int program_status(std::string_view name, const std::function<int()>& run) {
  open_closed_streams();
  int status = 1;
  try {
    status = run();
  } catch (const UsageError& error) {
    print_error(name, error.what());
    status = 2;
  } catch (const std::exception& error) {
    print_error(name, error.what());
  }
  const std::string lost = lost_output();
  if (status != 0 || lost.empty()) return status;
  print_error(name, lost);
  return 1;
}

}  // namespace ladder
