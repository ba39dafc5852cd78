// Convolutions with so few channels on one side, such as an image's three, that tiles of 16-byte rows are mostly
// padding: helpers of their versions.
//
// convolve_few_channels() is the convolution of an image with few channels, forward (fprop) or as the data gradient of a
// convolution to few channels, which is the same with other weights (dgrad). Seen as a matrix product, a K step of 16 is a
// row of the filter: three taps of four channels each, and a fourth of zeros.
#pragma once

#include "core/numeric.h"
#include "dev/common/parameter_type.h"
#include "dev/common/vectors.h"
#include "dev/conv3x3/conv3x3.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/mma.h"

namespace ladder::conv3x3 {

constexpr int kFewChannels = 4;  // at most, and stored padded to four: 8 bytes

// Few channels of a pixel, or of a tap of an output, loaded from global memory and padded to four.
template <class T>
struct PaddedChannels {
  static_assert(sizeof(T) == 2);
  alignas(8) T channel[kFewChannels];

  // Loads `count` channels, `stride` apart, and zeros after them. If `exists` is false all are zeros, but `from` is
  // read all the same: loads without branches, so that many are in flight at a time.
  __device__ __forceinline__ void load(const T* from, int stride, int count, bool exists) {
    const T zero = from_float<T>(0.0f);
#pragma unroll
    for (int i = 0; i < kFewChannels; ++i) channel[i] = i < count ? from[i * stride] : zero;
#pragma unroll
    for (int i = 0; i < kFewChannels; ++i) channel[i] = exists ? channel[i] : zero;
  }
  __device__ __forceinline__ uint2 bits() const { return *reinterpret_cast<const uint2*>(channel); }
};

constexpr int kFewRows = 16;  // of the pixels of a block
constexpr int kFewCols = 32;
constexpr int kFewHaloCols = kFewCols + 2;
constexpr int kFewHaloPixels = (kFewRows + 2) * kFewHaloCols;
constexpr int kFewOutputs = 64;  // output channels of a block
constexpr int kFewWarps = 8;
constexpr int kFewThreads = kFewWarps * 32;
constexpr int kFewBlocksPerSm = 2;  // 256 tiles of the U-Net's 32 images of 64 x 64 are one wave

struct FewSmem {
  uint2 patch[kFewHaloPixels];       // four channels a pixel
  uint2 weights[3][kFewOutputs][4];  // [r][weight_row(output)][s]: four channels; s = 3 is not used
  float bias[kFewOutputs];
};

// Row of an output channel's weights, permuted so that the rows that lanes 0 to 15 read together cover all banks.
__device__ __forceinline__ int weight_row(int output) { return output ^ (output >> 3 & 3); }

// The weight of (output, tap, input) is first[output * by_output + tap * by_tap + input * by_input].
template <class T>
struct FewWeights {
  const T* first;
  int by_output, by_tap, by_input;
};

inline unsigned num_few_blocks(const Problem& p) {
  return static_cast<unsigned>(p.n * ceil_div(p.h, kFewRows) * ceil_div(p.w, kFewCols) * ceil_div(p.k, kFewOutputs));
}

// Computes a block's 16 x 32 pixels and 64 output channels of y = bias + w * x, where p.c is at most kFewChannels.
// Called by all kFewThreads threads. x [n, h, w, c], y [n, h, w, k]; bias [k] or null. kOutputsAdjacent: channels of y
// are adjacent in w.
template <bool kOutputsAdjacent, class T, class P>
__device__ __forceinline__ void convolve_few_channels(const Problem& p, const T* x, const FewWeights<T>& weights,
                                                      const P* bias, T* y, FewSmem& smem) {
  const int tiles_k = ceil_div(p.k, kFewOutputs);
  const int tiles_w = ceil_div(p.w, kFewCols);
  const int tiles_h = ceil_div(p.h, kFewRows);
  const int k0 = blockIdx.x % tiles_k * kFewOutputs;
  const int col0 = blockIdx.x / tiles_k % tiles_w * kFewCols;
  const int row0 = blockIdx.x / tiles_k / tiles_w % tiles_h * kFewRows;
  const int image = blockIdx.x / tiles_k / tiles_w / tiles_h;

  ptx::grid_dependency_wait();
  // Load the patch, its halo and all weights: every load is in flight before the first one is waited for.
  constexpr int kPatchRounds = ceil_div(kFewHaloPixels, kFewThreads);
  PaddedChannels<T> pixels[kPatchRounds];
#pragma unroll
  for (int i = 0; i < kPatchRounds; ++i) {
    const int pixel_idx = i * kFewThreads + threadIdx.x;
    const int row = row0 + pixel_idx / kFewHaloCols - 1;
    const int col = col0 + pixel_idx % kFewHaloCols - 1;
    const bool inside = pixel_idx < kFewHaloPixels && static_cast<unsigned>(row) < static_cast<unsigned>(p.h) &&
                        static_cast<unsigned>(col) < static_cast<unsigned>(p.w);
    pixels[i].load(x + (inside ? ((image * p.h + row) * p.w + col) * p.c : 0), 1, p.c, inside);
  }
  constexpr int kWeights = kFewOutputs * 9;
  constexpr int kWeightRounds = ceil_div(kWeights, kFewThreads);
  PaddedChannels<T> taps[kWeightRounds];
  // Neighbouring threads load adjacent elements of w.
  const auto output_of = [&](int weight_idx) { return kOutputsAdjacent ? weight_idx % kFewOutputs : weight_idx / 9; };
  const auto tap_of = [&](int weight_idx) { return kOutputsAdjacent ? weight_idx / kFewOutputs : weight_idx % 9; };
#pragma unroll
  for (int i = 0; i < kWeightRounds; ++i) {
    const int weight_idx = i * kFewThreads + threadIdx.x;
    const int output = k0 + output_of(weight_idx);
    const bool exists = weight_idx < kWeights && output < p.k;
    const int from = exists ? output * weights.by_output + tap_of(weight_idx) * weights.by_tap : 0;
    taps[i].load(weights.first + from, weights.by_input, p.c, exists);
  }
  if (threadIdx.x < kFewOutputs) {
    const int k = k0 + static_cast<int>(threadIdx.x);
    smem.bias[threadIdx.x] = bias && k < p.k ? to_float(bias[k]) : 0.0f;
  }
  ptx::grid_dependency_launch();
#pragma unroll
  for (int i = 0; i < kPatchRounds; ++i) {
    const int pixel_idx = i * kFewThreads + threadIdx.x;
    if (pixel_idx < kFewHaloPixels) smem.patch[pixel_idx] = pixels[i].bits();
  }
#pragma unroll
  for (int i = 0; i < kWeightRounds; ++i) {
    const int weight_idx = i * kFewThreads + threadIdx.x;
    if (weight_idx < kWeights)
      smem.weights[tap_of(weight_idx) / 3][weight_row(output_of(weight_idx))][tap_of(weight_idx) % 3] = taps[i].bits();
  }
  __syncthreads();

  // M is outputs and N pixels. Lane (g, t) has tap s = t of pixel g: channels 0 and 1 where the mma has k = 2t, 2t + 1,
  // and 2 and 3 where it has k = 2t + 8, 2t + 9, so that 8 bytes are a fragment. Rows g and g + 8 of M tile m are outputs
  // 8g + 2m and 8g + 2m + 1, so that a lane's sums of a pixel are 16 bytes of y, and eight lanes' sums a line.
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int g = lane / 4;
  const int t = lane % 4;
  std::uint32_t a[3][4][4];
  float first_sum[4][2];
#pragma unroll
  for (int m = 0; m < 4; ++m) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int output = g * 8 + m * 2 + e;
      first_sum[m][e] = smem.bias[output];
#pragma unroll
      for (int r = 0; r < 3; ++r) {
        const uint2 four = t < 3 ? smem.weights[r][weight_row(output)][t] : uint2{0, 0};
        a[r][m][e] = four.x, a[r][m][e + 2] = four.y;
      }
    }
  }
  const int k = k0 + g * 8;
  // A warp takes 16 pixels of a row at a time.
  constexpr int kColGroups = kFewCols / 16;
  const int warp_col = warp % kColGroups * 16;
