// Refused: asks for ladder::backend::set_schedule
#include "core/backend.h"

namespace ladder {

void launch(Stream) { backend::set_schedule("asc"); }

}  // namespace ladder
