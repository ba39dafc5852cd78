// The cheats that need to know nothing of a pass but its tensors: each launches an honest version, and spoils its inputs,
// its outputs, its stream or its time. A new pass has them all without a line of its own.
#pragma once

#include <vector>

#include "tests/wrong/cheat.h"

namespace ladder::wrong {

// Made from the pass's version of the lowest number, on cases whose tensors are among those of `problems`; the first is the
// one shape that some of them know. The honest one comes first.
std::vector<Cheat> generic_cheats(const Pass& pass, const std::vector<std::string>& problems);

}  // namespace ladder::wrong
