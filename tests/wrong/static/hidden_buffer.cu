// Refused: asks for ladder::backend::allocate
#include "core/backend.h"

namespace ladder {

void* answers(std::size_t bytes) { return backend::allocate(bytes); }

}  // namespace ladder
