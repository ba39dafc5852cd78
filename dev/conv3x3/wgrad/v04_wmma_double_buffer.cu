// Idea:   tensor cores through WMMA, fed by cp.async into two buffers: the next pixels are on their way while these
//         multiply.
// Parent: v03.
// Why:    v03 is bound by the FMA pipe; tensor cores have 16 times its rate in bf16, 8 times in tf32. WMMA takes both
//         operands as they lie, pixels outermost: dy column-major, X row-major. cp.async passes no registers and writes
//         zeros for taps outside. Limiter left: one chunk of look-ahead, and each pixel of x is fetched nine times.
// Needs:  nothing; cp.async where rows of c and k are multiples of 16 bytes, else single elements; a workspace.

#include <algorithm>

#include "dev/conv3x3/wgrad_columns.h"
#include "dev/ptx/cp_async.h"

namespace ladder::conv3x3 {
namespace {

constexpr int kWarpsM = 2;
constexpr int kWarpsN = 3;
constexpr int kThreads = kWarpsM * kWarpsN * 32;
constexpr int kBlockM = 64;   // output channels
constexpr int kBlockN = 192;  // columns of dw: the U-Net's 9c are multiples of it
constexpr int kStages = 2;
constexpr int kWarpM = kBlockM / kWarpsM;
constexpr int kWarpN = kBlockN / kWarpsN;
constexpr int kPitchC = kBlockN + 4;

template <class T>
struct Format {
  static constexpr int kVec = 16 / sizeof(T);
  static constexpr int kChunk = 96 / sizeof(T);   // pixels staged at a time
  static constexpr int kPitchA = kBlockM + kVec;  // 16 bytes of padding: eight rows start in different banks
  static constexpr int kPitchB = kBlockN + kVec;
  static constexpr int kStageElements = kChunk * (kPitchA + kPitchB);
  static constexpr int kFragmentK = sizeof(T) == 4 ? 8 : 16;
  using Operand = std::conditional_t<sizeof(T) == 4, nvcuda::wmma::precision::tf32, T>;
  static constexpr std::size_t kSmemBytes =
      std::max(kStages * kStageElements * sizeof(T), kBlockM* kPitchC * sizeof(float));
};

// Blocks per SM that fit in the register file.
template <class T, bool kVectors>
constexpr int kBlocksPerSm = !kVectors        ? 1
                             : sizeof(T) == 2 ? 3
                                              : 2;

template <class T, bool kVectors>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm<T, kVectors>)
    conv3x3_wgrad_v04_kernel(Problem p, Split split, const T* x, const T* dy, float* partial) {
  namespace wmma = nvcuda::wmma;
  using F = Format<T>;
  constexpr int kRowStepA = kThreads / (kBlockM / F::kVec);
  constexpr int kRowStepB = kThreads / (kBlockN / F::kVec);
  static_assert(kThreads % (kBlockM / F::kVec) == 0 && kThreads % (kBlockN / F::kVec) == 0,
                "a thread keeps its columns");
  static_assert(F::kChunk % kRowStepA == 0 && F::kChunk % kRowStepB == 0, "loads divide evenly");
  LADDER_DYN_SMEM(smem);
  T* const stages = reinterpret_cast<T*>(smem);  // each: dy [pixel][k], then X [pixel][(r, s, c)]

  const int columns = 9 * p.c;
  const int tiles_n = ceil_div(columns, kBlockN);
  const int tiles_m = ceil_div(p.k, kBlockM);
  const int n0 = blockIdx.x % tiles_n * kBlockN;
  const int m0 = blockIdx.x / tiles_n % tiles_m * kBlockM;
  const int split_idx = blockIdx.x / tiles_n / tiles_m;
  const int begin = split_idx * split.units_per_split;
  const int end = min(begin + split.units_per_split, p.n * p.h * p.w);

  const int load_m = threadIdx.x % (kBlockM / F::kVec) * F::kVec;
  const int load_n = threadIdx.x % (kBlockN / F::kVec) * F::kVec;
  const int row_a = threadIdx.x / (kBlockM / F::kVec);
  const int row_b = threadIdx.x / (kBlockN / F::kVec);
  const Column column = column_of(p, n0 + load_n);
  const PixelStep step = pixel_step(p, kRowStepB);
  PixelCursor cursor = pixel_cursor(p, begin + row_b);  // of the next copy of X

  auto fetch = [&](int pixel0, int stage) {
    T* const as = stages + stage * F::kStageElements + load_m;
    T* const bs = stages + stage * F::kStageElements + F::kChunk * F::kPitchA + load_n;
#pragma unroll
    for (int row = row_a; row < row_a + F::kChunk; row += kRowStepA) {
      const int pixel = pixel0 + row;
      const T* const from = dy + pixel * p.k + m0 + load_m;
      if constexpr (kVectors) {
        const bool valid = pixel < end && m0 + load_m < p.k;
        ptx::cp_async<16>(as + row * F::kPitchA, valid ? from : dy, valid);
      } else {
        for (int j = 0; j < F::kVec; ++j) {
          as[row * F::kPitchA + j] = pixel < end && m0 + load_m + j < p.k ? from[j] : from_float<T>(0.0f);
        }
      }
    }
#pragma unroll
    for (int row = row_b; row < row_b + F::kChunk; row += kRowStepB) {
      if constexpr (kVectors) {
        const bool valid = cursor.pixel < end && column.inside(p, cursor);
        ptx::cp_async<16>(bs + row * F::kPitchB, valid ? x + (cursor.pixel * p.c + column.offset) : x, valid);
      } else {
        for (int j = 0; j < F::kVec; ++j) {
          const Column one = column_of(p, n0 + load_n + j);
          const bool valid = cursor.pixel < end && one.inside(p, cursor);
          bs[row * F::kPitchB + j] = valid ? x[cursor.pixel * p.c + one.offset] : from_float<T>(0.0f);
        }
      }
      cursor.advance(p, step);
    }
    ptx::cp_async_commit();
  };

  const int warp = threadIdx.x / 32;
  const int warp_m = warp % kWarpsM * kWarpM;
  const int warp_n = warp / kWarpsM * kWarpN;
  wmma::fragment<wmma::accumulator, 16, 16, F::kFragmentK, float> sum[kWarpM / 16][kWarpN / 16];
#pragma unroll
  for (int i = 0; i < kWarpM / 16; ++i) {
#pragma unroll
    for (int j = 0; j < kWarpN / 16; ++j) wmma::fill_fragment(sum[i][j], 0.0f);
  }
  const bool accumulates_bias_gradient = p.bias && n0 == 0 && threadIdx.x < kBlockM;
  float bias_sum = 0;

  fetch(begin, 0);
  int stage = 0;
  for (int pixel0 = begin; pixel0 < end; pixel0 += F::kChunk, stage ^= 1) {
    // Fetch ahead into the buffer that the barrier at the end of the last chunk set free.
    if (pixel0 + F::kChunk < end) {
      fetch(pixel0 + F::kChunk, stage ^ 1);
      ptx::cp_async_wait<1>();
    } else {
      ptx::cp_async_wait<0>();
    }
    __syncthreads();

    const T* const as = stages + stage * F::kStageElements;
    const T* const bs = as + F::kChunk * F::kPitchA;
#pragma unroll
    for (int kk = 0; kk < F::kChunk; kk += F::kFragmentK) {
      wmma::fragment<wmma::matrix_a, 16, 16, F::kFragmentK, typename F::Operand, wmma::col_major> a[kWarpM / 16];
#pragma unroll
      for (int i = 0; i < kWarpM / 16; ++i) {
        wmma::load_matrix_sync(a[i], as + kk * F::kPitchA + warp_m + 16 * i, F::kPitchA);
      }
#pragma unroll
      for (int j = 0; j < kWarpN / 16; ++j) {
        wmma::fragment<wmma::matrix_b, 16, 16, F::kFragmentK, typename F::Operand, wmma::row_major> b;
        wmma::load_matrix_sync(b, bs + kk * F::kPitchB + warp_n + 16 * j, F::kPitchB);
#pragma unroll
        for (int i = 0; i < kWarpM / 16; ++i) wmma::mma_sync(sum[i][j], a[i], b, sum[i][j]);
      }
    }
    if (accumulates_bias_gradient) {
      for (int i = 0; i < F::kChunk; ++i) bias_sum += to_float(as[i * F::kPitchA + threadIdx.x]);
    }
    __syncthreads();
  }

  float* const tile = reinterpret_cast<float*>(smem);
#pragma unroll
  for (int i = 0; i < kWarpM / 16; ++i) {
#pragma unroll
    for (int j = 0; j < kWarpN / 16; ++j) {
      wmma::store_matrix_sync(tile + (warp_m + 16 * i) * kPitchC + warp_n + 16 * j, sum[i][j], kPitchC,
                              wmma::mem_row_major);
    }
  }
  __syncthreads();
  float* const out = partial + static_cast<long long>(split_idx) * partial_row(p);
  for (int i = threadIdx.x; i < kBlockM * kBlockN / 4; i += kThreads) {
    const int row = i / (kBlockN / 4);
    const int col = i % (kBlockN / 4) * 4;
    const float* const from = tile + row * kPitchC + col;
    float* const to = out + (m0 + row) * columns + n0 + col;
    if (m0 + row >= p.k) continue;
    if (columns % 4 == 0) {
      if (n0 + col < columns) *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(from);
    } else {
      for (int j = 0; j < 4 && n0 + col + j < columns; ++j) to[j] = from[j];
    }
  }
  const int bias_k = m0 + static_cast<int>(threadIdx.x);
  if (accumulates_bias_gradient && bias_k < p.k) out[bias_offset(p) + bias_k] = bias_sum;
}

int num_tiles(const Problem& p) { return ceil_div(p.k, kBlockM) * ceil_div(9 * p.c, kBlockN); }

template <class T>
Split split_of(const Problem& p) {
  constexpr int kChunk = Format<T>::kChunk;
  const int chunks = ceil_div(static_cast<int>(p.pixels()), kChunk);
  const BlockCost cost{.unit_ns = 2000, .start_ns = 4000, .blocks_per_sm = kBlocksPerSm<T, true>};
  const Split split = plan_split(partial_row(p), chunks, num_tiles(p), cost).split;
  return {split.splits, split.units_per_split * kChunk};
}

std::size_t workspace_bytes(const Problem& p) {
  std::size_t bytes = 0;
  with_storage_type(p.dtype, [&](auto element) { bytes = partial_bytes(p, split_of<decltype(element)>(p)); });
  return bytes;
}

void launch(const Problem& p, const Wgrad::Tensors& t, void* workspace, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    const Split split = split_of<T>(p);
    auto* const partial = static_cast<float*>(workspace);
    const bool vectors = p.c % Format<T>::kVec == 0 && p.k % Format<T>::kVec == 0;
    ladder::launch(vectors ? conv3x3_wgrad_v04_kernel<T, true> : conv3x3_wgrad_v04_kernel<T, false>,
                   {.grid = static_cast<unsigned>(num_tiles(p)) * split.splits,
                    .block = kThreads,
                    .dynamic_smem = Format<T>::kSmemBytes},
                   stream, p, split, static_cast<const T*>(t.x), static_cast<const T*>(t.dy), partial);
    launch_reduce<T>(p, split, partial, t, stream);
  });
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_VERSION(ladder::conv3x3::Wgrad,
               {.launch = ladder::conv3x3::launch,
                .dtypes = {ladder::Dtype::tf32, ladder::Dtype::bf16, ladder::Dtype::f16},
                .workspace_bytes = ladder::conv3x3::workspace_bytes,
                .min_arch = 80,
                .error_growth = 4})  // in tf32, WMMA adds four products at a time, truncating each time
