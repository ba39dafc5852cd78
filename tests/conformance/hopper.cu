// mbarrier, TMA and wgmma. One kernel copies a box to shared memory and dumps its raw bytes; another multiplies two
// operands that lie in one copied tile. A GPU other than sm_90 has none of these units and dumps no values, which the
// comparison reports.
#include "dev/ptx/mbarrier.h"
#include "dev/ptx/tma.h"
#include "dev/ptx/wgmma.h"
#include "tests/conformance/wrappers.h"

namespace ladder::conformance {
namespace {

constexpr int kThreads = 128;
constexpr int kRowBytes = 128;

template <class T>
constexpr Dtype kDtype = sizeof(T) == 4              ? Dtype::tf32
                         : std::is_same_v<T, __half> ? Dtype::f16
                                                     : Dtype::bf16;

bool unavailable() { return backend::device().arch != 90; }

// --- TMA: boxes of a [3][4][6][kC] tensor at several corners, dumped in their shared-memory layout

constexpr int kBoxRows = 5 * 3 * 2;
constexpr int kBoxWords = kBoxRows * kRowBytes / 4;

__global__ void tma_kernel(const __grid_constant__ ptx::TensorMap map, int x0, int x1, int x2, int x3, int first_row,
                           std::uint32_t* out) {
  LADDER_DYN_SMEM(smem);
  LADDER_SHARED(ptx::Mbarrier, full, );
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&full, 1);
    ptx::mbarrier_fence_init();
    ptx::tma_prefetch(map);
    ptx::mbarrier_arrive_expect_tx(&full, kBoxRows * kRowBytes);
    ptx::tma_load(smem + first_row * kRowBytes, map, &full, x0, x1, x2, x3);
  }
  __syncthreads();
  ptx::mbarrier_wait(&full, 0);
  const auto* words = reinterpret_cast<const std::uint32_t*>(smem + first_row * kRowBytes);
  for (int i = threadIdx.x; i < kBoxWords; i += kThreads) out[i] = words[i];
}

template <class T>
Output tma() {
  constexpr unsigned kC = kRowBytes / sizeof(T);
  if (unavailable()) return {.words = {}, .shape = {0}};
  DeviceArray<std::uint32_t> in(Inputs().words(3 * 4 * 6 * (2 * kC - 8) * static_cast<int>(sizeof(T)) / 4));
  const auto map = ptx::make_tensor_map(kDtype<T>, in.get(), {2 * kC - 8, 6, 4, 3}, {kC, 5, 3, 2});
  const int corners[][4] = {{0, 0, 0, 0}, {-8, -1, -1, -1}, {kC, 4, 3, 2},
                            {8, 1, 1, 1}, {0, 0, 0, 5},     {-int{kC}, 0, 0, 0}};
  Output output{.words = {}, .shape = {12, kBoxRows, kRowBytes / 4}};
  for (const auto& corner : corners) {
    for (const int first_row : {0, 3}) {
      DeviceArray<std::uint32_t> out(kBoxWords);
      launch(tma_kernel, {1, kThreads, 2 * kBoxRows * kRowBytes}, nullptr, map, corner[0], corner[1], corner[2],
             corner[3], first_row, out.get());
      for (const std::uint32_t word : out.to_host()) output.words.push_back(word);
    }
  }
  return output;
}

LADDER_CONFORMS(tma_bf16, tma<__nv_bfloat16>)
LADDER_CONFORMS(tma_tf32, tma<float>)

// --- wgmma: A and B are windows into one tile of rows, copied in boxes of 128 rows

// Operand layouts: A and B K-major; A and B MN-major; only B MN-major; A and B K-major with A in registers.
enum class Major { k, mn, b_mn, a_registers };

struct Window {
  int first_row;
  int group_rows;      // rows from a group of 8 to the next: 8 is dense; 10 is a halo tile, 1280 bytes a group
  int chunk_rows = 1;  // MN-major only: rows from 64 elements of M or N to the next; 1 is the next pixel
};

template <class T, int kN, Major kMajor>
__global__ void wgmma_kernel(const __grid_constant__ ptx::TensorMap map, int boxes, Window a, Window b, float* out) {
  LADDER_DYN_SMEM(smem);
  LADDER_SHARED(ptx::Mbarrier, full, );
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&full, 1);
    ptx::mbarrier_fence_init();
    ptx::mbarrier_arrive_expect_tx(&full, boxes * 128 * kRowBytes);
    for (int i = 0; i < boxes; ++i) ptx::tma_load(smem + i * 128 * kRowBytes, map, &full, 0, i * 128, 0);
  }
  __syncthreads();
  ptx::mbarrier_wait(&full, 0);
  const auto describe_k = [&](const Window& window, int step) {
    return ptx::wgmma_descriptor(smem + window.first_row * kRowBytes + 32 * step, window.group_rows * kRowBytes);
  };
  const auto describe_mn = [&](const Window& window, int step) {
    const unsigned group_bytes = window.group_rows * kRowBytes;
    return ptx::wgmma_descriptor_mn(smem + window.first_row * kRowBytes + 2 * step * group_bytes, group_bytes,
                                    window.chunk_rows * kRowBytes);
  };
  [[maybe_unused]] std::uint32_t fragments[4][4];  // A of each K step
  if constexpr (kMajor == Major::a_registers) {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + i % 2 * 8;
      const int line = a.first_row + row / 8 * a.group_rows + row % 8;
      const int byte = i / 4 * 32 + i / 2 % 2 * 16 + threadIdx.x % 4 * 4;
      const unsigned char* const from = smem + line * kRowBytes + (byte ^ line % 8 * 16);
      fragments[i / 4][i % 4] = *reinterpret_cast<const std::uint32_t*>(from);
    }
  }
  float d[kN / 2];
