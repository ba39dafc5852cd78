// What the cheats of attention are tried on.
#pragma once

#include <string>
#include <vector>

#include "dev/attention/attention.h"

namespace ladder::attention {

// Whole tiles first; then tails, several images, an odd number of heads; a wide head; so many tokens that 16-bit sums show.
inline std::vector<std::string> wrong_problems() {
  return {"n1 t48 heads2 d32", "n2 t21 heads3 d32", "n1 t13 heads2 d64", "n1 t200 heads1 d32"};
}

}  // namespace ladder::attention
