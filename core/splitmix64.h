// SplitMix64 (Steele, Lea and Flood 2014): neighbouring numbers give independent-looking words.
#pragma once

#include <cstdint>

namespace ladder {

inline constexpr std::uint64_t kSplitmixGamma = 0x9e3779b97f4a7c15u;  // from one state to the next

// Its finaliser.
constexpr std::uint64_t splitmix64_mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// The word that follows a state.
constexpr std::uint64_t splitmix64(std::uint64_t state) { return splitmix64_mix(state + kSplitmixGamma); }

}  // namespace ladder
