#include "core/error.h"

namespace ladder {

std::string one_line(std::string_view text, std::size_t most) {
  std::string line;
  std::string gap;  // what stands for the control characters after `line`
  for (const char c : text) {
    const bool is_control = static_cast<unsigned char>(c) < ' ' || c == '\x7f';
    if (c == '\n') {
      gap = "; ";
    } else if (is_control) {
      if (gap.empty()) gap = ' ';
    } else {
      if (!line.empty()) line += gap;
      line += c;
      gap.clear();
    }
  }
  return line.size() > most ? line.substr(0, most) + "..." : line;
}

void throw_failure(const char* file, int line, const char* condition, const std::string& detail) {
  std::string message = std::string(file) + ':' + std::to_string(line) + ": " + condition;
  if (!detail.empty()) message += ": " + detail;
  throw Failure(message);
}

}  // namespace ladder
