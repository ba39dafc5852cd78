// Refused: asks for std::thread
#include <thread>

namespace ladder {

void launch(float* y) {
  std::thread([y] { *y = 0; }).detach();
}

}  // namespace ladder
