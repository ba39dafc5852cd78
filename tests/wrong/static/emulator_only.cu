// Refused: asks for ladder::backend::kind
#include "core/backend.h"

namespace ladder {

bool is_honest() { return backend::kind() == backend::Kind::emulator; }

}  // namespace ladder
