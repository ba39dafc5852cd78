// An honest forward kernel, to spoil in one way each: every element's thread makes its query's softmax anew, keeping it up to
// date from key to key.
#include "tests/wrong/attention/problems.h"
#include "tests/wrong/wrong.h"

namespace ladder::attention {
namespace {

// Outputs are counted as those of o.
template <class T>
struct View {
  Problem p;
  const T* qkv;
  T* o;
  float* lse;

  View(const Problem& problem, const Forward::Tensors& t, void*)
      : p(problem), qkv(static_cast<const T*>(t.qkv)), o(static_cast<T*>(t.o)), lse(t.lse) {}

  __host__ __device__ long long count() const { return static_cast<long long>(p.n) * p.t * p.heads * p.d; }
};

// Where an element of o is.
struct Place {
  int image;
  int token;
  int head;
  int channel;
};

__device__ inline Place place_of(const Problem& p, long long index) {
  return {.image = static_cast<int>(index / p.d / p.heads / p.t),
          .token = static_cast<int>(index / p.d / p.heads % p.t),
          .head = static_cast<int>(index / p.d % p.heads),
          .channel = static_cast<int>(index % p.d)};
}

// What an honest kernel does, with each step open to a spoiled one.
struct Honest {
  __device__ float scale(int d) const { return 1.0f / sqrtf(static_cast<float>(d)); }
  // Channel 0 of q, k or v in a token's row.
  __device__ int part(const Problem& p, int head, int part) const { return (head * 3 + part) * p.d; }
  __device__ int keys(const Problem& p, int /*query*/) const {
    return p.t;
  }  // those that count; behind t they are zero
  __device__ int head_of_v(const Problem&, int head) const { return head; }
  __device__ int image(int image) const { return image; }
  __device__ float operand(float x) const { return x; }
  __device__ float add(float sum, float term) const { return sum + term; }
  __device__ float keep(float before, float now) const { return expf(before - now); }  // of sums, as the maximum moves
  __device__ float output(float weighted, float sum) const { return weighted / sum; }
  __device__ float lse(float most, float sum) const { return most + logf(sum); }
  __device__ long long lse_index(const Problem& p, const Place& at) const {
    return (static_cast<long long>(at.image) * p.heads + at.head) * p.t + at.token;
  }
};

template <class T, class Steps>
__device__ float dot(const View<T>& v, const Steps& steps, const Place& at, int query, int key) {
  const long long pitch = 3LL * v.p.heads * v.p.d;
  const T* const image = v.qkv + steps.image(at.image) * v.p.t * pitch;
  const T* const q = image + query * pitch + steps.part(v.p, at.head, 0);
  const T* const k = image + key * pitch + steps.part(v.p, at.head, 1);
  float sum = 0;
  for (int x = 0; x < v.p.d; ++x) sum = steps.add(sum, steps.operand(to_float(q[x])) * steps.operand(to_float(k[x])));
  return sum;
}

template <class T, class Steps>
__device__ float value(const View<T>& v, const Steps& steps, const Place& at, int key) {
  const long long token = static_cast<long long>(steps.image(at.image)) * v.p.t + key;
  const int channel = steps.part(v.p, steps.head_of_v(v.p, at.head), 2) + at.channel;
  return steps.operand(to_float(v.qkv[token * 3 * v.p.heads * v.p.d + channel]));
}

// An honest kernel with one spoiled step.
template <class Steps>
struct Spoiled {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    const Steps steps;
    const Place at = place_of(v.p, index);
    float most = -INFINITY;
    float sum = 0;
    float weighted = 0;
    for (int key = 0; key < steps.keys(v.p, at.token); ++key) {
      const bool there = key < v.p.t;
      const float score = there ? steps.scale(v.p.d) * dot(v, steps, at, at.token, key) : 0.0f;
      const float now = fmaxf(most, score);
      const float keep = key == 0 ? 0.0f : steps.keep(most, now);
      const float probability = expf(score - now);
      sum = steps.add(sum * keep, probability);
      weighted = steps.add(weighted * keep, probability * (there ? value(v, steps, at, key) : 0.0f));
      most = now;
    }
    v.o[index] = from_float<T>(steps.output(weighted, sum));
    if (at.channel == 0) v.lse[steps.lse_index(v.p, at)] = steps.lse(most, sum);
  }
};

template <class Cheat>
void launch_cheat(const Problem& p, const Forward::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_cheat<Forward, View, Cheat>(p, t, workspace, stream);
}

// Keeps what it summed as it was when the maximum moves.
struct NoRescale : Honest {
  __device__ float keep(float, float) const { return 1.0f; }
};

// The logarithm to base 2 in lse.
struct Log2 : Honest {
  __device__ float lse(float most, float sum) const { return most + log2f(sum); }
};

// Leaves the maximum out of lse.
struct LseWithoutMaximum : Honest {
  __device__ float lse(float, float sum) const { return logf(sum); }
};

// Scales q by 1 / sqrt(sqrt(d)), and forgets k.
struct ScaleOnce : Honest {
  __device__ float scale(int d) const { return 1.0f / sqrtf(sqrtf(static_cast<float>(d))); }
};

// Leaves the scale out.
struct NoScale : Honest {
  __device__ float scale(int) const { return 1.0f; }
};

// Takes the channels of qkv as [3][heads][d]: right for a single head.
struct ThreeHeadsD : Honest {
  __device__ int part(const Problem& p, int head, int part) const { return (part * p.heads + head) * p.d; }
};

// Lets the keys behind the last one count, zeros up to the end of a tile of 16.
struct TailNotMasked : Honest {
  __device__ int keys(const Problem& p, int) const { return (p.t + 15) / 16 * 16; }
};

// Leaves out the keys of a last tile that is not whole.
struct TailMissing : Honest {
  __device__ int keys(const Problem& p, int) const { return p.t < 16 ? p.t : p.t / 16 * 16; }
};

// Masks the keys behind the query, as language models do.
struct Causal : Honest {
  __device__ int keys(const Problem&, int query) const { return query + 1; }
};

// Does not divide by the sum.
struct NotNormalised : Honest {
  __device__ float output(float weighted, float) const { return weighted; }
};

// Sums in bf16.
struct Bf16Sums : Honest {
  __device__ float add(float sum, float term) const { return to_float(from_float<__nv_bfloat16>(sum + term)); }
};

// Rounds q, k and v to bf16, whatever the problem is in.
struct Bf16Operands : Honest {
  __device__ float operand(float x) const { return to_float(from_float<__nv_bfloat16>(x)); }
};

// Takes the values of the next head.
struct NextValue : Honest {
  __device__ int head_of_v(const Problem& p, int head) const { return (head + 1) % p.heads; }
};

// Attends to the first image in all.
struct FirstImage : Honest {
  __device__ int image(int) const { return 0; }
};

// Writes lse as [n, t, heads].
struct LseTransposed : Honest {
  __device__ long long lse_index(const Problem& p, const Place& at) const {
    return (static_cast<long long>(at.image) * p.t + at.token) * p.heads + at.head;
  }
};

// Normalises each key's scores over the queries.
struct OverQueries {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    const Honest steps;
    const Place at = place_of(v.p, index);
    const float scale = steps.scale(v.p.d);
    float weighted = 0;
    float row_sum = 0;
    for (int key = 0; key < v.p.t; ++key) {
      float sum = 0;
      for (int query = 0; query < v.p.t; ++query) sum += expf(scale * dot(v, steps, at, query, key));
      const float e = expf(scale * dot(v, steps, at, at.token, key));
      weighted += e / sum * value(v, steps, at, key);
      row_sum += e;
    }
    v.o[index] = from_float<T>(weighted);
    if (at.channel == 0) v.lse[steps.lse_index(v.p, at)] = logf(row_sum);
  }
};

}  // namespace

