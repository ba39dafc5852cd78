// Idea:   v02's tiles on tensor cores through nvcuda::wmma, keys and values brought by cp.async into two buffers: the next
//         tile is on its way while this one multiplies.
// Parent: v02.
// Why:    both products leave the FMA pipe, which limits v02. Limiter left: WMMA does not say which lane holds which element,
//         so scores, probabilities and the sums, which each step scales down row by row, go through shared memory.
// Needs:  16 bits.

#include "core/numeric.h"
#include "dev/attention/attention.h"
#include "dev/ptx/cp_async.h"

namespace ladder::attention {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kQueries = kWarps * 16;  // of a block: a fragment's rows a warp
constexpr int kKeys = 64;              // of a step
constexpr int kStages = 2;
constexpr int kPitchS = kKeys + 4;  // 16 bytes of padding, here and below: rows start in different banks
constexpr int kPitchP = kKeys + 8;

template <int kD>
struct Layout {
  static constexpr int kPitchQ = kD + 8;
  static constexpr int kPitchKv = 2 * kD + 8;  // of a token: k, then v
  static constexpr int kPitchO = kD + 4;
  static constexpr int kQBytes = kQueries * kPitchQ * 2;
  static constexpr int kStageBytes = kKeys * kPitchKv * 2;
  static constexpr int kSBytes = 16 * kPitchS * 4;  // of a warp, and so below
  static constexpr int kPBytes = 16 * kPitchP * 2;
  static constexpr int kOBytes = 16 * kPitchO * 4;
  static constexpr int kSmemBytes = kQBytes + kStages * kStageBytes + kWarps * (kSBytes + kPBytes + kOBytes);
  static_assert(kQBytes % 32 == 0 && kStageBytes % 32 == 0 && kSBytes % 32 == 0 && kPBytes % 32 == 0 &&
                    kOBytes % 32 == 0,
                "WMMA wants tiles aligned to 32 bytes");
};

// kTokens rows of kChannels from `first` on, zeros from `end` on. The caller commits.
template <class T, int kTokens, int kChannels>
__device__ __forceinline__ void copy_rows(T* to, int to_pitch, const T* from, int pitch, int first, int end) {
  constexpr int kRuns = kChannels / 8;
#pragma unroll
  for (int run = threadIdx.x; run < kTokens * kRuns; run += kThreads) {
    const int token = first + run / kRuns;
    const int channel = run % kRuns * 8;
    ptx::cp_async<16>(to + run / kRuns * to_pitch + channel, token < end ? from + token * pitch + channel : from,
                      token < end);
  }
}

template <class T, int kD>
__global__ void __launch_bounds__(kThreads)
    attention_forward_v03_kernel(Sizes p, float scale, const T* qkv, T* o, float* lse) {
  namespace wmma = nvcuda::wmma;
  using L = Layout<kD>;
  LADDER_DYN_SMEM(smem);
  const int warp = threadIdx.x / 32;
  T* const qs = reinterpret_cast<T*>(smem);                // [query][d]
  T* const kvs = reinterpret_cast<T*>(smem + L::kQBytes);  // kStages times [key][k v]
  unsigned char* const warps_smem = smem + L::kQBytes + kStages * L::kStageBytes;
  float* const s = reinterpret_cast<float*>(warps_smem + warp * L::kSBytes);                            // [query][key]
  T* const probabilities = reinterpret_cast<T*>(warps_smem + kWarps * L::kSBytes + warp * L::kPBytes);  // [query][key]
  float* const weighted = reinterpret_cast<float*>(warps_smem + kWarps * (L::kSBytes + L::kPBytes) + warp * L::kOBytes);

  const int head = blockIdx.y;
  const int image = blockIdx.z;
  const int pitch = 3 * p.heads * kD;
  const T* const q = qkv + image * p.t * pitch + head * 3 * kD;
  const int i0 = blockIdx.x * kQueries;
  const int num_steps = ceil_div(p.t, kKeys);
  const auto fetch = [&](int step) {
    T* const to = kvs + step % kStages * (L::kStageBytes / 2);
    copy_rows<T, kKeys, 2 * kD>(to, L::kPitchKv, q + kD, pitch, step * kKeys, p.t);
    ptx::cp_async_commit();
  };
  copy_rows<T, kQueries, kD>(qs, L::kPitchQ, q, pitch, i0, p.t);
  fetch(0);

  // Two lanes share a row of scores: lane r has row r / 2, and of it every other column from r % 2 on.
  const int lane = threadIdx.x % 32;
  const int row = lane / 2;
  const int first = lane % 2;
  float row_max = -INFINITY;
  float sum = 0;
  for (int x = first; x < kD; x += 2) weighted[row * L::kPitchO + x] = 0;

  for (int step = 0; step < num_steps; ++step) {
    // Fetch ahead into the buffer that the barrier at the end of the last step set free.
    if (step + 1 < num_steps) {
      fetch(step + 1);
      ptx::cp_async_wait<1>();
    } else {
      ptx::cp_async_wait<0>();
    }
    __syncthreads();
    const T* const ks = kvs + step % kStages * (L::kStageBytes / 2);
    const T* const vs = ks + kD;

    wmma::fragment<wmma::accumulator, 16, 16, 16, float> scores[kKeys / 16];
#pragma unroll
    for (int j = 0; j < kKeys / 16; ++j) wmma::fill_fragment(scores[j], 0.0f);
#pragma unroll
    for (int k = 0; k < kD; k += 16) {
      wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major> a;
      wmma::load_matrix_sync(a, qs + warp * 16 * L::kPitchQ + k, L::kPitchQ);
#pragma unroll
      for (int j = 0; j < kKeys / 16; ++j) {
        wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::col_major> b;
        wmma::load_matrix_sync(b, ks + 16 * j * L::kPitchKv + k, L::kPitchKv);
        wmma::mma_sync(scores[j], a, b, scores[j]);
      }
    }
#pragma unroll
    for (int j = 0; j < kKeys / 16; ++j) {
      wmma::store_matrix_sync(s + 16 * j, scores[j], kPitchS, wmma::mem_row_major);
    }
    __syncwarp();

    // The maximum so far; what was summed before is brought down to it; p.
    const int keys_left = p.t - step * kKeys;
    float step_max = row_max;
    for (int j = first; j < min(kKeys, keys_left); j += 2) step_max = fmaxf(step_max, s[row * kPitchS + j] * scale);
    step_max = fmaxf(step_max, __shfl_xor_sync(0xffffffffu, step_max, 1));
    const float rescale = expf(row_max - step_max);  // 0 in the first step
    row_max = step_max;
    float row_sum = 0;
    for (int j = first; j < kKeys; j += 2) {
      const float probability = j < keys_left ? expf(s[row * kPitchS + j] * scale - step_max) : 0.0f;
      row_sum += probability;
      probabilities[row * kPitchP + j] = from_float<T>(probability);
    }
    sum = sum * rescale + row_sum;  // of this lane's keys
    for (int x = first; x < kD; x += 2) weighted[row * L::kPitchO + x] *= rescale;
    __syncwarp();

#pragma unroll
    for (int x = 0; x < kD; x += 16) {
      wmma::fragment<wmma::accumulator, 16, 16, 16, float> out;
      wmma::load_matrix_sync(out, weighted + x, L::kPitchO, wmma::mem_row_major);
#pragma unroll
      for (int j = 0; j < kKeys; j += 16) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, T, wmma::row_major> a;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, T, wmma::row_major> b;
        wmma::load_matrix_sync(a, probabilities + j, kPitchP);
        wmma::load_matrix_sync(b, vs + j * L::kPitchKv + x, L::kPitchKv);
        wmma::mma_sync(out, a, b, out);
      }
      wmma::store_matrix_sync(weighted + x, out, L::kPitchO, wmma::mem_row_major);
    }
    __syncthreads();
  }

  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  const int i = i0 + warp * 16 + row;
  if (i >= p.t) return;
  if (first == 0) lse[(image * p.heads + head) * p.t + i] = row_max + logf(sum);
  T* const out = o + ((image * p.t + i) * p.heads + head) * kD;
  for (int x = first; x < kD; x += 2) out[x] = from_float<T>(weighted[row * L::kPitchO + x] / sum);
}

void launch(const Problem& p, const Forward::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    if constexpr (sizeof(T) == 2) {
      const dim3 grid(ceil_div(p.t, kQueries), p.heads, p.n);
      const auto go = [&](auto kernel, std::size_t smem_bytes) {
        ladder::launch(kernel, {.grid = grid, .block = kThreads, .dynamic_smem = smem_bytes}, stream, p.sizes(),
                       scale_of(p), static_cast<const T*>(t.qkv), static_cast<T*>(t.o), t.lse);
      };
      p.d == 32 ? go(attention_forward_v03_kernel<T, 32>, Layout<32>::kSmemBytes)
                : go(attention_forward_v03_kernel<T, 64>, Layout<64>::kSmemBytes);
    }
  });
}

}  // namespace
}  // namespace ladder::attention

LADDER_VERSION(ladder::attention::Forward, {.launch = ladder::attention::launch,
                                            .dtypes = {ladder::Dtype::bf16, ladder::Dtype::f16},
                                            .supports = ladder::attention::not_legacy,
                                            .min_arch = 80})
