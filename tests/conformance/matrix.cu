// mma.sync and wmma. Sums are compared within the bound of core/check.h for |a b| <= 1: 4 sqrt(K) 2^-23 K. fp16
// accumulators get half a unit in the last place on either side on top.
#include <cmath>

#include "dev/ptx/mma.h"
#include "tests/conformance/wrappers.h"

namespace ladder::conformance {
namespace {

namespace wmma = nvcuda::wmma;

double sum_bound(int k) { return 4 * std::sqrt(static_cast<double>(k)) * 0x1p-23 * (k + 1); }

// Draw a register with two numbers in [-1, 1). The fragment element that a register holds does not matter, as long as
// the GPU and the emulator agree on it.
template <class T>
std::uint32_t pair_of(Inputs& inputs) {
  auto element = [&] {
    const float x = inputs.uniform(-1, 1);
    if constexpr (std::is_same_v<T, __half>)
      return std::bit_cast<std::uint16_t>(__float2half(x));
    else
      return std::bit_cast<std::uint16_t>(__float2bfloat16(x));
  };
  const std::uint32_t low = element();
  return low | static_cast<std::uint32_t>(element()) << 16;
}

struct Bf16 {
  static constexpr int kDepth = 16;
  static std::uint32_t draw(Inputs& inputs) { return pair_of<__nv_bfloat16>(inputs); }
  static __device__ void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    ptx::mma_m16n8k16<__nv_bfloat16>(d, a, b);
  }
};
struct F16 {
  static constexpr int kDepth = 16;
  static std::uint32_t draw(Inputs& inputs) { return pair_of<__half>(inputs); }
  static __device__ void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    ptx::mma_m16n8k16<__half>(d, a, b);
  }
};
struct Tf32 {
  static constexpr int kDepth = 8;
  // Draw fp32 with low mantissa bits set, which the hardware must ignore.
  static std::uint32_t draw(Inputs& inputs) { return std::bit_cast<std::uint32_t>(inputs.uniform(-1, 1)); }
  static __device__ void mma(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    ptx::mma_m16n8k8_tf32(d, a, b);
  }
};

template <class Format>
__global__ void mma_kernel(const std::uint32_t* registers, float* out) {
  const std::uint32_t* fragments = registers + 10 * threadIdx.x;
  std::uint32_t a[4], b[2];
  float d[4];
  for (int i = 0; i < 4; ++i) a[i] = fragments[i];
  for (int i = 0; i < 2; ++i) b[i] = fragments[4 + i];
  for (int i = 0; i < 4; ++i) d[i] = __uint_as_float(fragments[6 + i]);
  Format::mma(d, a, b);
  for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = d[i];
}

template <class Format>
Output mma() {
  Inputs inputs;
  std::vector<std::uint32_t> registers;
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 6; ++i) registers.push_back(Format::draw(inputs));
    for (int i = 0; i < 4; ++i) registers.push_back(std::bit_cast<std::uint32_t>(inputs.uniform(-1, 1)));
  }
  DeviceArray<std::uint32_t> in(registers);
  DeviceArray<float> out(128);
  launch(mma_kernel<Format>, {1, 32}, nullptr, in.get(), out.get());
  return {.words = patterns(out.to_host()), .shape = {32, 4}, .absolute = sum_bound(Format::kDepth)};
}

LADDER_CONFORMS(mma_m16n8k16_bf16, mma<Bf16>)
LADDER_CONFORMS(mma_m16n8k16_f16, mma<F16>)
LADDER_CONFORMS(mma_m16n8k8_tf32, mma<Tf32>)

// --- wmma: all four combinations of layouts, accumulators loaded and stored either way

template <class E>
__device__ E from_float(float x) {
  if constexpr (std::is_same_v<E, __half>)
    return __float2half(x);
  else if constexpr (std::is_same_v<E, __nv_bfloat16>)
    return __float2bfloat16(x);
  else
    return x;
}
__device__ float to_float(float x) { return x; }
__device__ float to_float(__half x) { return __half2float(x); }

