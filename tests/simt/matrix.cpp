// Matrix instructions against plain loops. Small integers make every product and sum exact, so that results compare bit
// for bit and a wrong layout cannot hide in a tolerance.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <random>

#include "dev/ptx/ldmatrix.h"
#include "dev/ptx/mma.h"
#include "tests/simt/support.h"

namespace ladder::simt::test {
namespace {

namespace wmma = nvcuda::wmma;

template <class T>
T make(float x) {
  if constexpr (std::is_same_v<T, __half>)
    return __float2half(x);
  else if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return __float2bfloat16(x);
  else
    return x;
}
float value(float x) { return x; }
float value(__half x) { return __half2float(x); }
float value(__nv_bfloat16 x) { return __bfloat162float(x); }

// Matrix in 32-byte aligned storage, as wmma needs.
template <class T>
struct Matrix {
  Matrix(int rows, int cols, int ldm, bool row_major) : rows(rows), cols(cols), ldm(ldm), row_major(row_major) {
    storage.resize(((row_major ? rows : cols) * ldm * sizeof(T) + 31) / 32);
  }
  T* data() { return reinterpret_cast<T*>(storage.data()); }
  T& at(int row, int col) { return data()[row_major ? row * ldm + col : col * ldm + row]; }
  void fill(std::mt19937& random) {
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < cols; ++c) at(r, c) = make<T>(static_cast<int>(random() % 17) - 8);
    }
  }
  struct alignas(32) Chunk {
    char bytes[32] = {};
  };
  int rows, cols, ldm;
  bool row_major;
  std::vector<Chunk> storage;
};

// --- wmma

template <int m, int n, int k, class T, class LA, class LB, class D, class Element>
__global__ void wmma_kernel(const Element* a, int lda, const Element* b, int ldb, const D* c, D* d, int ldd,
                            wmma::layout_t layout) {
  wmma::fragment<wmma::matrix_a, m, n, k, T, LA> fa;
  wmma::fragment<wmma::matrix_b, m, n, k, T, LB> fb;
  wmma::fragment<wmma::accumulator, m, n, k, D> fc;
  wmma::load_matrix_sync(fa, a, lda);
  wmma::load_matrix_sync(fb, b, ldb);
  wmma::load_matrix_sync(fc, c, ldd, layout);
  for (auto& x : fc.x) x = make<D>(2 * value(x));
  wmma::mma_sync(fc, fa, fb, fc);
  wmma::store_matrix_sync(d, fc, ldd, layout);
}

template <int m, int n, int k, class T, class D, class LA, class LB>
void check_wmma(wmma::layout_t layout) {
  using Element = typename wmma::fragment<wmma::matrix_a, m, n, k, T, LA>::storage_element_type;
  constexpr bool a_rows = std::is_same_v<LA, wmma::row_major>;
  constexpr bool b_rows = std::is_same_v<LB, wmma::row_major>;
  const bool d_rows = layout == wmma::mem_row_major;
  std::mt19937 random(m * 100 + n * 10 + k);
  Matrix<Element> a(m, k, (a_rows ? k : m) + 8, a_rows);
  Matrix<Element> b(k, n, (b_rows ? n : k) + 16, b_rows);
  Matrix<D> c(m, n, (d_rows ? n : m) + 8, d_rows);
  Matrix<D> d(m, n, c.ldm, d_rows);
  a.fill(random);
  b.fill(random);
  c.fill(random);
  for (const std::string& schedule : schedules(1)) {
    const Scoped scoped(schedule);
    launch(wmma_kernel<m, n, k, T, LA, LB, D, Element>, {1, 32}, nullptr, static_cast<const Element*>(a.data()), a.ldm,
           static_cast<const Element*>(b.data()), b.ldm, static_cast<const D*>(c.data()), d.data(), d.ldm, layout);
    for (int i = 0; i < m; ++i) {
      for (int j = 0; j < n; ++j) {
        float sum = 2 * value(c.at(i, j));
        for (int l = 0; l < k; ++l) sum += value(a.at(i, l)) * value(b.at(l, j));
        ASSERT_EQ(value(d.at(i, j)), value(make<D>(sum))) << m << "x" << n << "x" << k << " at " << i << ", " << j;
      }
    }
  }
}

template <int m, int n, int k, class T, class D>
void check_layouts() {
  for (const auto layout : {wmma::mem_row_major, wmma::mem_col_major}) {
    check_wmma<m, n, k, T, D, wmma::row_major, wmma::row_major>(layout);
    check_wmma<m, n, k, T, D, wmma::row_major, wmma::col_major>(layout);
    check_wmma<m, n, k, T, D, wmma::col_major, wmma::row_major>(layout);
    check_wmma<m, n, k, T, D, wmma::col_major, wmma::col_major>(layout);
  }
}

