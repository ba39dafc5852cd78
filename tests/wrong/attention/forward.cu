#include "tests/wrong/attention/problems.h"
#include "tests/wrong/wrong.h"

namespace ladder::attention {
namespace {

using Tensors = Forward::Tensors;

enum class Fault {
  none,
  no_rescale,            // keeps what it summed as it was when the maximum moves
  log2,                  // the logarithm to base 2 in lse
  lse_without_maximum,   // leaves the maximum out of lse
  scale_once,            // scales q by 1 / sqrt(sqrt(d)), and forgets k
  no_scale,              // leaves the scale out
  tail_not_masked,       // lets the keys beyond t count, zeros up to the end of a tile of 16
  tail_missing,          // leaves out the keys of a last tile that is not whole
  causal,                // masks the keys after the query, as language models do
  not_normalised,        // does not divide by the sum
  bf16_sums,             // sums in bf16
  softmax_over_queries,  // normalises each key's scores over the queries
};

// Every element's thread makes its query's softmax anew, keeping it up to date from key to key.
template <Fault kFault>
struct Faulty {
  static __device__ float add(float sum, float term) {
    return kFault == Fault::bf16_sums ? bf16(sum + term) : sum + term;
  }
  static __device__ int num_keys(const Problem& p, int query) {
    if (kFault == Fault::tail_not_masked) return (p.t + 15) / 16 * 16;
    if (kFault == Fault::tail_missing) return whole_tiles(p.t);
    return kFault == Fault::causal ? query + 1 : p.t;
  }
  static __device__ float score(const auto& v, const Element& at, int query, int key) {
    if (key >= v.p.t) return 0.0f;
    const auto d = static_cast<float>(v.p.d);
    float sum = 0;
    for (int x = 0; x < v.p.d; ++x) {
      sum = add(
          sum, v.load(v.t.qkv, index_in_qkv(v.p, at, query, 0, x)) * v.load(v.t.qkv, index_in_qkv(v.p, at, key, 1, x)));
    }
    if (kFault == Fault::no_scale) return sum;
    return 1.0f / sqrtf(kFault == Fault::scale_once ? sqrtf(d) : d) * sum;
  }

  __device__ void operator()(const auto& v, long long index) const {
    const Problem& p = v.p;
    const Element at = element_of_o(p, index);
    float most = -INFINITY;
    float sum = 0;
    float weighted = 0;
    for (int key = 0; key < num_keys(p, at.token); ++key) {
      const float s = score(v, at, at.token, key);
      const float now = fmaxf(most, s);
      const float keep = key == 0 ? 0.0f : kFault == Fault::no_rescale ? 1.0f : expf(most - now);
      const float probability = expf(s - now);
      float value = key < p.t ? v.load(v.t.qkv, index_in_qkv(p, at, key, 2, at.channel)) : 0.0f;
      if (kFault == Fault::softmax_over_queries) {
        float column = 0;
        for (int query = 0; query < p.t; ++query) column += expf(score(v, at, query, key));
        value /= column;
      }
      sum = add(sum * keep, probability);
      weighted = add(weighted * keep, probability * value);
      most = now;
    }
    if (kFault == Fault::softmax_over_queries) {
      v.store(v.t.o, index, weighted * expf(most));
    } else {
      v.store(v.t.o, index, kFault == Fault::not_normalised ? weighted : weighted / sum);
    }
    if (at.channel > 0) return;
    v.t.lse[(at.image * p.heads + at.head) * p.t + at.token] =
        (kFault == Fault::lse_without_maximum ? 0.0f : most) + (kFault == Fault::log2 ? log2f(sum) : logf(sum));
  }
};

template <Fault kFault>
constexpr auto faulty = wrong::other_kernel<Forward, size_o, Faulty<kFault>>;

// Rounds q, k and v to bf16, whatever the problem is in.
struct Bf16Operands {
  __device__ float operator()(const auto& v, long long i) const { return bf16(v.load(v.t.qkv, i)); }
};

// Takes the values of the next head.
struct NextValue {
  __device__ long long operator()(const Problem& p, long long i) const {
    const int head = static_cast<int>(i / p.d / 3 % p.heads);
    return i / p.d % 3 == 2 ? i + ((head + 1) % p.heads - head) * 3 * p.d : i;
  }
};

// Attends to the first image in all.
struct FirstImage {
  __device__ long long operator()(const Problem& p, long long i) const { return i % (3LL * p.t * p.heads * p.d); }
};

// Writes lse as [n, t, heads].
struct LseTransposed {
  __device__ long long operator()(const Problem& p, long long i) const {
    return (i / p.t / p.heads * p.t + i % p.t) * p.heads + i / p.t % p.heads;
  }
};

}  // namespace

LADDER_CHEATS(Forward, wrong_problems(),
              {
                  faulty<Fault::none>("honest"),
                  faulty<Fault::no_rescale>("no_rescale"),
                  faulty<Fault::log2>("log2"),
                  faulty<Fault::lse_without_maximum>("lse_without_maximum"),
                  faulty<Fault::scale_once>("scale_once"),
                  faulty<Fault::no_scale>("no_scale"),
                  wrong::moved_input<Forward, &Tensors::qkv, size_qkv, ThreeHeadsD>("three_heads_d"),
                  faulty<Fault::tail_not_masked>("tail_not_masked"),
                  faulty<Fault::tail_missing>("tail_missing"),
                  faulty<Fault::causal>("causal"),
                  faulty<Fault::not_normalised>("not_normalised"),
                  faulty<Fault::bf16_sums>("bf16_sums"),
                  wrong::only({Dtype::f32, Dtype::f16},
                              wrong::spoiled_input<Forward, &Tensors::qkv, size_qkv, Bf16Operands>("bf16_operands")),
                  wrong::moved_input<Forward, &Tensors::qkv, size_qkv, NextValue>("next_value"),
                  wrong::moved_input<Forward, &Tensors::qkv, size_qkv, FirstImage>("first_image"),
                  wrong::moved_output<Forward, &Tensors::lse, size_lse, LseTransposed>("lse_transposed"),
                  faulty<Fault::softmax_over_queries>("softmax_over_queries"),
              })

}  // namespace ladder::attention
