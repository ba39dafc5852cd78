// Idea:   a row of blocks is one image, a thread four neighbouring elements of it and one store.
// Parent: v01.
// Why:    all threads ask for their image's number at once and work out where the elements lie in the mirrored image
//         while it is in flight: two divisions for four elements, where v01 has three for each, two of them in front of
//         it. A quarter of the stores, and no branch. Limiter: at 32 images of 64x64x3 the launch, and two loads, one
//         after the other.
// Needs:  nothing; single elements where an image is no multiple of four.

#include "dev/diffusion/quads.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::diffusion {
namespace {

constexpr int kThreads = 128;

// 1 / 127.5 as the sum of two floats: a pixel's quotient is v01's, without a division's branch for zero, a black pixel.
constexpr float kReciprocal = 1.0f / 127.5f;
constexpr float kRest = static_cast<float>(1.0 / 127.5 - double{kReciprocal});
constexpr bool quotients_are_exact() {
  for (int pixel = 0; pixel < 256; ++pixel) {
    const auto value = static_cast<float>(pixel);
    if (static_cast<float>(double{value} * double{kReciprocal} + double{value * kRest}) != value / 127.5f) return false;
  }
  return true;
}
static_assert(quotients_are_exact(), "rounded once from what a double holds, as fmaf does");

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    diffusion_batch_v02_kernel(unsigned image, unsigned row, unsigned c, const std::uint8_t* pixels,
                               const std::int32_t* index, T* x0) {
  const unsigned first = (blockIdx.x * kThreads + threadIdx.x) * kWidth;
  if (first >= image) return;
  ptx::grid_dependency_wait();
  const std::int64_t number = index[blockIdx.y];

  // Element offsets in the mirrored image. NOTE: with a branch that loads four bytes at once where it is not mirrored,
  // the compiler puts this after the arrival of the image's number.
  unsigned in_row = first % row;
  unsigned channel = first % c;  // a row is whole pixels
  unsigned mirrored[kWidth];
#pragma unroll
  for (int v = 0; v < kWidth; ++v) {
    mirrored[v] = first + v + row - c - 2 * (in_row - channel);
    if (++channel == c) channel = 0;
    if (++in_row == row) in_row = 0;
  }

  const bool is_mirrored = number < 0;
  const std::uint8_t* const from = pixels + (is_mirrored ? -1 - number : number) * image;
  unsigned bytes[kWidth];
#pragma unroll
  for (int v = 0; v < kWidth; ++v) bytes[v] = from[is_mirrored ? mirrored[v] : first + v];

  ptx::grid_dependency_launch();
  float values[kWidth];
#pragma unroll
  for (int v = 0; v < kWidth; ++v) {
    const auto value = static_cast<float>(bytes[v]);
    values[v] = fmaf(value, kReciprocal, value * kRest) - 1.0f;
  }
  T* const to = x0 + blockIdx.y * image + first;
  if constexpr (kWidth == 4) {
    *reinterpret_cast<Quad<T>*>(to) = pack_quad<T>(values);
  } else {
    *to = from_float<T>(values[0]);
  }
}

void launch(const Problem& p, const Batch::Tensors& t, void*, Stream stream) {
  const auto run = [&](auto element, auto width) {
    using T = decltype(element);
    const dim3 grid(stream_blocks(p.image(), kThreads, width), static_cast<unsigned>(p.n));
    ladder::launch(diffusion_batch_v02_kernel<T, width>, {.grid = grid, .block = kThreads, .overlaps_previous = true},
                   stream, p.image(), p.w * p.c, p.c, t.pixels, t.index, static_cast<T*>(t.x0));
  };
  with_vector_width(p, run);
}

}  // namespace
}  // namespace ladder::diffusion

LADDER_VERSION(ladder::diffusion::Batch, {.launch = ladder::diffusion::launch,
                                          .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})