#pragma unroll
  for (int i = 0; i < kN / 2; ++i) d[i] = static_cast<float>(i) * 0.125f - 4.0f;
  ptx::warpgroup_fence_operand(d);
  ptx::wgmma_fence();
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    if constexpr (kMajor == Major::mn) {
      ptx::wgmma_m64_mn<T, kN>(d, describe_mn(a, step), describe_mn(b, step), true);
    } else if constexpr (kMajor == Major::b_mn) {
      ptx::wgmma_m64_b_mn<T, kN>(d, describe_k(a, step), describe_mn(b, step), true);
    } else if constexpr (kMajor == Major::a_registers) {
      ptx::wgmma_m64_a_registers<T, kN>(d, fragments[step], describe_k(b, step), true);
    } else {
      ptx::wgmma_m64<T, kN>(d, describe_k(a, step), describe_k(b, step), true);
    }
  }
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  ptx::warpgroup_fence_operand(d);
#pragma unroll
  for (int i = 0; i < kN / 2; ++i) out[threadIdx.x * (kN / 2) + i] = d[i];
}

template <class T, int kN, Major kMajor = Major::k>
Output wgmma() {
  constexpr int kC = kRowBytes / sizeof(T);
  constexpr int kBoxes = 4;
  constexpr int kRows = kBoxes * 128;
  if (unavailable()) return {.words = {}, .shape = {0}};
  const std::vector<float> values = Inputs().uniforms(kRows * kC, -1, 1);
  std::vector<unsigned char> stored(kRows * kRowBytes);
  // Store tf32 operands as unrounded fp32: the hardware drops the low bits itself.
  encode(sizeof(T) == 4 ? Dtype::f32 : kDtype<T>, values.data(), values.size(), stored.data());
  DeviceArray<unsigned char> in(stored);
  const auto map = ptx::make_tensor_map(kDtype<T>, in.get(), {kC, kRows, 1}, {kC, 128, 1});
  const Window windows[][2] = {
      {{0, 8}, {128, 8, 66}}, {{3, 8}, {133, 8}}, {{11, 10}, {130, 8}}, {{400, 8}, {21, 10}}, {{23, 10}, {26, 10}}};
  // The tolerance covers up to 64 products below 1, summed in fp32 in any order and with the tensor cores' truncation.
  Output output{.words = {}, .shape = {5, kThreads, kN / 2}, .absolute = 1e-4, .relative = 0};
  for (const auto& window : windows) {
    DeviceArray<float> out(kThreads * kN / 2);
    launch(wgmma_kernel<T, kN, kMajor>, {1, kThreads, kRows * kRowBytes}, nullptr, map, kBoxes, window[0], window[1],
           out.get());
    for (const std::uint32_t word : patterns(out.to_host())) output.words.push_back(word);
  }
  return output;
}

// --- wgmma: operands written to shared memory by threads, with the swizzle of the row width. The first 64 rows are A,
// the rest B. Both K-major, both MN-major, and A in registers with an MN-major B.

template <class T, int kN, int kBytes>
__global__ void wgmma_rows_kernel(const std::uint32_t* in, float* out) {
  constexpr int kWords = kBytes / 4;  // words of a row
  LADDER_DYN_SMEM(smem);
  for (int i = threadIdx.x; i < (64 + kN) * kWords; i += kThreads) {
    const int row = i / kWords;
    const int run = i % kWords / 4 ^ row * kBytes / 128 % (kBytes / 16);
    *reinterpret_cast<std::uint32_t*>(smem + row * kBytes + run * 16 + i % 4 * 4) = in[i];
  }
  ptx::wgmma_fence_stores();
  __syncthreads();
  const std::uint64_t a = ptx::wgmma_descriptor_mn<kBytes>(smem, 8 * kBytes, kBytes / 2 * kBytes);
  const std::uint64_t b = ptx::wgmma_descriptor_mn<kBytes>(smem + 64 * kBytes, 8 * kBytes, kBytes / 2 * kBytes);
  const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
  float d[3][kN / 2] = {};
  std::uint32_t registers[2][4];
#pragma unroll
  for (int i = 0; i < 8; ++i)
    registers[i / 4][i % 4] = in[(row + i % 2 * 8) * kWords + i / 4 * 8 + threadIdx.x % 4 + i / 2 % 2 * 4];
  ptx::warpgroup_fence_operand(registers);
#pragma unroll
  for (auto& sums : d) ptx::warpgroup_fence_operand(sums);
  ptx::wgmma_fence();
#pragma unroll
  for (int step = 0; step < 2; ++step) {
    ptx::wgmma_m64<T, kN>(d[0], ptx::wgmma_ahead(a, 32 * step), ptx::wgmma_ahead(b, 32 * step), true);
    ptx::wgmma_m64_mn<T, kN>(d[1], ptx::wgmma_ahead(a, 16 * step * kBytes), ptx::wgmma_ahead(b, 16 * step * kBytes),
                             true);
    ptx::wgmma_m64_a_registers_b_mn<T, kN>(d[2], registers[step], ptx::wgmma_ahead(b, 16 * step * kBytes), true);
  }
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
#pragma unroll
  for (int product = 0; product < 3; ++product) {
    ptx::warpgroup_fence_operand(d[product]);
#pragma unroll
    for (int i = 0; i < kN / 2; ++i) out[(product * kThreads + threadIdx.x) * (kN / 2) + i] = d[product][i];
  }
}

