// Problems for the cheats of gemm, and element counts of its matrices.
#pragma once

#include <string>
#include <vector>

#include "dev/gemm/gemm.h"

namespace ladder::gemm {

// Problems: a square and benign one, then odd sizes, each of bias, residual and SiLU with and without the others, and
// dgrad's accumulation.
inline std::vector<std::string> wrong_problems() {
  return {"m32 n32 k32",
          "m24 n16 k40 bias",
          "m33 n20 k21 bias residual silu",
          "m40 n24 k24 bias silu",
          "m17 n64 k24 residual silu",
          "m19 n7 k35 bias residual",
          "m21 n28 k26 accumulate",
          "m35 n24 k40 bias params16"};
}

// Problems of dgrad: also dx in two parts. Cheats of other passes read x as one tensor.
inline std::vector<std::string> wrong_problems_of_dgrad() {
  std::vector<std::string> lines = wrong_problems();
  lines.emplace_back("m18 n20 k36 accumulate split12");
  return lines;
}

inline long long size_mn(const Problem& p) { return static_cast<long long>(p.m) * p.n; }
inline long long size_mk(const Problem& p) { return static_cast<long long>(p.m) * p.k; }
inline long long size_nk(const Problem& p) { return static_cast<long long>(p.n) * p.k; }

// Index in layout [k][n] of the element at index i of w or dw, [n][k].
struct Transposed {
  __device__ long long operator()(const Problem& p, long long i) const { return i % p.k * p.n + i / p.k; }
};

}  // namespace ladder::gemm