LADDER_CHEATS(
    Forward, wrong_problems(),
    {
        {.name = "honest", .launch = launch_cheat<Spoiled<Honest>>},
        {.name = "no_rescale", .launch = launch_cheat<Spoiled<NoRescale>>},
        {.name = "log2", .launch = launch_cheat<Spoiled<Log2>>},
        {.name = "lse_without_maximum", .launch = launch_cheat<Spoiled<LseWithoutMaximum>>},
        {.name = "scale_once", .launch = launch_cheat<Spoiled<ScaleOnce>>},
        {.name = "no_scale", .launch = launch_cheat<Spoiled<NoScale>>},
        {.name = "three_heads_d", .launch = launch_cheat<Spoiled<ThreeHeadsD>>},
        {.name = "tail_not_masked", .launch = launch_cheat<Spoiled<TailNotMasked>>},
        {.name = "tail_missing", .launch = launch_cheat<Spoiled<TailMissing>>},
        {.name = "causal", .launch = launch_cheat<Spoiled<Causal>>},
        {.name = "not_normalised", .launch = launch_cheat<Spoiled<NotNormalised>>},
        {.name = "bf16_sums", .launch = launch_cheat<Spoiled<Bf16Sums>>},
        {.name = "bf16_operands", .launch = launch_cheat<Spoiled<Bf16Operands>>, .dtypes = {Dtype::f32, Dtype::f16}},
        {.name = "next_value", .launch = launch_cheat<Spoiled<NextValue>>},
        {.name = "first_image", .launch = launch_cheat<Spoiled<FirstImage>>},
        {.name = "lse_transposed", .launch = launch_cheat<Spoiled<LseTransposed>>},
        {.name = "softmax_over_queries", .launch = launch_cheat<OverQueries>},
    })

}  // namespace ladder::attention
