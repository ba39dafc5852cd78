// Idea:   the slab stays in the registers it was loaded into.
// Parent: v06.
// Why:    v06 moves every element three times through shared memory, and waits for the last of a thread's copies before it
//         adds the first. Here a thread issues all of its loads at once and adds each vector as it comes; two barriers, or
//         one and a cluster's, are all that stands between the last load and the first store. Limiter: memory; in the
//         small images latency: a load, two barriers, a store.
// Needs:  whole vectors in a pixel and in some number of groups; 8 vectors a thread, 512 threads and 8 blocks hold the slab;
//         sm_90a's clusters.
// Spills: up to 16 bytes in fp16 with 8 vectors, on sm_80 alone, where it does not run.

#include "dev/groupnorm/slab_normalise.h"

namespace ladder::groupnorm {
namespace {

constexpr int kMaxThreads = 512;
constexpr int kMaxVectors = 8;
constexpr int kGoodVectors = 4;

// Kernels that hold up to 4 vectors fit 64 registers a thread, so that an SM has 1024 threads, 64 KB in flight, and loads of
// some blocks overlap the arithmetic of others. Kernels that hold 8 take 80 registers, with which two blocks of 384 threads
// still fit. Units of one channel and the longer activations take more.
constexpr int max_threads(int held) { return held <= kGoodVectors ? kMaxThreads : 384; }
template <class Act>
[[maybe_unused]] constexpr bool kFewRegisters =
    std::is_same_v<Act, Identity> || std::is_same_v<Act, Relu> || std::is_same_v<Act, Silu>;
template <class Act, int kUnit>
[[maybe_unused]] constexpr int kBlocksPerSm = kUnit > 1 && kFewRegisters<Act> ? 2 : 1;

template <class T, int kUnit, class Act, int kHeld>
__global__ void __launch_bounds__(max_threads(kHeld), kBlocksPerSm<Act, kUnit>)
    groupnorm_forward_v07_kernel(Problem p, Forward::Tensors t, SlabPlan plan) {
  constexpr int kVec = kVector<T>;
  constexpr int kUnits = kVec / kUnit;
  LADDER_DYN_SMEM(smem);
  const SlabPlace place(p, plan, kVec);
  const auto* const x = static_cast<const T*>(t.x);
  auto* const y = static_cast<T*>(t.y) + place.at;
  const int step = p.c << plan.log_rows;  // elements from one of the thread's vectors to the next
  if (plan.cluster > 1) ptx::cluster_arrive_relaxed();

  // Load the thread's vectors into registers, all at once. Mask vectors beyond the block's last pixel.
  const int pixels = place.count() - place.row;
  uint4 held[kHeld] = {};
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    if (i << plan.log_rows < pixels) held[i] = __ldcs(reinterpret_cast<const uint4*>(x + place.at + i * step));
  }

  // Meanwhile load pivots. Parameters too, unless vectors need the registers.
  constexpr bool kRegistersToSpare = kHeld <= kGoodVectors || sizeof(T) == 4;
  const UnitGroups<kUnit> groups(p, place, kVec);
  const T* const chunk = x + place.image * p.h * p.w * p.c + place.chunk_channel;
  const int channel = place.chunk_channel + place.column * kVec;
  float pivots[kUnits];
  float scale[kVec];
  float shift[kVec];
  load_pivots(groups, chunk, pivots);
  if constexpr (kRegistersToSpare) load_parameters(t, channel, scale, shift);

  // Sum the thread's vectors, then those of the block or the cluster.
  float2 sums[kUnits] = {};
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    if (i << plan.log_rows < pixels) add_vector<T, kUnit>(held[i], pivots, sums);
  }
  const float2* const statistics = slab_statistics<T, kUnit, true>(p, plan, place, sums, smem);

  // Normalise, and store.
  if constexpr (!kRegistersToSpare) load_parameters(t, channel, scale, shift);
  apply_statistics(statistics, groups, scale, shift);
#pragma unroll
  for (int i = 0; i < kHeld; ++i) {
    if (i << plan.log_rows >= pixels) continue;
    *reinterpret_cast<uint4*>(y + i * step) = normalised<T, kUnit, Act>(held[i], pivots, scale, shift);
  }
  store_statistics(p, t, plan, place, chunk, statistics);
}

SlabPlan plan_of(const Problem& p) {
  return plan_slab(p, {.block_bytes = kMaxVectors * kMaxThreads * 16,
                       .good_block_bytes = 32 << 10,
                       .max_cluster = kMaxClusterBlocks,
                       .max_vectors = kMaxVectors,
                       .good_vectors = kGoodVectors,
                       .max_threads = kMaxThreads,
                       .max_threads_of_many = max_threads(kMaxVectors)});
}

const char* supports(const Problem& p) {
  if (const char* const why = plain_inputs_only(p)) return why;
  return plan_of(p).channels > 0 ? nullptr : "no chunk of whole groups is whole 16-byte vectors and at most 8 x 64 KB";
}

// Calls f(held), held.value being the least kHeld of 2, 4, 8 that holds `vectors`.
template <class F>
void dispatch_held(int vectors, F&& f) {
  if (vectors <= 2) return f(std::integral_constant<int, 2>{});
  if (vectors <= kGoodVectors) return f(std::integral_constant<int, kGoodVectors>{});
  f(std::integral_constant<int, kMaxVectors>{});
}

void launch(const Problem& p, const Forward::Tensors& t, void*, Stream stream) {
  const SlabPlan plan = plan_of(p);
  const LaunchConfig config{.grid = slab_blocks(p, plan),
                            .block = static_cast<unsigned>(plan.threads()),
                            .dynamic_smem = slab_sums_bytes(p, plan),
                            .cluster = static_cast<unsigned>(plan.cluster)};
  dispatch_slab(p, [&](auto element, auto unit, auto act) {
    dispatch_held(plan.vectors, [&](auto held) {
      constexpr int kUnit = decltype(unit)::value;
      constexpr int kHeld = decltype(held)::value;
      ladder::launch(groupnorm_forward_v07_kernel<decltype(element), kUnit, decltype(act), kHeld>, config, stream, p, t,
                     plan);
    });
  });
}

}  // namespace
}  // namespace ladder::groupnorm

LADDER_VERSION(ladder::groupnorm::Forward, {.launch = ladder::groupnorm::launch,
                                            .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                            .supports = ladder::groupnorm::supports,
                                            .min_arch = 90})
