// Idea:   a block owns a chunk of channels of an image, whole groups, and keeps x and dy of all its pixels in shared memory
//         between the sums and dx.
// Parent: v04.
// Why:    two reads and one write instead of four and one, and a block waits for no other: reading, summing and writing of
//         blocks on one SM overlap. A thread reads back what it copied itself, so the slab needs no barrier. Limiter: an
//         image of 64x64 fills an SM with 8 channels, runs of 16 bytes, and each block's phases stand idle.
// Needs:  c in whole vectors of sixteen bytes, a slab that fits in shared memory, cp.async; a workspace of two floats a
//         channel of every image.

#include "dev/groupnorm/gradient_slab.h"
#include "dev/groupnorm/parameter_gradients.h"
#include "dev/ptx/cp_async.h"

namespace ladder::groupnorm {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerSm = 2;

template <class T, class Act>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    groupnorm_backward_v05_kernel(Problem p, Backward::Tensors t, Slab slab, float2* rows) {
  LADDER_DYN_SMEM(raw);
  uint4* const xs = reinterpret_cast<uint4*>(raw);  // [steps][active]
  uint4* const dys = xs + slab.steps() * slab.active();
  const SlabSums<T> smem(reinterpret_cast<unsigned char*>(dys + slab.steps() * slab.active()), slab);
  const SlabPlace<T> place(p, slab);
  constexpr int kVec = kVector<T>;

  // Everything is on its way at once.
  int slot = threadIdx.x;
  for (int pixel = place.begin; pixel < place.end; pixel += slab.rows, slot += slab.active()) {
    const int at = place.at(p, pixel);
    ptx::cp_async<16>(&xs[slot], static_cast<const T*>(t.x) + at, true);
    ptx::cp_async<16>(&dys[slot], static_cast<const T*>(t.dy) + at, true);
  }
  ptx::cp_async_commit();
  load_channels(p, t, slab, place, smem);
  __syncthreads();
  Channel channels[kVec];
#pragma unroll
  for (int i = 0; i < kVec; ++i) channels[i] = smem.channels[place.column * kVec + i];
  ptx::cp_async_wait<0>();

  float2 sums[kVec] = {};
  slot = threadIdx.x;
  for (int pixel = place.begin; pixel < place.end; pixel += slab.rows, slot += slab.active()) {
    float x[kVec];
    float dy[kVec];
    unpack<T>(xs[slot], x);
    unpack<T>(dys[slot], dy);
#pragma unroll
    for (int i = 0; i < kVec; ++i) add_terms<Act>(channels[i], x[i], dy[i], sums[i]);
  }
  sum_rows(slab, smem, sums);
  __syncthreads();
  correct(p, t, slab, place, smem, rows, [&](int i) { return smem.sums[i]; });

  Correction corrections[kVec];
#pragma unroll
  for (int i = 0; i < kVec; ++i) corrections[i] = smem.corrections[place.column * kVec + i];
  slot = threadIdx.x;
  for (int pixel = place.begin; pixel < place.end; pixel += slab.rows, slot += slab.active()) {
    float x[kVec];
    float dy[kVec];
    float dx[kVec];
    unpack<T>(xs[slot], x);
    unpack<T>(dys[slot], dy);
#pragma unroll
    for (int i = 0; i < kVec; ++i) dx[i] = dx_of(channels[i], corrections[i], x[i], dy[i], Act{});
    *reinterpret_cast<uint4*>(static_cast<T*>(t.dx) + place.at(p, pixel)) = pack<T>(dx);
  }
}

template <class T>
int smem_bytes(const Slab& slab) {
  return slab.steps() * slab.active() * 2 * 16 + SlabSums<T>::bytes(slab);
}

template <class T>
Slab plan(const Problem& p) {
  return best_slab<T>(p, 1, kThreads,
                      [&](const Slab& slab) { return slab_ns(p, slab, smem_bytes<T>(slab), kBlocksPerSm); });
}

const char* supports(const Problem& p) {
  if (!whole_vectors(p)) return "a pixel's channels are no whole vectors of 16 bytes";
  const char* reason = nullptr;
  with_storage_type(p.dtype, [&](auto element) {
    if (plan<decltype(element)>(p).chunk == 0) reason = "x and dy of an image's group do not fit in shared memory";
  });
  return reason;
}

std::size_t workspace_bytes(const Problem& p) { return sizeof(float2) * p.n * p.c; }

void launch(const Problem& p, const Backward::Tensors& t, void* workspace, Stream stream) {
  auto* const rows = p.affine ? static_cast<float2*>(workspace) : nullptr;  // [n][c]
  dispatch_types(p, [&](auto element, auto act) {
    using T = decltype(element);
    const Slab slab = plan<T>(p);
    ladder::launch(groupnorm_backward_v05_kernel<T, decltype(act)>,
                   {.grid = slab_blocks(p, slab),
                    .block = slab_threads(slab),
                    .dynamic_smem = static_cast<std::size_t>(smem_bytes<T>(slab))},
                   stream, p, t, slab, rows);
  });
  launch_parameters(p, rows, p.n, t, stream);
}

}  // namespace
}  // namespace ladder::groupnorm

LADDER_VERSION(ladder::groupnorm::Backward, {.launch = ladder::groupnorm::launch,
                                             .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                             .supports = ladder::groupnorm::supports,
                                             .workspace_bytes = ladder::groupnorm::workspace_bytes,
                                             .min_arch = 80,
                                             .needs = "whole vectors; slabs that fit in shared memory"})
