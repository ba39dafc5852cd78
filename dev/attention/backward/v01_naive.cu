// Idea:   a block a token: as a query it makes its row of p and ds again and sums dq, as a key its columns, dk and dv.
// Parent: none.
// Why:    it is the definition, in the fewest lines, and needs no sum across blocks. Limiter: a thread walks a token's
//         channels alone, each load of a warp touches 32 rows, and every token fetches all others twice over.
// Needs:  nothing.

#include "core/numeric.h"
#include "dev/attention/attention.h"

namespace ladder::attention {
namespace {

constexpr int kThreads = 128;

template <class T>
__device__ float dot(const T* a, const T* b, int d) {
  float sum = 0;
  for (int x = 0; x < d; ++x) sum += to_float(a[x]) * to_float(b[x]);
  return sum;
}

template <class T>
__global__ void attention_backward_v01_kernel(Problem p, float scale, const T* qkv, const T* o, const float* lse,
                                              const T* d_o, T* dqkv) {
  LADDER_SHARED(float, probabilities, [kMaxTokens]);
  LADDER_SHARED(float, ds, [kMaxTokens]);
  const int own = blockIdx.x % p.t;
  const int head = blockIdx.x / p.t % p.heads;
  const int image = blockIdx.x / p.t / p.heads;
  const int pitch = 3 * p.heads * p.d;  // from a token of qkv to the next
  const int o_pitch = p.heads * p.d;
  const T* const q = qkv + image * p.t * pitch + head * 3 * p.d;
  const T* const k = q + p.d;
  const T* const v = k + p.d;
  const T* const o_head = o + image * p.t * o_pitch + head * p.d;
  const T* const d_o_head = d_o + image * p.t * o_pitch + head * p.d;
  T* const gradient = dqkv + (image * p.t + own) * pitch + head * 3 * p.d;
  lse += (image * p.heads + head) * p.t;

  // p and ds of query i and key j.
  const auto make = [&](int i, int j, int at) {
    const T* const d_o_row = d_o_head + i * o_pitch;
    probabilities[at] = expf(scale * dot(q + i * pitch, k + j * pitch, p.d) - lse[i]);
    const float delta = dot(d_o_row, o_head + i * o_pitch, p.d);
    ds[at] = probabilities[at] * (dot(d_o_row, v + j * pitch, p.d) - delta);
  };

  // This token as a query: a thread a key, then a thread a channel.
  for (int j = threadIdx.x; j < p.t; j += kThreads) make(own, j, j);
  __syncthreads();
  for (int x = threadIdx.x; x < p.d; x += kThreads) {
    float dq = 0;
    for (int j = 0; j < p.t; ++j) dq += ds[j] * to_float(k[j * pitch + x]);
    gradient[x] = from_float<T>(scale * dq);
  }
  __syncthreads();

  // As a key: a thread a query, then a thread a channel.
  for (int i = threadIdx.x; i < p.t; i += kThreads) make(i, own, i);
  __syncthreads();
  for (int x = threadIdx.x; x < p.d; x += kThreads) {
    float dk = 0;
    float dv = 0;
    for (int i = 0; i < p.t; ++i) {
      dk += ds[i] * to_float(q[i * pitch + x]);
      dv += probabilities[i] * to_float(d_o_head[i * o_pitch + x]);
    }
    gradient[p.d + x] = from_float<T>(scale * dk);
    gradient[2 * p.d + x] = from_float<T>(dv);
  }
}

void launch(const Problem& p, const Backward::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    ladder::launch(attention_backward_v01_kernel<T>,
                   {.grid = static_cast<unsigned>(p.tokens() * p.heads), .block = kThreads}, stream, p, scale_of(p),
                   static_cast<const T*>(t.qkv), static_cast<const T*>(t.o), t.lse, static_cast<const T*>(t.d_o),
                   static_cast<T*>(t.dqkv));
  });
}

}  // namespace
}  // namespace ladder::attention

LADDER_VERSION(ladder::attention::Backward, {.launch = ladder::attention::launch,
                                             .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})
