// The forward pass on a slab (slab.h): what v05 to v07 share. Everything but where the slab is kept.
//
// A thread adds up x - pivot and its square not for each channel but for each unit: kUnit neighbouring channels that are
// sure to share a group, 2 where groups have an even number of channels. Units are put into shared memory, teams of lanes
// add those of a group, always in the same order, and the blocks of a cluster exchange these sums.
#pragma once

#include "core/occupancy.h"
#include "dev/groupnorm/activation.h"
#include "dev/groupnorm/slab.h"
#include "dev/groupnorm/statistics.h"
#include "dev/ptx/cluster.h"

namespace ladder::groupnorm {

// Shared memory of the sums, in this order: units [channels / kUnit][pitch], parts of the cluster's blocks [8][groups],
// statistics [groups].
__host__ __device__ inline int unit_pitch(const SlabPlan& plan) {
  return plan.rows() | 1;
}  // odd: fewer bank conflicts
__host__ __device__ inline int slab_groups(const Problem& p, const SlabPlan& plan) {
  return plan.channels / (p.c / p.g);
}
inline std::size_t slab_sums_bytes(const Problem& p, const SlabPlan& plan) {
  const int unit = p.channels_per_group() % 2 == 0 ? 2 : 1;
  return sizeof(float2) * (plan.channels / unit * unit_pitch(plan) + (kMaxClusterBlocks + 1) * slab_groups(p, plan));
}

// Where a block and a thread of it are: chunks fastest but for the cluster's blocks.
struct SlabPlace {
  int image, rank, chunk_channel, column, row;
  int begin, end;  // pixels of the block
  int at;          // of the thread's first vector, in elements

