// Idea:   mma.sync with ldmatrix on XOR-swizzled rows of 128 bytes, three to four stages of cp.async in flight.
// Parent: v07.
// Why:    WMMA hides its layout, so v07 pads its rows and loads fragments when the compiler likes. With the layout known,
//         rows of exactly 128 bytes keep all eight rows of a matrix in different banks without padding, fragments load
//         one instruction for four matrices, and sums go from registers to y in one staging step. More stages cover
//         L2's latency, and one barrier a K step is enough. Limiter left: eight warps an SM do not
//         hide one another's latencies, and after that every pixel is still fetched nine times from L2.
// Needs:  nothing; cp.async where a channel row is a multiple of 16 bytes, else single elements, synchronously.
// Spills: 16 bytes on sm_80, where single elements meet the 128 x 128 tile: more addresses than registers, rarely used.

#include <algorithm>

#include "dev/conv3x3/implicit_gemm.h"
#include "dev/ptx/cp_async.h"
#include "dev/ptx/ldmatrix.h"
#include "dev/ptx/mma.h"

namespace ladder::conv3x3 {
namespace {

constexpr int kRowBytes = 128;  // of channels, in a K step: 64 of 16 bits or 32 of tf32
constexpr int kRunBytes = 16;
constexpr int kRunsPerRow = kRowBytes / kRunBytes;
constexpr int kStepBytes = 32;  // of channels, in one mma: 16 of 16 bits or 8 of tf32

template <int kBlockM_, int kBlockN_, int kWarpsM_, int kWarpsN_, int kStages_, int kBlocksPerSm_>
struct Tile {
  static constexpr int kBlockM = kBlockM_, kBlockN = kBlockN_, kStages = kStages_, kBlocksPerSm = kBlocksPerSm_;
  static constexpr int kWarpsM = kWarpsM_;
  static constexpr int kThreads = kWarpsM_ * kWarpsN_ * 32;
  static constexpr int kWarpM = kBlockM / kWarpsM_, kWarpN = kBlockN / kWarpsN_;
  static constexpr int kStageBytes = (kBlockM + kBlockN) * kRowBytes;
  static constexpr int kPitchC = kBlockN + 8;  // 8 floats: the 16 float2 of a half-warp meet no bank twice
  static constexpr std::size_t kSmemBytes =
      std::max<std::size_t>(std::size_t{kStages} * kStageBytes, std::size_t{kBlockM} * kPitchC * sizeof(float));
  static_assert(kWarpM % 16 == 0 && kWarpN % 16 == 0, "a warp loads 16 x 16 elements with one ldmatrix");
};

// NOTE: row r keeps its 16-byte run j at run j ^ (r % 8), so that ldmatrix finds eight rows in eight different bank
// groups, and so do the copies that fill a row.
__device__ __forceinline__ int swizzled(int row, int run) { return row * kRowBytes + (run ^ (row % 8)) * kRunBytes; }

template <class T>
__device__ __forceinline__ void multiply(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  if constexpr (sizeof(T) == 4) {
    ptx::mma_m16n8k8_tf32(d, a, b);
  } else {
    ptx::mma_m16n8k16<T>(d, a, b);
  }
}

template <class T, class Tile, bool kVectors>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocksPerSm)
    conv3x3_fprop_v08_kernel(Problem p, const T* x, const T* w, const float* bias, T* y) {
  constexpr int kBlockM = Tile::kBlockM, kBlockN = Tile::kBlockN, kStages = Tile::kStages;
  constexpr int kThreads = Tile::kThreads, kWarpM = Tile::kWarpM, kWarpN = Tile::kWarpN;
  constexpr int kChunkC = kRowBytes / sizeof(T);
  constexpr int kRunC = kRunBytes / sizeof(T);
  LADDER_DYN_SMEM(smem);  // kStages times: A [pixel][128 bytes], then B [k][128 bytes], both swizzled

  const int blocks_k = ceil_div(p.k, kBlockN);
  const int k0 = blockIdx.x % blocks_k * kBlockN;
  const int m0 = blockIdx.x / blocks_k * kBlockM;

  // This thread copies one run of every kRowStep-th row. The swizzle is the same in all of these rows.
  constexpr int kRowStep = kThreads / kRunsPerRow;
  constexpr int kLoadsA = kBlockM / kRowStep;
  constexpr int kLoadsB = kBlockN / kRowStep;
  static_assert(kRowStep % 8 == 0 && kLoadsA * kRowStep == kBlockM && kLoadsB * kRowStep == kBlockN,
                "copies divide evenly and keep their swizzle");
  const int load_row = threadIdx.x / kRunsPerRow;
  const int load_c = threadIdx.x % kRunsPerRow * kRunC;
  const int load_smem = swizzled(load_row, threadIdx.x % kRunsPerRow);
  PixelRow rows[kLoadsA];
#pragma unroll
  for (int i = 0; i < kLoadsA; ++i) rows[i] = pixel_row(p, m0 + load_row + i * kRowStep);

  auto copy_run = [&](unsigned char* to, const T* from, const T* fallback, bool valid, int c) {
    if constexpr (kVectors) {
      ptx::cp_async<kRunBytes>(to, valid && c < p.c ? from : fallback, valid && c < p.c);
    } else {
      for (int j = 0; j < kRunC; ++j) {
        reinterpret_cast<T*>(to)[j] = valid && c + j < p.c ? from[j] : from_float<T>(0.0f);
      }
    }
  };
  auto fetch = [&](const KStep& step, int stage) {
    unsigned char* const as = smem + stage * Tile::kStageBytes + load_smem;
    unsigned char* const bs = as + kBlockM * kRowBytes;
    const int c = step.c0 + load_c;
    const int offset = tap_offset(p, step.rs) + c;
#pragma unroll
    for (int i = 0; i < kLoadsA; ++i) {
      copy_run(as + i * kRowStep * kRowBytes, x + (rows[i].base + offset), x, rows[i].taps >> step.rs & 1, c);
    }
#pragma unroll
    for (int i = 0; i < kLoadsB; ++i) {
      const int k = k0 + load_row + i * kRowStep;
      copy_run(bs + i * kRowStep * kRowBytes, w + (k * 9 + step.rs) * p.c + c, w, k < p.k, c);
    }
  };

  // Rows and runs that this lane addresses for ldmatrix. A: lanes 0-15 address rows at the first 16 bytes, lanes 16-31
  // at the second. B: lanes 0-7 and 8-15 address the two runs of the first eight output channels, lanes 16-31 those of
  // the next eight.
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int warp_m = warp % Tile::kWarpsM * kWarpM;
  const int warp_n = warp / Tile::kWarpsM * kWarpN;
  const int a_row = warp_m + lane % 16;
  const int a_run = lane / 16;
  const int b_row = warp_n + lane % 8 + lane / 16 * 8;
  const int b_run = lane / 8 % 2;

  float sum[kWarpM / 16][kWarpN / 8][4] = {};
  const int num_steps = 9 * ceil_div(p.c, kChunkC);
  KStep step;
#pragma unroll
  for (int s = 0; s < kStages - 1; ++s) {
    if (s < num_steps) fetch(step, s);
    step.advance(kChunkC);
    ptx::cp_async_commit();  // one group a step, empty or not, so that the count of pending groups tells the step
  }

  for (int t = 0; t < num_steps; ++t) {
    ptx::cp_async_wait<kStages - 2>();
    // One barrier a step: this step's copies are visible to all, and all have left the stage that is filled next.
    __syncthreads();
    if (t + kStages - 1 < num_steps) fetch(step, (t + kStages - 1) % kStages);
    step.advance(kChunkC);
    ptx::cp_async_commit();

    const unsigned char* const as = smem + t % kStages * Tile::kStageBytes;
    const unsigned char* const bs = as + kBlockM * kRowBytes;
#pragma unroll
    for (int kk = 0; kk < kRowBytes / kStepBytes; ++kk) {
      std::uint32_t a[kWarpM / 16][4];
      std::uint32_t b[kWarpN / 16][4];
#pragma unroll
      for (int i = 0; i < kWarpM / 16; ++i) ptx::ldmatrix_x4(a[i], as + swizzled(a_row + 16 * i, 2 * kk + a_run));
#pragma unroll
      for (int j = 0; j < kWarpN / 16; ++j) ptx::ldmatrix_x4(b[j], bs + swizzled(b_row + 16 * j, 2 * kk + b_run));
#pragma unroll
      for (int i = 0; i < kWarpM / 16; ++i) {
#pragma unroll
        for (int j = 0; j < kWarpN / 8; ++j) {
          const std::uint32_t b_pair[2] = {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]};
          multiply<T>(sum[i][j], a[i], b_pair);
        }
      }
    }
  }

