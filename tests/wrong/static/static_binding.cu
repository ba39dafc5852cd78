// Refused: keeps ladder::bind(void*)::last
#include "core/kernel.h"

namespace ladder {

BoundLaunch bind(void* tensors) {
  static void* last = nullptr;
  last = tensors;
  return [](Stream) { *static_cast<float*>(last) = 0; };
}

}  // namespace ladder
