// Idea:   a batch as a matrix product on Hopper's tensor cores: 128 positions of several samples times 64 output channels, the
//         sum split over a cluster's blocks.
// Parent: v03.
// Why:    v03 reads a channel's weights once for at most 64 positions into the registers of mma.sync. Here wgmma reads both
//         operands where the TMA puts them, x once for all taps; of stride 2 the odd positions come first, so that each tap's
//         rows are consecutive; the even and the odd outputs of a transposed convolution are blocks of their own. Limiter:
//         32 to 100 KB from the L2 in each block, 1 to 3 us, and the exchange of sums, 1 us.
// Needs:  sm_90a; bf16 or fp16; c and k multiples of 64; 1, 2, 4, ... 32 positions in a phase.

#include "dev/common/quads.h"
#include "dev/conv1d/wgmma_samples.h"

namespace ladder::conv1d {
namespace {

constexpr int kChannels = 64;  // of a block
using Tile = SamplesTile<kChannels>;

template <class T>
__global__ void __launch_bounds__(kSamplesThreads, 1)
    conv1d_fprop_v04_kernel(Problem p, SamplesPlan plan, const __grid_constant__ SamplesMaps maps, bool early_weights,
                            Fprop::Tensors t) {
  LADDER_DYN_SMEM(smem);
  const Tile tile(p, plan);
  multiply_samples<T, kChannels>(smem, p, plan, tile, maps, early_weights);
  ptx::cluster_wait();

  // Add up this rank's share of the rows, and store them.
  constexpr int kQuads = kChannels / kQuad;
  const int rows_per_rank = ceil_div(kBlockPositions, plan.ranks);
  const int rows = min(rows_per_rank, kBlockPositions - tile.rank * rows_per_rank);
  for (int i = threadIdx.x; i < rows * kQuads; i += kSamplesThreads) {
    const int row = tile.rank * rows_per_rank + i / kQuads;
    const int n = tile.first_sample + row % plan.samples;
    if (n >= p.n) continue;
    auto* const sums = reinterpret_cast<float4*>(reinterpret_cast<float*>(smem) + row * kSumsPitch<kChannels>);
    const float4 sum = sum_over_cluster(sums + i % kQuads, plan.ranks);
    const int o = p.transposed ? 2 * (row / plan.samples) + tile.phase : row / plan.samples;
    const int channel = tile.first_channel + i % kQuads * kQuad;
    const int to = (n * p.out_l() + o) * p.k + channel;
    float y[kQuad] = {};
    if (t.residual) unpack_quad<T>(*reinterpret_cast<const Quad<T>*>(static_cast<const T*>(t.residual) + to), y);
    const auto bias = t.bias ? *reinterpret_cast<const float4*>(t.bias + channel) : float4{};
    y[0] += sum.x + bias.x;
    y[1] += sum.y + bias.y;
    y[2] += sum.z + bias.z;
    y[3] += sum.w + bias.w;
    *reinterpret_cast<Quad<T>*>(static_cast<T*>(t.y) + to) = pack_quad<T>(y);
  }
  ptx::cluster_sync();  // other ranks have read this one's sums
}

template <class T>
std::vector<KernelPlan<Fprop>> plans_of(const Problem& p) {
  const int tiles = Tile::count(p, {p, kChannels, 1});
  return ranks_plans<Fprop>(p, kChannels, tiles, [&](const char* name, const SamplesPlan& plan) -> KernelPlan<Fprop> {
    const LaunchConfig config = plan.launch_config<kChannels>(tiles);
    return {.name = name, .bind = [=](const Fprop::Tensors& t, void*) {
              const SamplesMaps maps(p, t.x, nullptr, t.w, plan.samples, kChannels);
              return bind_launch(conv1d_fprop_v04_kernel<T>, config, p, plan, maps, loads_early(t.w), t);
            }};
  });
}

std::vector<KernelPlan<Fprop>> plans(const Problem& p) {
  return p.dtype == Dtype::bf16 ? plans_of<__nv_bfloat16>(p) : plans_of<__half>(p);
}

const char* supports(const Problem& p) {
  return p.k % kChannels != 0 ? "k is no multiple of 64" : samples_problem(p, kChannels);
}

}  // namespace
}  // namespace ladder::conv1d

LADDER_VERSION(ladder::conv1d::Fprop, {.plans = ladder::conv1d::plans,
                                       .plan_names = {"ranks1", "ranks2", "ranks3", "ranks4", "ranks6", "ranks8"},
                                       .dtypes = {ladder::Dtype::bf16, ladder::Dtype::f16},
                                       .supports = ladder::conv1d::supports,
                                       .min_arch = 90,
                                       .arch_specific = true,
                                       .needs = "c and k multiples of 64"})