  // Store the sums in y by way of shared memory, so that a warp writes whole rows of 16 bytes a lane.
  __syncthreads();
  float* const tile = reinterpret_cast<float*>(smem);
#pragma unroll
  for (int i = 0; i < kWarpM / 16; ++i) {
#pragma unroll
    for (int j = 0; j < kWarpN / 8; ++j) {
      float* smem_ptr = tile + (warp_m + 16 * i + lane / 4) * Tile::kPitchC + warp_n + 8 * j + lane % 4 * 2;
      *reinterpret_cast<float2*>(smem_ptr) = {sum[i][j][0], sum[i][j][1]};
      *reinterpret_cast<float2*>(smem_ptr + 8 * Tile::kPitchC) = {sum[i][j][2], sum[i][j][3]};
    }
  }
  __syncthreads();
  store_tile<kThreads, kBlockM, kBlockN>(p, tile, Tile::kPitchC, m0, k0, bias, y);
}

template <class Tile>
int num_blocks(const Problem& p) {
  return ceil_div(static_cast<int>(p.pixels()), Tile::kBlockM) * ceil_div(p.k, Tile::kBlockN);
}

template <class T, class Tile>
KernelPlan<Fprop> tile_plan(const Problem& p, const char* name) {
  const auto bind = [p](const Fprop::Tensors& t, void*) {
    const auto kernel = p.c * sizeof(T) % kRunBytes == 0 ? conv3x3_fprop_v08_kernel<T, Tile, true>
                                                         : conv3x3_fprop_v08_kernel<T, Tile, false>;
    return bind_launch(
        kernel,
        {.grid = static_cast<unsigned>(num_blocks<Tile>(p)), .block = Tile::kThreads, .dynamic_smem = Tile::kSmemBytes},
        p, static_cast<const T*>(t.x), static_cast<const T*>(t.w), t.bias, static_cast<T*>(t.y));
  };
  return {.name = name, .bind = bind};
}