template <int m, int n, int k, class T, class D, class LA, class LB, wmma::layout_t kLayout>
__global__ void wmma_kernel(const float* a, const float* b, const float* c, float* out) {
  using A = wmma::fragment<wmma::matrix_a, m, n, k, T, LA>;
  using B = wmma::fragment<wmma::matrix_b, m, n, k, T, LB>;
  using E = typename A::storage_element_type;
  LADDER_SHARED(alignas(128) E, sa, [m * k]);
  LADDER_SHARED(alignas(128) E, sb, [k * n]);
  LADDER_SHARED(alignas(128) D, sc, [m * n]);
  for (int i = threadIdx.x; i < m * k; i += 32) sa[i] = from_float<E>(a[i]);
  for (int i = threadIdx.x; i < k * n; i += 32) sb[i] = from_float<E>(b[i]);
  for (int i = threadIdx.x; i < m * n; i += 32) sc[i] = from_float<D>(c[i]);
  __syncwarp();
  A fa;
  B fb;
  wmma::fragment<wmma::accumulator, m, n, k, D> fc;
  wmma::load_matrix_sync(fa, sa, std::is_same_v<LA, wmma::row_major> ? k : m);
  wmma::load_matrix_sync(fb, sb, std::is_same_v<LB, wmma::row_major> ? n : k);
  wmma::load_matrix_sync(fc, sc, kLayout == wmma::mem_row_major ? n : m, kLayout);
  if constexpr (std::is_same_v<T, wmma::precision::tf32>) {
    for (int i = 0; i < fa.num_elements; ++i) fa.x[i] = wmma::__float_to_tf32(fa.x[i]);
    for (int i = 0; i < fb.num_elements; ++i) fb.x[i] = wmma::__float_to_tf32(fb.x[i]);
  }
  wmma::mma_sync(fc, fa, fb, fc);
  __syncwarp();
  constexpr auto kOther = kLayout == wmma::mem_row_major ? wmma::mem_col_major : wmma::mem_row_major;
  wmma::store_matrix_sync(sc, fc, kOther == wmma::mem_row_major ? n : m, kOther);
  __syncwarp();
  for (int i = threadIdx.x; i < m * n; i += 32) out[i] = to_float(sc[i]);
}

template <int m, int n, int k, class T, class D, class LA, class LB, wmma::layout_t kLayout>
void append_wmma(std::vector<std::uint32_t>& words) {
  Inputs inputs;
  DeviceArray<float> a(inputs.uniforms(m * k, -1, 1)), b(inputs.uniforms(k * n, -1, 1)),
      c(inputs.uniforms(m * n, -1, 1));
  DeviceArray<float> out(m * n);
  launch(wmma_kernel<m, n, k, T, D, LA, LB, kLayout>, {1, 32}, nullptr, a.get(), b.get(), c.get(), out.get());
  for (const std::uint32_t word : patterns(out.to_host())) words.push_back(word);
}

template <int m, int n, int k, class T, class D>
Output wmma_layouts() {
  using Row = wmma::row_major;
  using Col = wmma::col_major;
  Output output{.words = {}, .shape = {4, m, n}, .absolute = sum_bound(k)};
  if constexpr (std::is_same_v<D, __half>) output.relative = 0x1p-10;
  append_wmma<m, n, k, T, D, Row, Row, wmma::mem_row_major>(output.words);
  append_wmma<m, n, k, T, D, Row, Col, wmma::mem_col_major>(output.words);
  append_wmma<m, n, k, T, D, Col, Row, wmma::mem_row_major>(output.words);
  append_wmma<m, n, k, T, D, Col, Col, wmma::mem_col_major>(output.words);
  return output;
}

LADDER_CONFORMS(wmma_m16n16k16_bf16, (wmma_layouts<16, 16, 16, __nv_bfloat16, float>))
LADDER_CONFORMS(wmma_m32n8k16_bf16, (wmma_layouts<32, 8, 16, __nv_bfloat16, float>))
LADDER_CONFORMS(wmma_m8n32k16_bf16, (wmma_layouts<8, 32, 16, __nv_bfloat16, float>))
LADDER_CONFORMS(wmma_m16n16k16_f16, (wmma_layouts<16, 16, 16, __half, float>))
LADDER_CONFORMS(wmma_m32n8k16_f16, (wmma_layouts<32, 8, 16, __half, float>))
LADDER_CONFORMS(wmma_m8n32k16_f16, (wmma_layouts<8, 32, 16, __half, float>))
LADDER_CONFORMS(wmma_m16n16k16_f16_f16, (wmma_layouts<16, 16, 16, __half, __half>))
LADDER_CONFORMS(wmma_m16n16k8_tf32, (wmma_layouts<16, 16, 8, wmma::precision::tf32, float>))

__global__ void wmma_transpose_kernel(const float* in, float* out) {
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> f;
  wmma::load_matrix_sync(f, in, 20, wmma::mem_row_major);
  for (int i = 0; i < f.num_elements; ++i) f.x[i] = -f.x[i];
  wmma::store_matrix_sync(out, f, 24, wmma::mem_col_major);
}

Output wmma_load_store() {
  DeviceArray<float> in(Inputs().uniforms(16 * 20, -1, 1)), out(16 * 24);
  launch(wmma_transpose_kernel, {1, 32}, nullptr, in.get(), out.get());
  return {.words = patterns(out.to_host()), .shape = {16, 24}};
}

LADDER_CONFORMS(wmma_load_store, wmma_load_store)

__global__ void to_tf32_kernel(const float* in, float* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = wmma::__float_to_tf32(in[i]);
}

Output to_tf32() {
  DeviceArray<float> in(awkward_floats(1024)), out(1024);
  launch(to_tf32_kernel, {4, 256}, nullptr, in.get(), out.get());
  return {.words = patterns(out.to_host()), .shape = {1024}};
}

LADDER_CONFORMS(wmma_float_to_tf32, to_tf32)

}  // namespace
}  // namespace ladder::conformance
