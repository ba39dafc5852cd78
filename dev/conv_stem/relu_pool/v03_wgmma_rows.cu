// Idea:   a warpgroup walks down the convolution rows of an image with FP16 wgmma. Rows of x are converted once, into a ring
//         in shared memory, from which lanes read operand A as it lies: no im2col. Filters stay in shared memory. Sums are
//         pooled in registers, a running maximum down the rows, so that every convolution row is computed once.
// Parent: v02.
// Why:    v02 multiplies on the FMA pipe and computes a quarter of the convolution twice, where tiles meet. Here the
//         convolution of a row of 55 pixels and 96 channels is 23 wgmmas of 64 x 96, and only pooled rows are written.
//         Three warpgroups have rows of their own: some pool and convert while another multiplies. Limiter left: the
//         tensor cores, with an eighth of their rows padding.
// Needs:  sm_90a; allow_tf32: FP16 has TF32's 10 mantissa bits, but not its range, so |x| and |w| below 65520, and below 6e-5
//         they lose bits; c3 r11 stride4 pad2; k a multiple of 4.

#include "dev/conv_stem/pooled_rows.h"
#include "dev/conv_stem/resident_filters.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::conv_stem {
namespace {

constexpr int kN = 96;  // output channels of a block
constexpr int kBlockGroups = 3;
constexpr int kThreads = kBlockGroups * kGroupThreads;
constexpr int kRingBytes = kRingElements * static_cast<int>(sizeof(__half));
constexpr std::size_t kSmemBytes =
    kFilterBytes<kN> + kBlockGroups * kRingBytes + kN * sizeof(float) + kBlockGroups * sizeof(ptx::Mbarrier);
static_assert(kRingBytes % 16 == 0, "what follows the rings is aligned");

template <bool kVectors>
__global__ void __launch_bounds__(kThreads, 1)
    conv_stem_relu_pool_v03_kernel(Problem p, OutputRows rows, const float* x, const float* w, const float* bias,
                                   float* y) {
  LADDER_DYN_SMEM(filters);
  const int group = threadIdx.x / kGroupThreads;
  auto* const rings = reinterpret_cast<__half*>(filters + kFilterBytes<kN>);
  __half* const ring = rings + group * kRingElements;
  auto* const biases = reinterpret_cast<float*>(rings + kBlockGroups * kRingElements);
  auto* const barriers = reinterpret_cast<ptx::Mbarrier*>(biases + kN);
  if (threadIdx.x < kBlockGroups) ptx::mbarrier_init(barriers + threadIdx.x, GroupBarrier::kWarps);
  ptx::grid_dependency_wait();

  const int channel0 = blockIdx.y * kN;
  arrange_filters<kN, kThreads>(p, w, channel0, [&](int byte_offset, float first, float second) {
    unsigned word[1];
    pack<__half, 1>({first, second}, word);
    *reinterpret_cast<unsigned*>(filters + byte_offset) = word[0];
  });
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
    const int first = 2 * strip.row;
    const int last = first + 2 * strip.rows;
    fill_ring<kVectors>(p, x, strip.image, strip.tile, first, ring);
    stored.arrive();
    stored.wait();

    PooledRow<kN> pool;
    for (int row = first; row <= last; ++row) {
      RowGroup<kVectors> next;
      if (row < last) next.fetch(p, x, strip.image, strip.tile, row + kRingGroups - 1);
      float sum[kN / 2];
      multiply_row<kN>(LaneWindow<__half>(ring, row), first_filters, sum);
      if (row < last) next.put(ring, row + kRingGroups - 1);
      stored.arrive();

      float pooled[kN / 4];
      pool_columns<kN>([&](int i) { return sum[i]; }, pooled);
      pool.enter(row, row == first, pooled,
                 [&] { store_pooled<kN>(p, pool.largest, biases, strip.image, row / 2 - 1, strip.tile, channel0, y); });
      stored.wait();
    }
  }
  ptx::grid_dependency_launch();
}

void launch(const Problem& p, const ReluPool::Tensors& t, void*, Stream stream) {
  const OutputRows rows = pooled_rows(p);
  const auto kernel = p.w % 4 == 0 ? conv_stem_relu_pool_v03_kernel<true> : conv_stem_relu_pool_v03_kernel<false>;
  ladder::launch(kernel,
                 {.grid = strip_grid(rows, kBlockGroups, ceil_div(p.k, kN)),
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

LADDER_VERSION(ladder::conv_stem::ReluPool, {.launch = ladder::conv_stem::launch,
                                             .dtypes = {ladder::Dtype::f32},
                                             .supports = ladder::conv_stem::supports,
                                             .min_arch = 90,
                                             .arch_specific = true,
                                             .needs = "allow_tf32; c3 r11 stride4 pad2; k a multiple of 4"})
