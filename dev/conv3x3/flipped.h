// dgrad computed by a version of fprop: the convolution of dy with weights whose taps are flipped and whose channels
// are exchanged.
//
//     dx = fprop(dy, w'),  w'[c][r][s][k] = w[k][2-r][2-s][c]
//
// w' is computed anew at every launch, as weights change at every step of training.
#pragma once

#include <cstddef>
#include <utility>

#include "core/numeric.h"
#include "dev/conv3x3/conv3x3.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::conv3x3 {

// Returns the forward problem that computes a dgrad problem: c and k are exchanged, so that k is summed over.
inline Problem mirrored(Problem p) {
  std::swap(p.c, p.k);
  p.bias = false;
  p.embedding = p.first = 0;
  p.residual = false;
  return p;
}

constexpr int kFlipTile = 32;
constexpr int kFlipRows = 8;  // of threads

// Transposes a tile of k x c of one tap per block, through shared memory, so that reads run along c and writes along k.
template <class T>
__global__ void conv3x3_dgrad_flip_kernel(Problem p, const T* w, T* flipped) {
  LADDER_SHARED(T, tile, [kFlipTile][kFlipTile + 1]);
  const int tiles_c = ceil_div(p.c, kFlipTile);
  const int tiles_k = ceil_div(p.k, kFlipTile);
  const int c0 = blockIdx.x % tiles_c * kFlipTile;
  const int k0 = blockIdx.x / tiles_c % tiles_k * kFlipTile;
  const int tap = blockIdx.x / tiles_c / tiles_k;
  const int column = threadIdx.x % kFlipTile;
  ptx::grid_dependency_wait();
  for (int row = threadIdx.x / kFlipTile; row < kFlipTile; row += kFlipRows) {
    if (k0 + row < p.k && c0 + column < p.c) tile[row][column] = w[((k0 + row) * 9 + tap) * p.c + c0 + column];
  }
  ptx::grid_dependency_launch();
  __syncthreads();
  for (int row = threadIdx.x / kFlipTile; row < kFlipTile; row += kFlipRows) {
    if (c0 + row < p.c && k0 + column < p.k)
      flipped[((c0 + row) * 9 + 8 - tap) * p.k + k0 + column] = tile[column][row];
  }
}

// Description of a dgrad version that runs version kRung of fprop: each plan of that version, after the flip, under the
// same name. If that version's plan has no name, the plan is "flipped".
template <int kRung>
struct Flipped {
  static const VersionOf<Fprop>& rung() {
    static const VersionOf<Fprop> version = version_of<Fprop>(kRung);
    return version;
  }

  static const char* supports(const Problem& p) { return rung().supports(mirrored(p)); }

  // Bytes of w', which lies before the workspace of the fprop version.
  static std::size_t flipped_bytes(const Problem& p) {
    constexpr std::size_t kAlignment = 256;
    const std::size_t bytes = std::size_t{9} * p.k * p.c * size_of(p.dtype);
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  static std::vector<KernelPlan<Dgrad>> plans(const Problem& p) {
    std::vector<KernelPlan<Dgrad>> plans;
    for (const KernelPlan<Fprop>& forward : rung().plans(mirrored(p))) {
      const auto bind = [p, forward](const Dgrad::Tensors& t, void* workspace) {
        const Fprop::Tensors mirrored_tensors{.x = t.dy, .w = workspace, .bias = nullptr, .y = t.dx};
        return in_order({bind_flip(p, t.w, workspace),
                         forward.bind(mirrored_tensors, static_cast<std::byte*>(workspace) + flipped_bytes(p))});
      };
      plans.push_back({.name = *forward.name ? forward.name : "flipped",
                       .workspace_bytes = flipped_bytes(p) + forward.workspace_bytes,
                       .bind = bind});
    }
    return plans;
  }

 private:
  static BoundLaunch bind_flip(const Problem& p, const void* w, void* flipped) {
    return with_storage_type(p.dtype, [&](auto element) {
      using T = decltype(element);
      const auto blocks = static_cast<unsigned>(9 * ceil_div(p.k, kFlipTile) * ceil_div(p.c, kFlipTile));
      return bind_launch(conv3x3_dgrad_flip_kernel<T>,
                         {.grid = blocks, .block = kFlipTile * kFlipRows, .overlaps_previous = true}, p,
                         static_cast<const T*>(w), static_cast<T*>(flipped));
    });
  }
};

}  // namespace ladder::conv3x3