template <class T, class D>
void check_shapes() {
  check_layouts<16, 16, 16, T, D>();
  check_layouts<32, 8, 16, T, D>();
  check_layouts<8, 32, 16, T, D>();
}

TEST(Wmma, bf16) { check_shapes<__nv_bfloat16, float>(); }
TEST(Wmma, fp16) { check_shapes<__half, float>(); }
TEST(Wmma, fp16_accumulator) { check_shapes<__half, __half>(); }
TEST(Wmma, tf32) { check_layouts<16, 16, 8, wmma::precision::tf32, float>(); }

template <class Use, int m, int n, int k, class T>
constexpr int num_elements() {
  if constexpr (std::is_same_v<Use, wmma::accumulator>)
    return wmma::fragment<Use, m, n, k, T>::num_elements;
  else
    return wmma::fragment<Use, m, n, k, T, wmma::row_major>::num_elements;
}

// Element counts of NVIDIA's crt/mma.h.
TEST(Wmma, fragments_have_the_element_counts_of_mma_h) {
  EXPECT_EQ((num_elements<wmma::matrix_a, 16, 16, 16, __half>()), 16);
  EXPECT_EQ((num_elements<wmma::matrix_b, 32, 8, 16, __half>()), 16);
  EXPECT_EQ((num_elements<wmma::matrix_a, 16, 16, 16, __nv_bfloat16>()), 8);
  EXPECT_EQ((num_elements<wmma::matrix_a, 32, 8, 16, __nv_bfloat16>()), 16);
  EXPECT_EQ((num_elements<wmma::matrix_b, 32, 8, 16, __nv_bfloat16>()), 4);
  EXPECT_EQ((num_elements<wmma::matrix_a, 8, 32, 16, __nv_bfloat16>()), 4);
  EXPECT_EQ((num_elements<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32>()), 4);
  EXPECT_EQ((num_elements<wmma::accumulator, 16, 16, 8, float>()), 8);
  EXPECT_EQ((num_elements<wmma::accumulator, 8, 32, 16, __half>()), 8);
}

__global__ void unfilled_kernel(float* d) {
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> f;
  wmma::store_matrix_sync(d, f, 16, wmma::mem_row_major);
}

TEST(Wmma, a_fragment_that_was_never_filled_is_nan) {
  Matrix<float> d(16, 16, 16, true);
  launch(unfilled_kernel, {1, 32}, nullptr, d.data());
  for (int i = 0; i < 256; ++i) EXPECT_TRUE(std::isnan(d.data()[i]));
}

__global__ void load_kernel(const __nv_bfloat16* p, int ldm, int lane_offset) {
  wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> f;
  wmma::load_matrix_sync(f, p + (threadIdx.x == 5 ? lane_offset : 0), ldm);
}

TEST(Wmma, misaligned_and_non_uniform_loads_are_reported) {
  Matrix<__nv_bfloat16> a(17, 16, 32, true);
  auto report = [&](int offset, int ldm, int lane_offset) {
    return fault_of([&] {
      launch(load_kernel, {1, 32}, nullptr, static_cast<const __nv_bfloat16*>(a.data() + offset), ldm, lane_offset);
    });
  };
  EXPECT_EQ(report(16, 24, 0), "no fault");
  EXPECT_NE(report(8, 24, 0).find("not aligned to 256 bits"), std::string::npos);
  EXPECT_NE(report(0, 20, 0).find("not a multiple of 16 bytes"), std::string::npos);
  EXPECT_NE(report(0, 16, 16).find("different addresses"), std::string::npos);
}

__global__ void tf32_kernel(const float* in, float* out) { out[threadIdx.x] = wmma::__float_to_tf32(in[threadIdx.x]); }

TEST(Wmma, rounding_to_tf32_is_to_nearest_ties_away) {
  const std::vector<float> in = {1.0f,           1.0f + 0x1p-11f, 1.0f + 0x1.fp-12f, -1.0f - 0x1p-11f, 1.0f + 0x3p-11f,
                                 0x1.fffffep127f};
  std::vector<float> out(in.size());
  launch(tf32_kernel, {1, static_cast<unsigned>(in.size())}, nullptr, in.data(), out.data());
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], 1.0f + 0x1p-10f);
  EXPECT_EQ(out[2], 1.0f);
  EXPECT_EQ(out[3], -1.0f - 0x1p-10f);
  EXPECT_EQ(out[4], 1.0f + 0x1p-9f);
  EXPECT_TRUE(std::isinf(out[5]));
}

// --- mma.sync: fragments are filled and read by the PTX ISA's formulas, implemented here a second time

