// Idea:   a slab is spread over a cluster: each block keeps x and dy of its share of the pixels in shared memory, and reads
//         the channels' sums of the others out of theirs.
// Parent: v05.
// Why:    a slab may be eight times as large, so that runs have 64 bytes and more where v05 has 16, every group of the U-Net
//         fits, and a small problem spreads over more SMs. Sums of blocks are added in the order of their ranks. Limiter:
//         x and dy pass through shared memory twice and the exponential is computed twice.
// Needs:  c in whole vectors of sixteen bytes, a slab that fits in eight blocks' shared memory, clusters (sm_90); a
//         workspace of two floats a channel of every image.

#include "dev/groupnorm/gradient_slab.h"
#include "dev/groupnorm/parameter_gradients.h"
#include "dev/ptx/cluster.h"
#include "dev/ptx/cp_async.h"

namespace ladder::groupnorm {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerSm = 2;

template <class T, class Act>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    groupnorm_backward_v06_kernel(Problem p, Backward::Tensors t, Slab slab, float2* rows) {
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
  ptx::cluster_sync();
  correct(p, t, slab, place, smem, place.rank == 0 ? rows : nullptr, [&](int i) {
    float2 sum{0, 0};
    for (int rank = 0; rank < slab.cluster; ++rank) {
      const float2 part = ptx::ld_shared_cluster(ptx::mapa(smem.sums + i, rank));
      sum.x += part.x, sum.y += part.y;
    }
    return sum;
  });
  ptx::cluster_arrive_relaxed();  // it has read the others' sums

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
  ptx::cluster_wait();  // the others have read its sums: it may end
}

template <class T>
int smem_bytes(const Slab& slab) {
  return slab.steps() * slab.active() * 2 * 16 + SlabSums<T>::bytes(slab);
}

template <class T>
Slab plan(const Problem& p) {
  return best_slab<T>(p, kMostClusterBlocks, kThreads,
                      [&](const Slab& slab) { return slab_ns(p, slab, smem_bytes<T>(slab), kBlocksPerSm); });
}

const char* supports(const Problem& p) {
  if (!whole_vectors(p)) return "a pixel's channels are no whole vectors of 16 bytes";
  const char* reason = nullptr;
  with_storage_type(p.dtype, [&](auto element) {
    if (plan<decltype(element)>(p).chunk == 0)
      reason = "x and dy of an image's group do not fit in the shared memory of eight blocks";
  });
  return reason;
}

std::size_t workspace_bytes(const Problem& p) { return sizeof(float2) * p.n * p.c; }

void launch(const Problem& p, const Backward::Tensors& t, void* workspace, Stream stream) {
  auto* const rows = p.affine ? static_cast<float2*>(workspace) : nullptr;  // [n][c]
  dispatch_types(p, [&](auto element, auto act) {
    using T = decltype(element);
    const Slab slab = plan<T>(p);
    ladder::launch(groupnorm_backward_v06_kernel<T, decltype(act)>,
                   {.grid = slab_blocks(p, slab),
                    .block = slab_threads(slab),
                    .dynamic_smem = static_cast<std::size_t>(smem_bytes<T>(slab)),
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
                                             .needs = "whole vectors; slabs that fit in eight blocks' shared memory"})
