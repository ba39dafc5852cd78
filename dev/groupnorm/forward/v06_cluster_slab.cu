// Idea:   the slab is spread over the shared memory of a cluster's blocks, which exchange their sums through it.
// Parent: v05.
// Why:    a cluster of 8 keeps an image of 64x64 with rows of 64 bytes at 32 KB a block, so that several blocks share an SM
//         and one's loads overlap another's arithmetic. Limiter: every element goes into shared memory and twice out of
//         it, and a cluster's blocks start together.
// Needs:  whole vectors in a pixel and in some number of groups; a slab of 8 x 64 KB at most; sm_90a's clusters.

#include "dev/groupnorm/slab/slab_normalise.h"
#include "dev/ptx/cp_async.h"

namespace ladder::groupnorm {
namespace {

template <class T, int kSpan, class Act>
__global__ void __launch_bounds__(512)
    groupnorm_forward_v06_kernel(Problem p, Forward::Tensors t, SlabPlan plan, int sums_bytes) {
  constexpr int kVec = kVector<T>;
  constexpr int kSpans = kVec / kSpan;
  LADDER_DYN_SMEM(smem);
  const SlabOffset tile(p, plan, kVec);
  const auto* const x = static_cast<const T*>(t.x);
  auto* const y = static_cast<T*>(t.y) + tile.offset;
  const int step = p.c << plan.log_rows;  // elements from one of the thread's vectors to the next
  if (plan.cluster > 1) ptx::cluster_arrive_relaxed();

  // Copy the thread's vectors into shared memory. No other thread reads them, so they need no barrier.
  const int threads = plan.threads();
  auto* const local_vectors = reinterpret_cast<uint4*>(smem + sums_bytes) + threadIdx.x;
  const int pixels = tile.num_pixels() - tile.row;
  const int vectors = pixels > 0 ? ((pixels - 1) >> plan.log_rows) + 1 : 0;
#pragma unroll 4
  for (int i = 0; i < vectors; ++i) ptx::cp_async<16>(local_vectors + i * threads, x + tile.offset + i * step, true);
  ptx::cp_async_commit();

  // Meanwhile load pivots and parameters.
  const SpanGroups<kSpan> groups(p, tile, kVec);
  const T* const chunk = x + tile.image * p.h * p.w * p.c + tile.chunk_channel;
  float pivots[kSpans];
  float scale[kVec];
  float shift[kVec];
  load_pivots(groups, chunk, pivots);
  load_parameters(t, tile.chunk_channel + tile.column * kVec, scale, shift);

  // Sum the thread's vectors, then those of the block or the cluster.
  ptx::cp_async_wait<0>();
  float2 sums[kSpans] = {};
#pragma unroll 2
  for (int i = 0; i < vectors; ++i) add_vector<T, kSpan>(local_vectors[i * threads], pivots, sums);
  const float2* const statistics = slab_statistics<T, kSpan, true>(p, plan, tile, sums, smem);

  // Normalise, and store.
  apply_statistics(statistics, groups, scale, shift);
#pragma unroll 2
  for (int i = 0; i < vectors; ++i) {
    *reinterpret_cast<uint4*>(y + i * step) =
        normalised<T, kSpan, Act>(local_vectors[i * threads], pivots, scale, shift);
  }
  store_statistics(p, t, plan, tile, chunk, statistics);
}

SlabPlan plan_of(const Problem& p) {
  return plan_slab(p, {.block_bytes = 64 << 10, .good_block_bytes = 32 << 10, .max_cluster = kMaxClusterBlocks});
}

const char* supports(const Problem& p) {
  if (const char* const why = plain_inputs_only(p)) return why;
  return plan_of(p).channels > 0 ? nullptr : "no chunk of whole groups is whole 16-byte vectors and at most 8 x 64 KB";
}

void launch(const Problem& p, const Forward::Tensors& t, void*, Stream stream) {
  const SlabPlan plan = plan_of(p);
  const std::size_t sums_bytes = (slab_sums_bytes(p, plan) + 15) / 16 * 16;
  const LaunchConfig config{.grid = slab_blocks(p, plan),
                            .block = static_cast<unsigned>(plan.threads()),
                            .dynamic_smem = sums_bytes + std::size_t{16} * plan.vectors_per_thread * plan.threads(),
                            .cluster = static_cast<unsigned>(plan.cluster)};
  dispatch_slab(p, [&](auto element, auto span, auto act) {
    ladder::launch(groupnorm_forward_v06_kernel<decltype(element), decltype(span)::value, decltype(act)>, config,
                   stream, p, t, plan, sums_bytes);
  });
}

}  // namespace
}  // namespace ladder::groupnorm

LADDER_VERSION(ladder::groupnorm::Forward, {.launch = ladder::groupnorm::launch,
                                            .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                            .supports = ladder::groupnorm::supports,
                                            .min_arch = 90})
