// Idea:   a warpgroup walks down the convolution rows of an image on the bf16 tensor cores, each factor in three parts, six
//         products of parts for a product of fp32; operand A is cut out of fp32 rows of x in shared memory, as they lie.
// Parent: v10.
// Why:    v10 is limited by the FMA pipe, 67 TFLOP/s at best. Six products of bf16 are 165 at the tensor cores' best. TF32 in
//         two parts would take as long, lose two bits, and its filters would fill more of shared memory. A block has 48
//         channels, which halves what it keeps, and x is read twice, the second time from L2. Limiter left: the tensor cores,
//         with an eighth of their rows padding.
// Needs:  sm_90a; finite x and w; c3 r11 stride4 pad2; k a multiple of 4.

#include "dev/conv_stem/bf16_parts.h"
#include "dev/conv_stem/strips.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::conv_stem {
namespace {

constexpr int kN = kPartsN;
constexpr int kBlockGroups = 2;
constexpr int kThreads = kBlockGroups * kGroupThreads;
constexpr int kRingBytes = kRingElements * static_cast<int>(sizeof(float));
constexpr std::size_t kSmemBytes =
    kParts * kPartBytes + kBlockGroups * kRingBytes + kN * sizeof(float) + kBlockGroups * sizeof(ptx::Mbarrier);
static_assert(kSmemBytes <= 227 * 1024, "what a block of sm_90 can have");
static_assert(kRingBytes % 16 == 0, "what follows the rings is aligned");

// A lane's sums of its two pixels, 16 bytes a store.
__device__ __forceinline__ void store_row(const Problem& p, const float (&leading)[kN / 2],
                                          const float (&small)[kN / 2], const float* biases, const Strip& strip,
                                          int row, int channel0, float* y) {
  if (lane_pair() == kWarpPooled) return;  // the next warp's
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int col = strip.tile * kTileCols + lane_col() + i;
    if (col >= p.out_w()) return;
    float* const pixel = y + static_cast<long long>((strip.image * p.out_h() + row) * p.out_w() + col) * p.k + channel0;
#pragma unroll
    for (int j = 0; j < kN / 16; ++j) {
      const int channel = 16 * j + threadIdx.x % 4 * 4;
      if (channel0 + channel >= p.k) break;
      const auto sum = [&](int e) { return leading[8 * j + 2 * i + e] + small[8 * j + 2 * i + e]; };
      const float4 bias = *reinterpret_cast<const float4*>(biases + channel);
      *reinterpret_cast<float4*>(pixel + channel) = {sum(0) + bias.x, sum(1) + bias.y, sum(4) + bias.z,
                                                     sum(5) + bias.w};
    }
  }
}

template <bool kVectors>
__global__ void __launch_bounds__(kThreads, 1) conv_stem_fprop_v11_kernel(Problem p, OutputRows rows, const float* x,
                                                                          const float* w, const float* bias, float* y) {
  LADDER_DYN_SMEM(filters);
  const int group = threadIdx.x / kGroupThreads;
  auto* const rings = reinterpret_cast<float*>(filters + kParts * kPartBytes);
  float* const ring = rings + group * kRingElements;
  float* const biases = rings + kBlockGroups * kRingElements;
  auto* const barriers = reinterpret_cast<ptx::Mbarrier*>(biases + kN);
  if (threadIdx.x < kBlockGroups) ptx::mbarrier_init(barriers + threadIdx.x, GroupBarrier::kWarps);
  ptx::grid_dependency_wait();

  const int channel0 = blockIdx.y * kN;
  arrange_filter_parts<kThreads>(p, w, channel0, filters);
  fetch_biases<kN, kThreads>(p, bias, channel0, biases);
  ptx::wgmma_fence_stores();
  __syncthreads();

  const std::uint64_t first_filters = ptx::wgmma_descriptor(filters, 8 * 128);
  GroupBarrier stored{barriers + group};  // all rows that the next convolution row needs are in the ring
  const int num_ranges = kBlockGroups * gridDim.x;
  const int range_idx = kBlockGroups * blockIdx.x + group;
  const int end = rows.range_begin(range_idx + 1, num_ranges);
  for (int begin = rows.range_begin(range_idx, num_ranges); begin < end;) {
    const Strip strip = rows.strip(begin, end);
    begin += strip.rows;
    const int last = strip.row + strip.rows - 1;
    fill_ring<kVectors>(p, x, strip.image, strip.tile, strip.row, ring);
    stored.arrive();
    stored.wait();

    for (int row = strip.row; row <= last; ++row) {
      RowGroup<kVectors> next;
      if (row < last) next.fetch(p, x, strip.image, strip.tile, row + kRingGroups - 1);
      float leading[kN / 2], small[kN / 2];
      multiply_parts(LaneWindow<float>(ring, row), first_filters, leading, small);
      if (row < last) next.put(ring, row + kRingGroups - 1);
      stored.arrive();
      store_row(p, leading, small, biases, strip, row, channel0, y);
      stored.wait();
    }
  }
  ptx::grid_dependency_launch();
}

void launch(const Problem& p, const Fprop::Tensors& t, void*, Stream stream) {
  const OutputRows rows{p.n, ceil_div(p.out_w(), kTileCols), p.out_h()};
  const auto kernel = p.w % 4 == 0 ? conv_stem_fprop_v11_kernel<true> : conv_stem_fprop_v11_kernel<false>;
  ladder::launch(kernel,
                 {.grid = strip_grid(rows, kBlockGroups, ceil_div(p.k, kN)),
                  .block = kThreads,
                  .dynamic_smem = kSmemBytes,
                  .overlaps_previous = true},
                 stream, p, rows, t.x, t.w, t.bias, t.y);
}

}  // namespace
}  // namespace ladder::conv_stem

LADDER_VERSION(ladder::conv_stem::Fprop, {.launch = ladder::conv_stem::launch,
                                          .dtypes = {ladder::Dtype::f32},
                                          .supports = ladder::conv_stem::published_only,
                                          .min_arch = 90,
                                          .arch_specific = true,
                                          .least_arithmetic = 6.0 / 16,  // six products, at sixteen times fp32's rate
                                          .needs = "finite values; c3 r11 stride4 pad2; k a multiple of 4"})
