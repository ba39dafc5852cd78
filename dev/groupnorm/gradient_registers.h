// A slab in the registers of a cluster's threads: the kernel of v07, and its plan.
//
// All of a thread's vectors are fetched before anything is computed. dz takes dy's place, as fp32: the exponential is
// computed once, and dx is two multiply-adds from dz and x - mean.
#pragma once

#include "dev/groupnorm/gradient_slab.h"
#include "dev/ptx/cluster.h"

namespace ladder::groupnorm {

// Vectors a thread has at most: of x and dz in fp32 they take 48 (16-bit) or 64 (fp32) registers of the 128 that leave room
// for 512 threads on an SM.
template <class T>
inline constexpr int kMaxSteps = sizeof(T) == 4 ? 8 : 4;

template <class T, class Act, int kSteps>
__device__ __forceinline__ void backward_in_registers(const Problem& p, const Backward::Tensors& t, const Slab& slab,
                                                      float2* rows) {
  LADDER_DYN_SMEM(raw);
  const SlabSums<T> smem(raw, slab);
  const SlabPlace<T> place(p, slab);
  constexpr int kVec = kVector<T>;

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
  correct(p, t, slab, place, smem, place.rank == 0 ? rows : nullptr, [&](int i) {
    float2 sum{0, 0};
    for (int rank = 0; rank < slab.cluster; ++rank) {
      const float2 part = ptx::ld_shared_cluster(ptx::mapa(smem.sums + i, rank));
      sum.x += part.x, sum.y += part.y;
    }
    return sum;
  });
  ptx::cluster_arrive_relaxed();  // it has read the others' sums

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
  ptx::cluster_wait();  // the others have read its sums: it may end
}

struct RegisterPlan {
  Slab slab;
  int threads = 256;  // 512: twice the slab, and one block an SM
};

template <class T>
RegisterPlan plan_registers(const Problem& p) {
  const auto ns = [&](const Slab& slab, int threads) {
    if (slab.chunk == 0 || slab.steps() > kMaxSteps<T>) return std::numeric_limits<double>::infinity();
    return slab_ns(p, slab, SlabSums<T>::bytes(slab), 512 / threads);
  };
  RegisterPlan plan;
  for (const int threads : {256, 512}) {
    const Slab slab =
        best_slab<T>(p, kMaxClusterBlocks, threads, [&](const Slab& candidate) { return ns(candidate, threads); });
    if (ns(slab, threads) < ns(plan.slab, plan.threads)) plan = {.slab = slab, .threads = threads};
  }
  return plan;
}

inline const char* supports_registers(const Problem& p) {
  if (!whole_vectors(p)) return "a pixel's channels are no whole vectors of 16 bytes";
  const char* reason = nullptr;
  with_storage_type(p.dtype, [&](auto element) {
    if (plan_registers<decltype(element)>(p).slab.chunk == 0) {
      reason = "x and dy of an image's group do not fit in the registers of eight blocks";
    }
  });
  return reason;
}

// Calls f(T{}, Act{}, steps, threads, slab), the numbers as integral constants: the kernel whose thread has so many vectors.
template <class F>
void dispatch_registers(const Problem& p, F&& f) {
  dispatch_types(p, [&](auto element, auto act) {
    using T = decltype(element);
    constexpr int kMax = kMaxSteps<T>;
    const auto [slab, threads] = plan_registers<T>(p);
    if (threads == 512) {
      f(element, act, std::integral_constant<int, kMax>{}, std::integral_constant<int, 512>{}, slab);
    } else if (slab.steps() > kMax / 2) {
      f(element, act, std::integral_constant<int, kMax>{}, std::integral_constant<int, 256>{}, slab);
    } else {
      f(element, act, std::integral_constant<int, kMax / 2>{}, std::integral_constant<int, 256>{}, slab);
    }
  });
}

}  // namespace ladder::groupnorm
