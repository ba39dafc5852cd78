// Refused: asks for std::chrono
#include <chrono>

namespace ladder {

bool is_warm(std::chrono::steady_clock::time_point last) {
  return std::chrono::steady_clock::now() - last < std::chrono::microseconds(50);
}

}  // namespace ladder