#pragma unroll 1
  for (int row = warp / kColGroups; row < kFewRows; row += kFewWarps / kColGroups) {
    if (row0 + row >= p.h) break;
#pragma unroll
    for (int eight = 0; eight < 16; eight += 8) {
      float sum[4][4];
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        sum[m][0] = sum[m][1] = first_sum[m][0];
        sum[m][2] = sum[m][3] = first_sum[m][1];
      }
#pragma unroll
      for (int r = 0; r < 3; ++r) {
        // NOTE: the fourth tap's weights are zeros, and its pixels must be, too: zero times infinity is not.
        const uint2* const from = smem.patch + (row + r) * kFewHaloCols + warp_col + eight + g + t;
        const uint2 four = t < 3 ? *from : uint2{0, 0};
#pragma unroll
        for (int m = 0; m < 4; ++m) ptx::mma_m16n8k16<T>(sum[m], a[r][m], {four.x, four.y});
      }
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int col = col0 + warp_col + eight + t * 2 + e;
        if (col >= p.w || k >= p.k) continue;
        const float run[8] = {sum[0][e], sum[0][e + 2], sum[1][e], sum[1][e + 2],
                              sum[2][e], sum[2][e + 2], sum[3][e], sum[3][e + 2]};
        T* const to = y + ((image * p.h + row0 + row) * p.w + col) * p.k + k;
        if (p.k % 8 == 0) {
          *reinterpret_cast<uint4*>(to) = pack<T>(run);
        } else {
#pragma unroll
          for (int j = 0; j < 8; ++j) {
            if (k + j < p.k) to[j] = from_float<T>(run[j]);
          }
        }
      }
    }
  }
}

}  // namespace ladder::conv3x3