  __device__ __forceinline__ SlabPlace(const Problem& p, const SlabPlan& plan, int vector) {
    const int block = static_cast<int>(blockIdx.x);
    const int chunks = p.c / plan.channels;
    rank = block % plan.cluster;
    chunk_channel = block / plan.cluster % chunks * plan.channels;
    image = block / plan.cluster / chunks;
    column = static_cast<int>(threadIdx.x) % plan.columns;
    row = static_cast<int>(threadIdx.x) / plan.columns;
    begin = min(rank * plan.pixels, p.h * p.w);
    end = min(begin + plan.pixels, p.h * p.w);
    at = (image * p.h * p.w + begin + row) * p.c + chunk_channel + column * vector;
  }
  __device__ __forceinline__ int count() const { return end - begin; }
};

// Lanes of a warp that share a group: as many as there are threads for, a power of two.
__device__ __forceinline__ int team_of(int threads, int groups) {
  int team = 32;
  while (team > 1 && team * groups > threads) team /= 2;
  return team;
}

// Adds up what the threads of a block, and of its cluster, have for each unit, and leaves (mean less pivot, rstd) of each
// group of the chunk in the array that it returns, for all threads.
template <class T, int kUnit, bool kCluster>
__device__ __forceinline__ const float2* slab_statistics(const Problem& p, const SlabPlan& plan, const SlabPlace& place,
                                                         const float2 (&sums)[kVector<T> / kUnit],
                                                         unsigned char* smem) {
  constexpr int kUnits = kVector<T> / kUnit;
  const int groups = slab_groups(p, plan);
  const int pitch = unit_pitch(plan);
  auto* const units = reinterpret_cast<float2*>(smem);
  float2* const parts = units + plan.channels / kUnit * pitch;
  float2* const statistics = parts + kMaxClusterBlocks * groups;
  const float inverse_m = 1.0f / static_cast<float>(p.h * p.w * (p.c / p.g));
  const auto finish = [&](float2 sum) {
    const float mean = sum.x * inverse_m;
    const float variance = fmaxf(fmaf(-mean, mean, sum.y * inverse_m), 0.0f);
    return float2{mean, rstd_of(variance)};
  };

#pragma unroll
  for (int i = 0; i < kUnits; ++i) units[(place.column * kUnits + i) * pitch + place.row] = sums[i];
  __syncthreads();

  const int team = team_of(plan.threads(), groups);
  const int lane = static_cast<int>(threadIdx.x) % team;
  const int group_units = p.c / p.g / kUnit;
  if constexpr (kCluster) {
    if (plan.cluster > 1) ptx::cluster_wait();  // all of the cluster's blocks have started
  }
  for (int first = 0; first < groups; first += plan.threads() / team) {  // the same for all threads: shuffles need it
    const int group = first + static_cast<int>(threadIdx.x) / team;
    float2 sum{0, 0};
    if (group < groups) {
      for (int i = lane; i < group_units << plan.log_rows; i += team) {
        const int unit = group * group_units + (i >> plan.log_rows);
        const float2 term = units[unit * pitch + (i & (plan.rows() - 1))];
        sum.x += term.x, sum.y += term.y;
      }
    }
    for (int distance = team / 2; distance > 0; distance /= 2) {
      sum.x += __shfl_xor_sync(~0u, sum.x, distance);
      sum.y += __shfl_xor_sync(~0u, sum.y, distance);
    }
    if (group >= groups) continue;
    if (kCluster && plan.cluster > 1) {
      // Every block gets every block's part, so that behind one barrier each has them all in its own memory.
      for (int to = lane; to < plan.cluster; to += team) {
        ptx::st_shared_cluster(ptx::mapa(parts + place.rank * groups + group, to), sum);
      }
    } else if (lane == 0) {
      statistics[group] = finish(sum);
    }
  }
  if constexpr (kCluster) {
    if (plan.cluster > 1) {
      ptx::cluster_sync();
      for (int group = threadIdx.x; group < groups; group += plan.threads()) {
        float2 sum = parts[group];
        for (int rank = 1; rank < plan.cluster; ++rank) {
          const float2 part = parts[rank * groups + group];
          sum.x += part.x, sum.y += part.y;
        }
        statistics[group] = finish(sum);
      }
    }
  }
  __syncthreads();
  return statistics;
}

// A block's whole work. keep.load(x, step) starts the loads of the thread's vectors, `step` elements apart, keep.wait()
// waits for them, and keep.for_each(f) calls f(i, vector) for each. Keep::kRegistersToSpare tells whether it leaves any.
template <class T, int kUnit, class Act, bool kCluster, class Keep>
__device__ __forceinline__ void normalise_slab(const Problem& p, const Forward::Tensors& t, const SlabPlan& plan,
                                               unsigned char* smem, Keep& keep) {
  constexpr int kVec = kVector<T>;
  constexpr int kUnits = kVec / kUnit;
  const SlabPlace place(p, plan, kVec);
  const auto* const x = static_cast<const T*>(t.x);
  auto* const y = static_cast<T*>(t.y);
  const int step = p.c << plan.log_rows;
  if constexpr (kCluster) {
    if (plan.cluster > 1) ptx::cluster_arrive_relaxed();
  }
  keep.load(x + place.at, step, place.count() - place.row);

  const int width = p.c / p.g;
  const int c0 = place.chunk_channel + place.column * kVec;
  const int first_group = place.column * kVec / width;  // of the thread, in the chunk
  const int into_group = place.column * kVec - first_group * width;
  const auto group_of = [&](int unit) {  // without a division for each: a unit is at most a group
    int group = first_group;
    for (int i = 1, channel = into_group + kUnit; i <= unit; ++i, channel += kUnit) {
      if (channel >= width) channel -= width, ++group;
    }
    return group;
  };

  // The first element of each unit's group: all blocks of a cluster have the same.
  const T* const first = x + place.image * p.h * p.w * p.c + place.chunk_channel;
  float pivots[kUnits];
#pragma unroll
  for (int i = 0; i < kUnits; ++i) pivots[i] = to_float(first[group_of(i) * width]);
  // Early, unless their registers are those of vectors.
  float scale[kVec];
  float shift[kVec];
  const auto load_parameters = [&] {
#pragma unroll
    for (int i = 0; i < kVec; i += 4) {
      const float4 gamma = t.gamma ? *reinterpret_cast<const float4*>(t.gamma + c0 + i) : float4{1, 1, 1, 1};
      const float4 beta = t.beta ? *reinterpret_cast<const float4*>(t.beta + c0 + i) : float4{0, 0, 0, 0};
      scale[i] = gamma.x, scale[i + 1] = gamma.y, scale[i + 2] = gamma.z, scale[i + 3] = gamma.w;
      shift[i] = beta.x, shift[i + 1] = beta.y, shift[i + 2] = beta.z, shift[i + 3] = beta.w;
    }
  };
  if constexpr (Keep::kRegistersToSpare) load_parameters();

  keep.wait();
  float2 sums[kUnits] = {};
  keep.for_each([&](int, const uint4& bits) {
    float values[kVec];
    unpack<T>(bits, values);
#pragma unroll
    for (int i = 0; i < kVec; ++i) {
      const float apart = values[i] - pivots[i / kUnit];
      sums[i / kUnit].x += apart;
      sums[i / kUnit].y = fmaf(apart, apart, sums[i / kUnit].y);
    }
  });

  const float2* const statistics = slab_statistics<T, kUnit, kCluster>(p, plan, place, sums, smem);
  if constexpr (!Keep::kRegistersToSpare) load_parameters();
#pragma unroll
  for (int i = 0; i < kVec; ++i) {
    const float2 group = statistics[group_of(i / kUnit)];
    scale[i] *= group.y;
    shift[i] = fmaf(-group.x, scale[i], shift[i]);
  }
  keep.for_each([&](int i, const uint4& bits) {
    float values[kVec];
    unpack<T>(bits, values);
#pragma unroll
    for (int j = 0; j < kVec; ++j) values[j] = Act::value(fmaf(values[j] - pivots[j / kUnit], scale[j], shift[j]));
    *reinterpret_cast<uint4*>(y + place.at + i * step) = pack<T>(values);
  });

  // Nothing waits for these.
  if (place.rank > 0) return;
  for (int i = threadIdx.x; i < slab_groups(p, plan); i += plan.threads()) {
    const int group = place.image * p.g + place.chunk_channel / width + i;
    t.mean[group] = to_float(first[i * width]) + statistics[i].x;
    t.rstd[group] = statistics[i].y;
  }
}

// Calls f(T{}, unit, Act{}), unit.value being kUnit.
template <class F>
void dispatch_slab(const Problem& p, F&& f) {
  dispatch_types(p, [&](auto element, auto act) {
    if (p.channels_per_group() % 2 == 0) {
      f(element, std::integral_constant<int, 2>{}, act);
    } else {
      f(element, std::integral_constant<int, 1>{}, act);
    }
  });
}

}  // namespace ladder::groupnorm