template <class T>
std::uint32_t pack(T low, T high) {
  return std::bit_cast<std::uint16_t>(low) | static_cast<std::uint32_t>(std::bit_cast<std::uint16_t>(high)) << 16;
}

// d += a b, with a [16][16], b [16][8] and d [16][8], all row-major.
template <class T>
__global__ void mma_16_kernel(const T* a, const T* b, float* d) {
  const int g = threadIdx.x >> 2, t = threadIdx.x & 3;
  std::uint32_t ra[4], rb[2];
  for (int i = 0; i < 4; ++i) {
    const int row = g + (i & 1) * 8, col = t * 2 + (i >> 1) * 8;
    ra[i] = pack(a[row * 16 + col], a[row * 16 + col + 1]);
  }
  for (int i = 0; i < 2; ++i) rb[i] = pack(b[(t * 2 + i * 8) * 8 + g], b[(t * 2 + i * 8 + 1) * 8 + g]);
  float rd[4];
  for (int i = 0; i < 4; ++i) rd[i] = d[(g + (i >> 1) * 8) * 8 + t * 2 + (i & 1)];
  ptx::mma_m16n8k16<T>(rd, ra, rb);
  for (int i = 0; i < 4; ++i) d[(g + (i >> 1) * 8) * 8 + t * 2 + (i & 1)] = rd[i];
}

__global__ void mma_tf32_kernel(const float* a, const float* b, float* d) {
  const int g = threadIdx.x >> 2, t = threadIdx.x & 3;
  std::uint32_t ra[4], rb[2];
  for (int i = 0; i < 4; ++i) ra[i] = __float_as_uint(a[(g + (i & 1) * 8) * 8 + t + (i >> 1) * 4]);
  for (int i = 0; i < 2; ++i) rb[i] = __float_as_uint(b[(t + i * 4) * 8 + g]);
  float rd[4];
  for (int i = 0; i < 4; ++i) rd[i] = d[(g + (i >> 1) * 8) * 8 + t * 2 + (i & 1)];
  ptx::mma_m16n8k8_tf32(rd, ra, rb);
  for (int i = 0; i < 4; ++i) d[(g + (i >> 1) * 8) * 8 + t * 2 + (i & 1)] = rd[i];
}

template <class T, class Kernel>
void check_mma(Kernel kernel, int k) {
  std::mt19937 random(k);
  Matrix<T> a(16, k, k, true), b(k, 8, 8, true);
  Matrix<float> c(16, 8, 8, true);
  a.fill(random);
  b.fill(random);
  c.fill(random);
  Matrix<float> d = c;
  launch(kernel, {1, 32}, nullptr, static_cast<const T*>(a.data()), static_cast<const T*>(b.data()), d.data());
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) {
      float sum = c.at(i, j);
      for (int l = 0; l < k; ++l) sum += value(a.at(i, l)) * value(b.at(l, j));
      ASSERT_EQ(d.at(i, j), sum) << "at " << i << ", " << j;
    }
  }
}

TEST(Mma, m16n8k16_bf16) { check_mma<__nv_bfloat16>(mma_16_kernel<__nv_bfloat16>, 16); }
TEST(Mma, m16n8k16_fp16) { check_mma<__half>(mma_16_kernel<__half>, 16); }
TEST(Mma, m16n8k8_tf32) { check_mma<float>(mma_tf32_kernel, 8); }

TEST(Mma, tf32_ignores_the_low_mantissa_bits) {
  std::vector<float> a(128, 1.0f + 0x1.ffcp-11f), b(64, 1.0f), d(128, 0.0f);
  launch(mma_tf32_kernel, {1, 32}, nullptr, static_cast<const float*>(a.data()), static_cast<const float*>(b.data()),
         d.data());
  for (const float x : d) EXPECT_EQ(x, 8.0f);
}

// The emulator's own conversion must handle fp16's special values.
TEST(Mma, fp16_subnormals_infinities_and_nan) {
  std::vector<__half> a(256, __float2half(0.0f)), b(128, __float2half(1.0f));
  a[0 * 16] = std::bit_cast<__half>(std::uint16_t{0x0001});
  a[1 * 16] = std::bit_cast<__half>(std::uint16_t{0x83ff});
  a[2 * 16] = std::bit_cast<__half>(std::uint16_t{0x7c00});
  a[3 * 16] = std::bit_cast<__half>(std::uint16_t{0xfc00});
  a[4 * 16] = std::bit_cast<__half>(std::uint16_t{0x7e00});
  a[5 * 16] = std::bit_cast<__half>(std::uint16_t{0x7bff});
  std::vector<float> d(128, 0.0f);
  launch(mma_16_kernel<__half>, {1, 32}, nullptr, static_cast<const __half*>(a.data()),
         static_cast<const __half*>(b.data()), d.data());
  EXPECT_EQ(d[0], 0x1p-24f);
  EXPECT_EQ(d[8], -1023 * 0x1p-24f);
  EXPECT_EQ(d[16], HUGE_VALF);
  EXPECT_EQ(d[24], -HUGE_VALF);
  EXPECT_TRUE(std::isnan(d[32]));
  EXPECT_EQ(d[40], 65504.0f);
}

