// Patches with their halo, loaded into shared memory by the TMA and read by wgmma: all nine taps read one copy, each
// from a start address shifted by rows of pixels.
#pragma once

#include "dev/conv3x3/patches.h"
#include "dev/ptx/tma.h"
#include "dev/ptx/wgmma.h"

namespace ladder::conv3x3 {

inline constexpr int kRowBytes = 128;  // of a pixel: a chunk of its channels, 64 of 16 bits or 32 of tf32
inline constexpr int kHaloBytes = kHaloPixels * kRowBytes;
inline constexpr int kPatchBytes = (kHaloBytes + 1023) / 1024 * 1024;  // a whole number of swizzle patterns
static_assert(kPatchPixels == 64, "the rows of a wgmma");

// Tensor map of `image` [n, h, w, channels]: a box is a chunk of channels of a patch and its halo.
inline ptx::TensorMap halo_map(const Problem& p, const void* image, int channels) {
  const auto size = [](int value) { return static_cast<std::uint64_t>(value); };
  const auto chunk = static_cast<std::uint32_t>(kRowBytes / size_of(p.dtype));
  return ptx::make_tensor_map(p.dtype, image, {size(channels), size(p.w), size(p.h), size(p.n)},
                              {chunk, kHalo, kHalo, 1});
}

// Tensor map of w [k][9][c]: a box is `channels_k` x `channels_c` channels of a tap.
inline ptx::TensorMap weight_map(const Problem& p, const void* w, int channels_k, int channels_c) {
  const auto size = [](int value) { return static_cast<std::uint64_t>(value); };
  return ptx::make_tensor_map(p.dtype, w, {size(p.c), 9, size(p.k)},
                              {static_cast<std::uint32_t>(channels_c), 1, static_cast<std::uint32_t>(channels_k)});
}

// Starts the load of a chunk of channels, from `channel` on, of a patch and its halo. Called by one thread.
__device__ __forceinline__ void load_patch(unsigned char* to, const ptx::TensorMap& map, ptx::Mbarrier* full,
                                           const PatchPosition& position, int channel) {
  ptx::tma_load(to, map, full, channel, position.col - 1, position.row - 1, position.image);
}

// Descriptor of operand A of a K step: a patch's pixels under a tap, 32 bytes of each row.
//
// NOTE: rows of a patch lie a halo row apart, so groups of eight pixels are 10 x 128 bytes apart.
__device__ __forceinline__ std::uint64_t pixel_operand(const unsigned char* patch, int tap, int step) {
  return ptx::wgmma_descriptor(patch + (tap / 3 * kHalo + tap % 3) * kRowBytes + step * 32, kHalo * kRowBytes);
}

}  // namespace ladder::conv3x3