template <class T, int kN, int kBytes>
Output wgmma_rows() {
  constexpr int kCount = (64 + kN) * kBytes / 2;
  if (unavailable()) return {.words = {}, .shape = {0}};
  const std::vector<float> values = Inputs().uniforms(kCount, -1, 1);
  std::vector<std::uint32_t> stored(kCount / 2);
  encode(kDtype<T>, values.data(), values.size(), stored.data());
  DeviceArray<std::uint32_t> in(stored);
  DeviceArray<float> out(3 * kThreads * kN / 2);
  launch(wgmma_rows_kernel<T, kN, kBytes>, {1, kThreads, (64 + kN) * kBytes}, nullptr, in.get(), out.get());
  Output output{.words = {}, .shape = {3, kThreads, kN / 2}, .absolute = 1e-4, .relative = 0};
  for (const std::uint32_t word : patterns(out.to_host())) output.words.push_back(word);
  return output;
}

LADDER_CONFORMS(wgmma_rows_bf16_n32_64_bytes, (wgmma_rows<__nv_bfloat16, 32, 64>))
LADDER_CONFORMS(wgmma_rows_bf16_n64_64_bytes, (wgmma_rows<__nv_bfloat16, 64, 64>))
LADDER_CONFORMS(wgmma_rows_f16_n32_64_bytes, (wgmma_rows<__half, 32, 64>))
LADDER_CONFORMS(wgmma_rows_f16_n64_128_bytes, (wgmma_rows<__half, 64, 128>))

LADDER_CONFORMS(wgmma_bf16_n64, (wgmma<__nv_bfloat16, 64>))
LADDER_CONFORMS(wgmma_bf16_n96, (wgmma<__nv_bfloat16, 96>))
LADDER_CONFORMS(wgmma_bf16_n128, (wgmma<__nv_bfloat16, 128>))
LADDER_CONFORMS(wgmma_bf16_n192, (wgmma<__nv_bfloat16, 192>))
LADDER_CONFORMS(wgmma_bf16_n256, (wgmma<__nv_bfloat16, 256>))
LADDER_CONFORMS(wgmma_f16_n64, (wgmma<__half, 64>))
LADDER_CONFORMS(wgmma_f16_n256, (wgmma<__half, 256>))
LADDER_CONFORMS(wgmma_tf32_n64, (wgmma<float, 64>))
LADDER_CONFORMS(wgmma_tf32_n256, (wgmma<float, 256>))
LADDER_CONFORMS(wgmma_a_registers_bf16_n48, (wgmma<__nv_bfloat16, 48, Major::a_registers>))
LADDER_CONFORMS(wgmma_a_registers_f16_n96, (wgmma<__half, 96, Major::a_registers>))
LADDER_CONFORMS(wgmma_a_registers_tf32_n64, (wgmma<float, 64, Major::a_registers>))
LADDER_CONFORMS(wgmma_mn_bf16_n64, (wgmma<__nv_bfloat16, 64, Major::mn>))
LADDER_CONFORMS(wgmma_mn_bf16_n128, (wgmma<__nv_bfloat16, 128, Major::mn>))
LADDER_CONFORMS(wgmma_mn_bf16_n192, (wgmma<__nv_bfloat16, 192, Major::mn>))
LADDER_CONFORMS(wgmma_mn_f16_n192, (wgmma<__half, 192, Major::mn>))
LADDER_CONFORMS(wgmma_b_mn_bf16_n64, (wgmma<__nv_bfloat16, 64, Major::b_mn>))
LADDER_CONFORMS(wgmma_b_mn_bf16_n96, (wgmma<__nv_bfloat16, 96, Major::b_mn>))
LADDER_CONFORMS(wgmma_b_mn_bf16_n128, (wgmma<__nv_bfloat16, 128, Major::b_mn>))
LADDER_CONFORMS(wgmma_b_mn_bf16_n192, (wgmma<__nv_bfloat16, 192, Major::b_mn>))

}  // namespace
}  // namespace ladder::conformance
