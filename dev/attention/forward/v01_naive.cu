// Idea:   a block a query: its scores against all keys in shared memory, a softmax over them, their sum of values.
// Parent: none.
// Why:    it is the definition, in the fewest lines; every other version may be debugged against it. Limiter: a thread
//         walks a key's channels alone, so each load of a warp touches 32 rows, and every query fetches all keys and
//         values again: t times the bytes.
// Needs:  nothing.

#include "core/numeric.h"
#include "dev/attention/heads.h"

namespace ladder::attention {
namespace {

constexpr int kThreads = 128;  // at least as many as a head has channels

template <class T, class View>
__global__ void attention_forward_v01_kernel(Sizes p, float scale, typename View::template Qkv<const T> qkv, T* o,
                                             float* lse) {
  LADDER_SHARED(float, scores, [kMaxTokens]);
  const int i = blockIdx.x % p.t;
  const int head = blockIdx.x / p.t % p.heads;
  const int image = blockIdx.x / p.t / p.heads;
  const auto head_qkv = View::parts_from_image(qkv, p, p.d, image, head);
  const T* const q = head_qkv.q();
  const T* const k = head_qkv.k();
  const T* const v = head_qkv.v();

  // A thread a key.
  for (int j = threadIdx.x; j < p.t; j += kThreads) {
    float dot = 0;
    for (int x = 0; x < p.d; ++x)
      dot += to_float(q[i * head_qkv.q_pitch() + x]) * to_float(k[j * head_qkv.k_pitch() + x]);
    scores[j] = scale * dot;
  }
  __syncthreads();

  // Every thread finds the maximum for itself, then each exponential is one thread's.
  float row_max = scores[0];
  for (int j = 1; j < p.t; ++j) row_max = fmaxf(row_max, scores[j]);
  __syncthreads();
  for (int j = threadIdx.x; j < p.t; j += kThreads) scores[j] = expf(scores[j] - row_max);
  __syncthreads();

  // A thread a channel; all find the same sum.
  if (static_cast<int>(threadIdx.x) >= p.d) return;
  float sum = 0;
  float weighted = 0;
  for (int j = 0; j < p.t; ++j) {
    sum += scores[j];
    weighted += scores[j] * to_float(v[j * head_qkv.v_pitch() + threadIdx.x]);
  }
  o[((image * p.t + i) * p.heads + head) * p.d + threadIdx.x] = from_float<T>(weighted / sum);
  if (threadIdx.x == 0) lse[(image * p.heads + head) * p.t + i] = row_max + logf(sum);
}

void launch(const Problem& p, const Forward::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&](auto element) {
    using T = decltype(element);
    with_view(p, [&]<class View>(View) {
      ladder::launch(attention_forward_v01_kernel<T, View>,
                     {.grid = static_cast<unsigned>(p.tokens() * p.heads), .block = kThreads}, stream, p.sizes(),
                     scale_of(p), View::template inputs<T>(p, t), static_cast<T*>(t.o), t.lse);
    });
  });
}

}  // namespace
}  // namespace ladder::attention

LADDER_VERSION(ladder::attention::Forward, {.launch = ladder::attention::launch,
                                            .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16}})
