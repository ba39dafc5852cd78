// Idea:   tiles of 64 queries by 64 keys in shared memory, the softmax kept up to date from tile to tile (Milakov and
//         Gimelshein 2018; Dao et al. 2022): scores never exist but as a tile.
// Parent: v01.
// Why:    v01 fetches all keys for every query. Here a tile of keys serves 64 queries, and a thread's 4 x 4 scores take 8
//         loads for 16 multiply-adds. Limiter left: the FMA pipe, and shared memory right after it.
// Needs:  nothing.

#include "core/numeric.h"
#include "dev/attention/fp32_tile.h"

namespace ladder::attention {
namespace {

constexpr int kTile = 64;  // queries of a block, and keys of a step
constexpr int kPitchP = kTile + 4;
constexpr int kRows = 4;  // a thread's queries, and its keys: thread (ty, tx) has queries 4 ty + r and keys tx + 16 c
static_assert(kTileThreads == kTile / kRows * 16);

template <int kD>
constexpr std::size_t kSmemBytes = (3 * kTile * kTilePitch<kD> + kTile * kPitchP) * sizeof(float);

template <class T, int kD>
__global__ void __launch_bounds__(kTileThreads)
    attention_forward_v02_kernel(Sizes p, float scale, const T* qkv, T* o, float* lse) {
  constexpr int kPitch = kTilePitch<kD>;
  constexpr int kChannels = kD / 16;  // of o, a thread's: tx * kChannels onwards
  LADDER_DYN_SMEM(smem);
  float* const qs = reinterpret_cast<float*>(smem);  // [query][d], then ks [key][d], vs [key][d]
  float* const ks = qs + kTile * kPitch;
  float* const vs = ks + kTile * kPitch;
  float* const ps = vs + kTile * kPitch;  // [query][key]

  const int head = blockIdx.y;
  const int image = blockIdx.z;
  const int pitch = 3 * p.heads * kD;
  const T* const q = qkv + image * p.t * pitch + head * 3 * kD;
  const int i0 = blockIdx.x * kTile;
  const int ty = threadIdx.x / 16;
  const int tx = threadIdx.x % 16;

  load_tile<T, kD, kTile>(qs, q, pitch, i0, p.t);
  float row_max[kRows];
  float sum[kRows] = {};
  float weighted[kRows][kChannels] = {};
#pragma unroll
  for (int r = 0; r < kRows; ++r) row_max[r] = -INFINITY;

  for (int j0 = 0; j0 < p.t; j0 += kTile) {
    __syncthreads();  // all have left the last tile
    load_tile<T, kD, kTile>(ks, q + kD, pitch, j0, p.t);
    load_tile<T, kD, kTile>(vs, q + 2 * kD, pitch, j0, p.t);
    __syncthreads();

    float s[kRows][4];
    tile_product<kD, kRows, 4>(s, qs + ty * kRows * kPitch, kPitch, ks + tx * kPitch, 16 * kPitch);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      // The row's maximum so far, from the 16 threads that share it; what was summed before is brought down to it.
      float step_max = row_max[r];
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        s[r][c] = j0 + tx + 16 * c < p.t ? s[r][c] * scale : -INFINITY;
        step_max = fmaxf(step_max, s[r][c]);
      }
#pragma unroll
      for (int lane = 8; lane > 0; lane /= 2) step_max = fmaxf(step_max, __shfl_xor_sync(0xffffffffu, step_max, lane));
      const float rescale = expf(row_max[r] - step_max);  // 0 in the first tile
      row_max[r] = step_max;
      sum[r] *= rescale;
#pragma unroll
      for (int x = 0; x < kChannels; ++x) weighted[r][x] *= rescale;
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const float probability = expf(s[r][c] - step_max);
        sum[r] += probability;  // of this thread's keys
        ps[(ty * kRows + r) * kPitchP + tx + 16 * c] = probability;
      }
    }
    __syncwarp();  // rows of p stay within a half-warp

    for (int j = 0; j < kTile; j += 4) {
      float4 probabilities[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        probabilities[r] = *reinterpret_cast<const float4*>(ps + (ty * kRows + r) * kPitchP + j);
      }
#pragma unroll
      for (int x = 0; x < kChannels; ++x) {
        const float* const values = vs + j * kPitch + tx * kChannels + x;
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          weighted[r][x] += probabilities[r].x * values[0] + probabilities[r].y * values[kPitch] +
                            probabilities[r].z * values[2 * kPitch] + probabilities[r].w * values[3 * kPitch];
        }
      }
    }
    __syncwarp();
  }

#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int lane = 8; lane > 0; lane /= 2) sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], lane);
    const int i = i0 + ty * kRows + r;
    if (i >= p.t) continue;
    if (tx == 0) lse[(image * p.heads + head) * p.t + i] = row_max[r] + logf(sum[r]);
    T* const out = o + ((image * p.t + i) * p.heads + head) * kD + tx * kChannels;
#pragma unroll
    for (int x = 0; x < kChannels; ++x) out[x] = from_float<T>(weighted[r][x] / sum[r]);
  }
}

void launch(const Problem& p, const Forward::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    const dim3 grid(ceil_div(p.t, kTile), p.heads, p.n);
    const auto go = [&](auto kernel, std::size_t smem_bytes) {
      ladder::launch(kernel, {.grid = grid, .block = kTileThreads, .dynamic_smem = smem_bytes}, stream, p.sizes(),
                     scale_of(p), static_cast<const T*>(t.qkv), static_cast<T*>(t.o), t.lse);
    };
    p.d == 32 ? go(attention_forward_v02_kernel<T, 32>, kSmemBytes<32>)
              : go(attention_forward_v02_kernel<T, 64>, kSmemBytes<64>);
  });
}

}  // namespace
}  // namespace ladder::attention

LADDER_VERSION(ladder::attention::Forward,
               {.launch = ladder::attention::launch,
                .dtypes = {ladder::Dtype::f32, ladder::Dtype::tf32, ladder::Dtype::bf16, ladder::Dtype::f16},
                .supports = ladder::attention::not_legacy})
