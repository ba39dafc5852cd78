#include "core/simt/sanitizer.h"

#if defined(LADDER_TSAN)
// The longest history of accesses: whether a race is reported must not depend on how long ago the other access was.
extern "C" const char* __tsan_default_options() { return "history_size=7"; }
#endif
