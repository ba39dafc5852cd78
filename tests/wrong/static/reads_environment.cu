// Refused: asks for getenv
#include <cstdlib>

namespace ladder {

bool is_checked() { return std::getenv("LADDER_TEST_SCHEDULES") != nullptr; }

}  // namespace ladder
