#include "core/error.h"

namespace ladder {

void throw_failure(const char* file, int line, const char* condition, const std::string& detail) {
  std::string message = std::string(file) + ':' + std::to_string(line) + ": " + condition;
  if (!detail.empty()) message += ": " + detail;
  throw Failure(message);
}

}  // namespace ladder