using Square = Tile<128, 128, 2, 2, 3, 2>;
using ThreeQuarters = Tile<128, 96, 2, 2, 3, 2>;
using Narrow = Tile<128, 64, 2, 2, 4, 2>;
using Small = Tile<64, 64, 2, 2, 6, 2>;

// Larger tiles fetch less from L2; smaller ones keep all SMs busy when pixels are few.
std::size_t best_tile(const Problem& p) {
  constexpr int kEnoughBlocks = 128;
  if (p.k % 128 == 0 && num_blocks<Square>(p) >= kEnoughBlocks) return 0;
  if (p.k % 96 == 0 && num_blocks<ThreeQuarters>(p) >= kEnoughBlocks) return 1;
  return num_blocks<Narrow>(p) >= kEnoughBlocks ? 2 : 3;
}

std::vector<KernelPlan<Fprop>> plans(const Problem& p) {
  return with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    return with_default<Fprop>({tile_plan<T, Square>(p, "128x128"), tile_plan<T, ThreeQuarters>(p, "128x96"),
                                tile_plan<T, Narrow>(p, "128x64"), tile_plan<T, Small>(p, "64x64")},
                               best_tile(p));
  });
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Fprop, {.plans = ladder::conv3x3::plans,
                                        .plan_names = {"128x128", "128x96", "128x64", "64x64"},
                                        .dtypes = {ladder::Dtype::tf32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                        .supports = ladder::conv3x3::plain_only,
                                        .min_arch = 80})
