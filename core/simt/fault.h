// The emulator's report of a kernel that breaks CUDA's rules.
#pragma once

#include <cstring>

#include "core/error.h"

namespace ladder::simt {

// A broken rule, found while a kernel ran: what happened, source line, thread, block, and the schedule that replays it.
struct Fault : Failure {
  using Failure::Failure;
};

// A place in a kernel's source. As a default argument, `Where where = Where::here()` is the caller's line.
struct Where {
  const char* file = "";
  int line = 0;

  static constexpr Where here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) { return {file, line}; }

  bool operator==(const Where& other) const {
    return line == other.line && (file == other.file || std::strcmp(file, other.file) == 0);
  }
};

}  // namespace ladder::simt
