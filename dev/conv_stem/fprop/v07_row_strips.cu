// Idea:   no im2col. A block keeps all filters in shared memory as FP16 and walks down rows of output; each row of x is
//         converted once into a ring in shared memory, out of which lanes load wgmma's operand A, pixels overlapping.
// Parent: v06.
// Why:    v06 gathers every element of x seven times, an address and a conversion each, and writes it to shared memory as
//         often. Here a row of x is read once, four rows a row of output, in 16-byte loads that are in flight while the row
//         before multiplies; the loads of fragments take less time than the products. Three warpgroups an SM are at different
//         points of their rows, so one's stores hide under another's products. Limiter left: DRAM, two thirds of it y.
// Needs:  sm_90a; allow_tf32: FP16 has TF32's 10 mantissa bits, but not its range, so |x| and |w| below 65520, and below 6e-5
//         they lose bits; c3 r11 stride4 pad2; k a multiple of 4.

#include "dev/conv_stem/resident_filters.h"
#include "dev/conv_stem/strips.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/mbarrier.h"

namespace ladder::conv_stem {
namespace {

constexpr int kN = 96;  // output channels of a block
constexpr int kGroups = 3;
constexpr int kThreads = kGroups * kGroupThreads;
constexpr int kRingBytes = kRingElements * static_cast<int>(sizeof(__half));
constexpr std::size_t kSmemBytes =
    kFilterBytes<kN> + kGroups * kRingBytes + kN * sizeof(float) + kGroups * sizeof(ptx::Mbarrier);
static_assert(kRingBytes % 16 == 0, "what follows the rings is aligned");

// A lane's two pixels of a row of output, in runs of four channels: a store of a warp is of 64 bytes of each of 8 pixels.
__device__ __forceinline__ void store_row(const Problem& p, const float (&sum)[kN / 2], const float* biases, int image,
                                          int row, int tile, int channel0, float* y) {
  const int col = tile * kTileCols + lane_col();
  if (lane_pair() == kWarpPooled) return;  // the next warp's pixels
#pragma unroll
  for (int pixel = 0; pixel < 2; ++pixel) {
    if (col + pixel >= p.out_w()) break;
    float* const to = y + ((image * p.out_h() + row) * p.out_w() + col + pixel) * p.k + channel0;
#pragma unroll
    for (int i = 0; i < kN / 16; ++i) {
      const int channel = 16 * i + threadIdx.x % 4 * 4;
      if (channel0 + channel >= p.k) break;
      const float4 bias = *reinterpret_cast<const float4*>(biases + channel);
      const float* const pixel_sums = sum + 8 * i + 2 * pixel;
      *reinterpret_cast<float4*>(to + channel) = {pixel_sums[0] + bias.x, pixel_sums[1] + bias.y,
                                                  pixel_sums[4] + bias.z, pixel_sums[5] + bias.w};
    }
  }
}

template <bool kVectors>
__global__ void __launch_bounds__(kThreads, 1) conv_stem_fprop_v07_kernel(Problem p, OutputRows rows, const float* x,
                                                                          const float* w, const float* bias, float* y) {
  LADDER_DYN_SMEM(filters);
  const int group = threadIdx.x / kGroupThreads;
  auto* const rings = reinterpret_cast<__half*>(filters + kFilterBytes<kN>);
  __half* const ring = rings + group * kRingElements;
  auto* const biases = reinterpret_cast<float*>(rings + kGroups * kRingElements);
  auto* const barriers = reinterpret_cast<ptx::Mbarrier*>(biases + kN);
  if (threadIdx.x < kGroups) ptx::mbarrier_init(barriers + threadIdx.x, kGroupThreads);
  ptx::grid_dependency_wait();

  const int channel0 = blockIdx.y * kN;
  arrange_filters<kN, kThreads>(p, w, channel0, [&](int byte_offset, float first, float second) {
    *reinterpret_cast<__half2*>(filters + byte_offset) = __floats2half2_rn(first, second);
  });
  fetch_biases<kN, kThreads>(p, bias, channel0, biases);
  ptx::wgmma_fence_stores();
  __syncthreads();

  const std::uint64_t first_filters = ptx::wgmma_descriptor(filters, 8 * 128);
  ptx::Mbarrier* const stored = barriers + group;  // all rows that the next row of output needs are in the ring
  unsigned parity = 0;
  const int range_idx = kGroups * blockIdx.x + group;
  const int end = rows.range_begin(range_idx + 1, kGroups * gridDim.x);
  for (int begin = rows.range_begin(range_idx, kGroups * gridDim.x); begin < end;) {
    const Strip strip = rows.strip(begin, end);
    begin += strip.rows;
    const int last = strip.row + strip.rows - 1;
    fill_ring<kVectors>(p, x, strip.image, strip.tile, strip.row, ring);
    ptx::mbarrier_arrive(stored);
    ptx::mbarrier_wait(stored, parity);
    parity ^= 1;

    for (int row = strip.row; row <= last; ++row) {
      RowGroup<kVectors> next;
      if (row < last) next.fetch(p, x, strip.image, strip.tile, row + kRingGroups - 1);
      float sum[kN / 2];
      multiply_row<kN>(LaneWindow<__half>(ring, row), first_filters, sum);
      if (row < last) next.put(ring, row + kRingGroups - 1);
      ptx::mbarrier_arrive(stored);
      store_row(p, sum, biases, strip.image, row, strip.tile, channel0, y);
      ptx::mbarrier_wait(stored, parity);
      parity ^= 1;
    }
  }
  ptx::grid_dependency_launch();
}

void launch(const Problem& p, const Fprop::Tensors& t, void*, Stream stream) {
  const OutputRows rows = {p.n, ceil_div(p.out_w(), kTileCols), p.out_h()};
  const auto kernel = p.w % 4 == 0 ? conv_stem_fprop_v07_kernel<true> : conv_stem_fprop_v07_kernel<false>;
  ladder::launch(kernel,
                 {.grid = strip_grid(rows, kGroups, ceil_div(p.k, kN)),
                  .block = kThreads,
                  .dynamic_smem = kSmemBytes,
                  .overlaps_previous = true},
                 stream, p, rows, t.x, t.w, t.bias, t.y);
}

const char* supports(const Problem& p) {
  if (const char* const why = tf32_only(p)) return why;
  return published_only(p);
}

}  // namespace
}  // namespace ladder::conv_stem

LADDER_VERSION(ladder::conv_stem::Fprop, {.launch = ladder::conv_stem::launch,
                                          .dtypes = {ladder::Dtype::f32},
                                          .supports = ladder::conv_stem::supports,
                                          .min_arch = 90,
                                          .arch_specific = true,
                                          .needs = "allow_tf32; c3 r11 stride4 pad2; k a multiple of 4"})
