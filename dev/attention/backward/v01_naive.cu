// Idea:   a block a token: as a query it makes its row of p and ds again and sums dq, as a key its columns, dk and dv.
// Parent: none.
// Why:    it is the definition, in the fewest lines, and needs no sum across blocks. Limiter: a thread walks a token's
//         channels alone, each load of a warp touches 32 rows, and every token fetches all others twice over.
// Needs:  nothing.

#include "core/numeric.h"
#include "dev/attention/heads.h"

namespace ladder::attention {
namespace {

constexpr int kThreads = 128;

template <class T>
__device__ float dot(const T* a, const T* b, int d) {
  float sum = 0;
  for (int x = 0; x < d; ++x) sum += to_float(a[x]) * to_float(b[x]);
  return sum;
}

template <class T, class View>
__global__ void attention_backward_v01_kernel(Sizes p, float scale, typename View::template Qkv<const T> qkv,
                                              const T* o, const float* lse, typename View::template Heads<const T> d_o,
                                              typename View::template Qkv<T> dqkv) {
  LADDER_SHARED(float, probabilities, [kMaxTokens]);
  LADDER_SHARED(float, ds, [kMaxTokens]);
  const int token = blockIdx.x % p.t;
  const int head = blockIdx.x / p.t % p.heads;
  const int image = blockIdx.x / p.t / p.heads;
  const auto parts = View::parts(qkv, p, p.d, image, head);
  const T* const q = parts.q();
  const T* const k = parts.k();
  const T* const v = parts.v();
  const HeadRows<const T> o_head = Legacy::rows(o, p, p.d, image, head);
  const HeadRows<const T> d_o_head = View::rows(d_o, p, p.d, image, head);
  const auto gradients = View::parts(dqkv, p, p.d, image, head);
  lse += (image * p.heads + head) * p.t;

  // p and ds of query i and key j.
  const auto make = [&](int i, int j, int slot) {
    const T* const d_o_row = d_o_head.row(i);
    probabilities[slot] = expf(scale * dot(q + i * parts.q_pitch(), k + j * parts.k_pitch(), p.d) - lse[i]);
    const float delta = dot(d_o_row, o_head.row(i), p.d);
    ds[slot] = probabilities[slot] * (dot(d_o_row, v + j * parts.v_pitch(), p.d) - delta);
  };

  // This token as a query: one thread per key, then one thread per channel.
  for (int j = threadIdx.x; j < p.t; j += kThreads) make(token, j, j);
  __syncthreads();
  for (int x = threadIdx.x; x < p.d; x += kThreads) {
    float dq = 0;
    for (int j = 0; j < p.t; ++j) dq += ds[j] * to_float(k[j * parts.k_pitch() + x]);
    gradients.q()[token * gradients.q_pitch() + x] = from_float<T>(scale * dq);
  }
  __syncthreads();

  // This token as a key: one thread per query, then one thread per channel.
  for (int i = threadIdx.x; i < p.t; i += kThreads) make(i, token, i);
  __syncthreads();
  for (int x = threadIdx.x; x < p.d; x += kThreads) {
    float dk = 0;
    float dv = 0;
    for (int i = 0; i < p.t; ++i) {
      dk += ds[i] * to_float(q[i * parts.q_pitch() + x]);
      dv += probabilities[i] * to_float(d_o_head.row(i)[x]);
    }
    gradients.k(token)[x] = from_float<T>(scale * dk);
    gradients.v(token)[x] = from_float<T>(dv);
  }
}

void launch(const Problem& p, const Backward::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    with_view(p, [&]<class View>(View) {
      ladder::launch(attention_backward_v01_kernel<T, View>,
                     {.grid = static_cast<unsigned>(p.tokens() * p.heads), .block = kThreads}, stream, p.sizes(),
                     scale_of(p), View::template inputs<T>(p, t), static_cast<const T*>(t.o), t.lse,
                     View::template d_o<T>(p, t), View::template gradients<T>(p, t));
    });
  });
}

}  // namespace
}  // namespace ladder::attention

LADDER_VERSION(ladder::attention::Backward, {.launch = ladder::attention::launch,
                                             .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})
