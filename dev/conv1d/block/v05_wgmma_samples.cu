// Idea:   a batch as a matrix product on Hopper's tensor cores: 128 positions of several samples times all channels of a group,
//         the sum split over a cluster's blocks, which then normalise some of the samples each.
// Parent: v03.
// Why:    v03 reads a channel's weights once for 64 positions into the registers of mma.sync; at 64 samples a step of the
//         network takes twice what PyTorch does. Here x is loaded once for all taps, weights once for 128 positions, and
//         wgmma reads both where the TMA puts them. Limiter: 72 to 220 KB from the L2 in each block, 2 to 5 us; the exchange
//         of sums, 1 to 2 us.
// Needs:  sm_90a; bf16 or fp16; c and split multiples of 64; groups of 32, 64 or 128 channels; 1, 2, 4, ... 32 positions.

#include "dev/common/lane_sums.h"
#include "dev/common/quads.h"
#include "dev/conv1d/block_output.h"
#include "dev/conv1d/wgmma_samples.h"

namespace ladder::conv1d {
namespace {

template <class T, int kChannels>
__global__ void __launch_bounds__(kSamplesThreads, 1)
    conv1d_block_v05_kernel(Problem p, SamplesPlan plan, const __grid_constant__ SamplesMaps maps, bool early_weights,
                            Block::Tensors t) {
  LADDER_DYN_SMEM(smem);
  LADDER_SHARED(float2, normaliser, [kBlockPositions]);  // of a sample: mean, 1 / deviation
  const SamplesTile<kChannels> tile(p, plan);
  multiply_samples<T, kChannels>(smem, p, plan, tile, maps, early_weights);

  constexpr int kQuads = kChannels / kQuad;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int samples_per_rank = ceil_div(plan.samples, plan.ranks);
  const int sample0 = tile.rank * samples_per_rank;
  const int samples = max(0, min(min(samples_per_rank, plan.samples - sample0), p.n - tile.first_sample - sample0));
  // Four of the sums of this rank's samples, at a position.
  const auto sums_at = [&](int position, int sample, int quad) {
    float* const rows = reinterpret_cast<float*>(smem);
    return reinterpret_cast<float4*>(rows + (position * plan.samples + sample0 + sample) * kSumsPitch<kChannels>) +
           quad;
  };

  // A thread has four channels of a sample, at every `stride`-th position; if there are more of these than threads, several.
  const int pairs = samples * kQuads;  // of a sample and four channels
  const int stride = max(1, kSamplesThreads / max(pairs, 1));
  const int thread = static_cast<int>(threadIdx.x);
  const int first_pair = thread < pairs * stride ? thread % max(pairs, 1) : pairs;
  const int first_position = pairs > kSamplesThreads ? 0 : thread / max(pairs, 1);
  ChannelMap of_channels[kQuad];
  const auto load_maps = [&](int pair) {
#pragma unroll
    for (int j = 0; j < kQuad; ++j) {
      of_channels[j] = ChannelMap::load(p, t, tile.first_sample + sample0 + pair / kQuads,
                                        tile.first_channel + pair % kQuads * kQuad + j);
    }
  };
  if (first_pair < pairs) load_maps(first_pair);
  ptx::cluster_wait();

  // Add up the ranks' parts and the bias, in place, where no other rank reads.
  for (int pair = first_pair; pair < pairs; pair += kSamplesThreads) {
    const auto bias = *(reinterpret_cast<const float4*>(t.bias + tile.first_channel) + pair % kQuads);
#pragma unroll 2
    for (int position = first_position; position < p.l; position += stride) {
      float4* const sums = sums_at(position, pair / kQuads, pair % kQuads);
      *sums = sum_of(sum_over_cluster(sums, plan.ranks), bias);
    }
  }
  __syncthreads();
  ptx::cluster_arrive_relaxed();

  const auto count = static_cast<float>(p.l * kChannels);
  for (int sample = warp; sample < samples; sample += kSamplesThreads / 32) {
    float sum = 0;
    for (int i = lane; i < p.l * kQuads; i += 32) {
      const float4 h = *sums_at(i / kQuads, sample, i % kQuads);
      sum += h.x + h.y + (h.z + h.w);
    }
    const float mean = sum_over_lanes(sum) / count;
    float squares = 0;
    for (int i = lane; i < p.l * kQuads; i += 32) {
      const float4 h = *sums_at(i / kQuads, sample, i % kQuads);
      const float distances[] = {h.x - mean, h.y - mean, h.z - mean, h.w - mean};
#pragma unroll
      for (const float distance : distances) squares = fmaf(distance, distance, squares);
    }
    const float variance = sum_over_lanes(squares) / count;
    if (lane == 0) normaliser[sample] = {mean, 1.0f / sqrtf(variance + kEpsilon)};
  }
  __syncthreads();

  for (int pair = first_pair; pair < pairs; pair += kSamplesThreads) {
    if (pair != first_pair) load_maps(pair);
    const int n = tile.first_sample + sample0 + pair / kQuads;
    const float2 norm = normaliser[pair / kQuads];
#pragma unroll 2
    for (int position = first_position; position < p.l; position += stride) {
      const int to = (n * p.l + position) * p.k + tile.first_channel + pair % kQuads * kQuad;
      float residual[kQuad] = {};
      if (t.residual) {
        unpack_quad<T>(*reinterpret_cast<const Quad<T>*>(static_cast<const T*>(t.residual) + to), residual);
      }
      const float4 h = *sums_at(position, pair / kQuads, pair % kQuads);
      const float sums[] = {h.x, h.y, h.z, h.w};
      float y[kQuad];
#pragma unroll
      for (int j = 0; j < kQuad; ++j) y[j] = of_channels[j](p, (sums[j] - norm.x) * norm.y) + residual[j];
      *reinterpret_cast<Quad<T>*>(static_cast<T*>(t.y) + to) = pack_quad<T>(y);
    }
  }
  ptx::cluster_wait();  // other ranks have read this one's sums
}

template <class T, int kChannels>
std::vector<KernelPlan<Block>> plans_of(const Problem& p) {
  using Tile = SamplesTile<kChannels>;
  const int tiles = Tile::count(p, {p, kChannels, 1});
  return ranks_plans<Block>(p, kChannels, tiles, [&](const char* name, const SamplesPlan& plan) -> KernelPlan<Block> {
    const LaunchConfig config = plan.launch_config<kChannels>(tiles);
    return {.name = name, .bind = [=](const Block::Tensors& t, void*) {
              const SamplesMaps maps(p, t.x, t.x_rest, t.w, plan.samples, kChannels);
              return bind_launch(conv1d_block_v05_kernel<T, kChannels>, config, p, plan, maps, loads_early(t.w), t);
            }};
  });
}

std::vector<KernelPlan<Block>> plans(const Problem& p) {
  const auto of_type = [&]<class T>(T) {
    if (p.group_channels() == 32) return plans_of<T, 32>(p);
    return p.group_channels() == 64 ? plans_of<T, 64>(p) : plans_of<T, 128>(p);
  };
  return p.dtype == Dtype::bf16 ? of_type(__nv_bfloat16{}) : of_type(__half{});
}

const char* supports(const Problem& p) {
  if (p.stride2 || p.transposed) return "stride2 and transposed: its positions are those of x";
  const int channels = p.group_channels();
  if (channels != 32 && channels != 64 && channels != 128) return "a group has not 32, 64 or 128 channels";
  if (p.split % kStepTerms16 != 0) return "split is no multiple of 64";
  return samples_problem(p, channels);
}

}  // namespace
}  // namespace ladder::conv1d

LADDER_VERSION(ladder::conv1d::Block, {.plans = ladder::conv1d::plans,
                                       .plan_names = {"ranks1", "ranks2", "ranks3", "ranks4", "ranks6", "ranks8"},
                                       .dtypes = {ladder::Dtype::bf16, ladder::Dtype::f16},
                                       .supports = ladder::conv1d::supports,
                                       .min_arch = 90,
                                       .arch_specific = true,
                                       .needs = "c a multiple of 64; groups of 32, 64 or 128 channels"})
