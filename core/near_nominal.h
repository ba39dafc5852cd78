// Inputs that are near a value the formula asks for, and differ from draw to draw: for Pass::derive().
#pragma once

#include <algorithm>
#include <cmath>

namespace ladder {

// A value within an eighth of `nominal`: `drawn` where it is that, so that a second call changes nothing; else
// nominal (1 + drawn / 64), with `drawn` clamped to [-7.9, 7.9]. 0 and infinities are themselves.
inline float near_nominal(float nominal, float drawn) {
  if (std::abs(drawn - nominal) < std::abs(nominal) / 8) return drawn;
  return nominal * (1 + std::clamp(drawn, -7.9f, 7.9f) / 64);
}

}  // namespace ladder
