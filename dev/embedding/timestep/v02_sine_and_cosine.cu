// Idea:   one thread computes the cosine and the sine of one angle, in blocks of two warps.
// Parent: v01.
// Why:    exponential and range reduction serve both, and small blocks spread 1024 angles over 16 SMs rather than four.
//         Limiter: the launch. Vectors would only make threads fewer and their chains longer: 8 KB are no traffic.
// Needs:  nothing.

#include "dev/common/wide.h"
#include "dev/embedding/angle.h"

namespace ladder::embedding {
namespace {

constexpr int kThreads = 64;

template <class Time, class T>
__global__ void __launch_bounds__(kThreads)
    embedding_timestep_v02_kernel(unsigned n, unsigned c, unsigned half, const Time* t, T* y) {
  const unsigned index = blockIdx.x * kThreads + threadIdx.x;
  const unsigned image = index / half;
  const unsigned frequency = index - image * half;
  if (image >= n) return;
  float sine = 0;
  float cosine = 0;
  sincosf(angle(t[image], static_cast<int>(frequency), static_cast<int>(half)), &sine, &cosine);
  T* const row = y + image * c;
  row[frequency] = from_float<T>(cosine);
  row[half + frequency] = from_float<T>(sine);
  if (c % 2 != 0 && frequency == 0) row[c - 1] = from_float<T>(0.0f);
}

void launch(const Problem& p, const Timestep::Tensors& t, void*, Stream stream) {
  dispatch_types(p, [&](auto time, auto element) {
    using Time = decltype(time);
    using T = decltype(element);
    const std::int64_t angles = std::int64_t{p.n} * p.half();
    ladder::launch(embedding_timestep_v02_kernel<Time, T>,
                   {.grid = stream_blocks(angles, kThreads, 1), .block = kThreads}, stream, p.n, p.c, p.half(),
                   static_cast<const Time*>(t.t), static_cast<T*>(t.y));
  });
}

}  // namespace
}  // namespace ladder::embedding

LADDER_VERSION(ladder::embedding::Timestep, {.launch = ladder::embedding::launch,
                                             .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})
