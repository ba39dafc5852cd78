// Idea:   the slab stays in registers: x as it came, and dz in fp32 in place of dy.
// Parent: v06.
// Why:    nothing passes through shared memory but sums and constants, the exponential is computed once an element instead
//         of twice, and all of a block's loads are in flight before its first instruction of arithmetic. Limiter: an SM's
//         registers hold a quarter of what its shared memory does, hence shorter runs of channels; the second kernel
//         for dgamma and dbeta.
// Needs:  c in whole vectors of sixteen bytes, a slab that fits in eight blocks' registers, clusters (sm_90); a workspace
//         of two floats a channel of every image.

#include "dev/groupnorm/gradient_slab.h"
#include "dev/groupnorm/parameter_gradients.h"
#include "dev/groupnorm/register_plan.h"
#include "dev/ptx/cluster_barrier.h"
#include "dev/ptx/ld_shared_cluster.h"

namespace ladder::groupnorm {
namespace {

template <class T, class Act, int kSteps, int kThreads>
__global__ void __launch_bounds__(kThreads, 512 / kThreads)
    groupnorm_backward_v07_kernel(Problem p, Backward::Tensors t, Slab slab, float2* rows) {
  LADDER_DYN_SMEM(raw);
  const SlabSums<T> smem(raw, slab);
  const SlabPlace<T> place(p, slab);
  constexpr int kVec = kVector<T>;

  // Everything is on its way at once.
  uint4 x[kSteps];
  uint4 dy[kSteps];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int pixel = place.begin + step * slab.rows;
    if (pixel >= place.end) break;
    const int at = place.at(p, pixel);
    x[step] = *reinterpret_cast<const uint4*>(static_cast<const T*>(t.x) + at);
    dy[step] = *reinterpret_cast<const uint4*>(static_cast<const T*>(t.dy) + at);
  }
  load_channels(p, t, slab, place, smem);
  __syncthreads();

  // dz, and sums of a thread, then of the block.
  const Channel* const channels = smem.channels + place.column * kVec;
  float dz[kSteps][kVec];
  float2 sums[kVec] = {};
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    if (place.begin + step * slab.rows >= place.end) break;
    float xs[kVec];
    float dys[kVec];
    unpack<T>(x[step], xs);
    unpack<T>(dy[step], dys);
#pragma unroll
    for (int i = 0; i < kVec; ++i) dz[step][i] = add_terms<Act>(channels[i], xs[i], dys[i], sums[i]);
  }
  sum_rows(slab, smem, sums);
  ptx::cluster_sync();

  // Sums of the image, in the order of the blocks' ranks.
  correct(p, t, slab, place, smem, place.rank == 0 ? rows : nullptr, [&](int i) {
    float2 sum{0, 0};
    for (int rank = 0; rank < slab.cluster; ++rank) {
      const float2 part = ptx::ld_shared_cluster(ptx::mapa(smem.sums + i, rank));
      sum.x += part.x, sum.y += part.y;
    }
    return sum;
  });
  ptx::cluster_arrive_relaxed();  // this block has read the others' sums

  // dx.
  const Correction* const corrections = smem.corrections + place.column * kVec;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int pixel = place.begin + step * slab.rows;
    if (pixel >= place.end) break;
    float xs[kVec];
    float dx[kVec];
    unpack<T>(x[step], xs);
#pragma unroll
    for (int i = 0; i < kVec; ++i) {
      dx[i] = dx_of(channels[i], corrections[i], xs[i] - channels[i].mean, dz[step][i]);
    }
    *reinterpret_cast<uint4*>(static_cast<T*>(t.dx) + place.at(p, pixel)) = pack<T>(dx);
  }
  ptx::cluster_wait();  // the others have read this block's: it may end
}

// Calls f(T{}, Act{}, steps, threads, slab), the numbers as integral constants: the kernel whose thread has that many vectors.
template <class F>
void dispatch_registers(const Problem& p, F&& f) {
  dispatch_types(p, [&](auto element, auto act) {
    using T = decltype(element);
    constexpr int kMax = max_register_steps(sizeof(T));
    const auto [slab, threads] = plan_registers(p);
    if (threads == 512) {
      f(element, act, std::integral_constant<int, kMax>{}, std::integral_constant<int, 512>{}, slab);
    } else if (slab.steps() > kMax / 2) {
      f(element, act, std::integral_constant<int, kMax>{}, std::integral_constant<int, 256>{}, slab);
    } else {
      f(element, act, std::integral_constant<int, kMax / 2>{}, std::integral_constant<int, 256>{}, slab);
    }
  });
}

const char* supports(const Problem& p) {
  if (const char* const why = plain_only(p)) return why;
  if (!whole_vectors(p)) return "a pixel's channels are no whole vectors of 16 bytes";
  if (plan_registers(p).slab.chunk == 0)
    return "x and dy of an image's group do not fit in the registers of eight blocks";
  return nullptr;
}

std::size_t workspace_bytes(const Problem& p) { return sizeof(float2) * p.n * p.c; }

void launch(const Problem& p, const Backward::Tensors& t, void* workspace, Stream stream) {
  auto* const rows = p.affine ? static_cast<float2*>(workspace) : nullptr;  // [n][c]
  dispatch_registers(p, [&](auto element, auto act, auto steps, auto threads, const Slab& slab) {
    using T = decltype(element);
    ladder::launch(groupnorm_backward_v07_kernel<T, decltype(act), steps.value, threads.value>,
                   {.grid = slab_blocks(p, slab),
                    .block = slab_threads(slab),
                    .dynamic_smem = static_cast<std::size_t>(slab_sums_bytes(slab)),
                    .cluster = static_cast<unsigned>(slab.cluster)},
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
                                             .min_arch = 90,
                                             .needs = "whole vectors; slabs that fit in eight blocks' registers"})
