// What the cheats of conv3x3 are tried on.
#pragma once

#include <string>
#include <vector>

namespace ladder::conv3x3 {

// A square and benign one, then odd sizes and channels, an image that is not square, the first and last layers' three
// channels.
inline std::vector<std::string> wrong_problems() {
  return {"n1 h8 w8 c16 k16",     "n2 h8 w8 c16 k32 bias", "n1 h7 w9 c21 k13 bias",
          "n1 h4 w12 c8 k8 bias", "n2 h5 w5 c3 k24",       "n1 h6 w5 c24 k3"};
}

}  // namespace ladder::conv3x3