// --- ldmatrix

// Load four 8x8 matrices from shared memory, with rows `stride` elements apart; write the registers as [lane][4].
__global__ void ldmatrix_kernel(std::uint32_t* plain, std::uint32_t* transposed, int stride) {
  LADDER_DYN_SMEM(smem);
  auto* elements = reinterpret_cast<std::uint16_t*>(smem);
  for (int i = threadIdx.x; i < 32 * stride; i += 32) elements[i] = i / stride * 100 + i % stride;
  __syncwarp();
  std::uint32_t r[4];
  ptx::ldmatrix_x4(r, elements + threadIdx.x * stride);
  for (int j = 0; j < 4; ++j) plain[threadIdx.x * 4 + j] = r[j];
  ptx::ldmatrix_x4_trans(r, elements + threadIdx.x * stride);
  for (int j = 0; j < 4; ++j) transposed[threadIdx.x * 4 + j] = r[j];
}

TEST(Ldmatrix, deals_rows_and_columns) {
  for (const std::string& schedule : schedules(2)) {
    const Scoped scoped(schedule);
    constexpr unsigned kStride = 24;
    std::vector<std::uint32_t> plain(128), transposed(128);
    launch(ldmatrix_kernel, {1, 32, 32 * kStride * 2}, nullptr, plain.data(), transposed.data(),
           static_cast<int>(kStride));
    for (unsigned lane = 0; lane < 32; ++lane) {
      for (unsigned j = 0; j < 4; ++j) {
        auto element = [&](unsigned row, unsigned col) { return (8 * j + row) * 100 + col; };
        const unsigned row = lane / 4, col = 2 * (lane % 4);
        ASSERT_EQ(plain[lane * 4 + j], element(row, col) | element(row, col + 1) << 16);
        ASSERT_EQ(transposed[lane * 4 + j], element(col, row) | element(col + 1, row) << 16);
      }
    }
  }
}

// Round trip: stmatrix stores the registers of a transposed ldmatrix to other rows.
__global__ void stmatrix_kernel(std::uint16_t* back) {
  LADDER_DYN_SMEM(smem);
  auto* elements = reinterpret_cast<std::uint16_t*>(smem);
  for (int i = threadIdx.x; i < 256; i += 32) elements[i] = static_cast<std::uint16_t>(1000 + i);
  __syncwarp();
  std::uint32_t r[4];
  ptx::ldmatrix_x4_trans(r, elements + threadIdx.x * 8);
  ptx::stmatrix_x4_trans(elements + 256 + (31 - threadIdx.x) * 8, r);
  __syncwarp();
  for (int i = threadIdx.x; i < 256; i += 32) back[i] = elements[256 + i];
}

TEST(Stmatrix, puts_back_what_ldmatrix_has_dealt_out) {
  for (const std::string& schedule : schedules(2)) {
    const Scoped scoped(schedule);
    std::vector<std::uint16_t> back(256);
    launch(stmatrix_kernel, {1, 32, 1024}, nullptr, back.data());
    for (int i = 0; i < 256; ++i) ASSERT_EQ(back[(31 - i / 8) * 8 + i % 8], 1000 + i);
  }
}

std::atomic<int> line = 0;

__global__ void half_warp_ldmatrix_kernel() {
  LADDER_DYN_SMEM(smem);
  std::uint32_t r[4];
  line = __LINE__ + 1;
  if (threadIdx.x < 16) ptx::ldmatrix_x4(r, smem + 16 * threadIdx.x);
  __syncthreads();
}

TEST(Ldmatrix, misaligned_global_and_half_warp_uses_are_reported) {
  std::vector<std::uint32_t> out(128);
  EXPECT_NE(fault_of([&] {
              launch(ldmatrix_kernel, {1, 32, 4096}, nullptr, out.data(), out.data(), 9);
            }).find("not aligned to 16 bytes"),
            std::string::npos);
  const std::string report = fault_of([] { launch(half_warp_ldmatrix_kernel, {1, 32, 512}, nullptr); });
  EXPECT_NE(report.find("deadlock"), std::string::npos);
  EXPECT_NE(report.find("matrix.cpp:" + std::to_string(line)), std::string::npos) << report;
}

}  // namespace
}  // namespace ladder::simt::test
