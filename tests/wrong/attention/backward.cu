// An honest backward kernel, to spoil in one way each: every element's thread makes p and ds of its row or column anew.
#include "tests/wrong/attention/problems.h"
#include "tests/wrong/wrong.h"

namespace ladder::attention {
namespace {

// Outputs are counted as those of dqkv.
template <class T>
struct View {
  Problem p;
  const T* qkv;
  const T* o;
  const float* lse;
  const T* d_o;
  T* dqkv;

  View(const Problem& problem, const Backward::Tensors& t, void*)
      : p(problem),
        qkv(static_cast<const T*>(t.qkv)),
        o(static_cast<const T*>(t.o)),
        lse(t.lse),
        d_o(static_cast<const T*>(t.d_o)),
        dqkv(static_cast<T*>(t.dqkv)) {}

  __host__ __device__ long long count() const { return static_cast<long long>(p.n) * p.t * p.heads * 3 * p.d; }
};

// Where an element of dqkv is.
struct Place {
  int image;
  int token;
  int head;
  int part;  // 0, 1 or 2: dq, dk or dv
  int channel;
};

// What an honest kernel does, with each step open to a spoiled one.
struct Honest {
  __device__ Place place(const Problem& p, long long index) const {
    return {.image = static_cast<int>(index / p.d / 3 / p.heads / p.t),
            .token = static_cast<int>(index / p.d / 3 / p.heads % p.t),
            .head = static_cast<int>(index / p.d / 3 % p.heads),
            .part = static_cast<int>(index / p.d % 3),
            .channel = static_cast<int>(index % p.d)};
  }
  __device__ int tokens(const Problem& p) const { return p.t; }  // that are summed over
  __device__ float scale(int d) const { return 1.0f / sqrtf(static_cast<float>(d)); }
  __device__ float scale_of_dq(float scale) const { return scale; }
  __device__ float scale_of_dk(float scale) const { return scale; }
  __device__ float probability(float score, float lse) const { return expf(score - lse); }
  __device__ float delta(float delta) const { return delta; }
  __device__ float ds(float probability, float dp) const { return probability * dp; }
  __device__ float add(float sum, float term) const { return sum + term; }
};

template <class T>
__device__ const T* row_of(const View<T>& v, const Place& at, int token, int part) {
  const long long row = (static_cast<long long>(at.image) * v.p.t + token) * v.p.heads + at.head;
  return v.qkv + (row * 3 + part) * v.p.d;
}

template <class T>
__device__ const T* row_of_o(const View<T>& v, const T* o, const Place& at, int token) {
  return o + ((static_cast<long long>(at.image) * v.p.t + token) * v.p.heads + at.head) * v.p.d;
}

template <class T>
__device__ float dot(const T* a, const T* b, int d) {
  float sum = 0;
  for (int x = 0; x < d; ++x) sum += to_float(a[x]) * to_float(b[x]);
  return sum;
}

template <class T, class Steps>
__device__ float probability(const View<T>& v, const Steps& steps, const Place& at, int query, int key) {
  const float score = steps.scale(v.p.d) * dot(row_of(v, at, query, 0), row_of(v, at, key, 1), v.p.d);
  return steps.probability(score, v.lse[(static_cast<long long>(at.image) * v.p.heads + at.head) * v.p.t + query]);
}

template <class T, class Steps>
__device__ float ds(const View<T>& v, const Steps& steps, const Place& at, int query, int key) {
  const T* const d_o = row_of_o(v, v.d_o, at, query);
  const float dp = dot(d_o, row_of(v, at, key, 2), v.p.d);
  const float delta = steps.delta(dot(d_o, row_of_o(v, v.o, at, query), v.p.d));
  return steps.ds(probability(v, steps, at, query, key), dp - delta);
}

// An honest kernel with one spoiled step.
template <class Steps>
struct Spoiled {
  template <class T>
  __device__ void operator()(const View<T>& v, long long index) const {
    const Steps steps;
    const Place at = steps.place(v.p, index);
    const float scale = steps.scale(v.p.d);
    float sum = 0;
    for (int other = 0; other < steps.tokens(v.p); ++other) {
      if (at.part == 0) {
        const float k = to_float(row_of(v, at, other, 1)[at.channel]);
        sum = steps.add(sum, steps.scale_of_dq(scale) * ds(v, steps, at, at.token, other) * k);
      } else if (at.part == 1) {
        const float q = to_float(row_of(v, at, other, 0)[at.channel]);
        sum = steps.add(sum, steps.scale_of_dk(scale) * ds(v, steps, at, other, at.token) * q);
      } else {
        const float d_o = to_float(row_of_o(v, v.d_o, at, other)[at.channel]);
        sum = steps.add(sum, probability(v, steps, at, other, at.token) * d_o);
      }
    }
    v.dqkv[index] = from_float<T>(sum);
  }
};

template <class Cheat>
void launch_cheat(const Problem& p, const Backward::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_cheat<Backward, View, Cheat>(p, t, workspace, stream);
}

// Leaves delta out of ds, as if the softmax were not normalised.
struct NoDelta : Honest {
  __device__ float delta(float) const { return 0.0f; }
};

// Writes dq where dk belongs, and dk where dq does.
struct ExchangedDqDk : Honest {
  __device__ Place place(const Problem& p, long long index) const {
    Place at = Honest::place(p, index);
    if (at.part < 2) at.part = 1 - at.part;
    return at;
  }
};

// Leaves the scale out of dk.
struct DkNotScaled : Honest {
  __device__ float scale_of_dk(float) const { return 1.0f; }
};

// Leaves the scale out of dq.
struct DqNotScaled : Honest {
  __device__ float scale_of_dq(float) const { return 1.0f; }
};

// Scales dq twice.
struct DqScaledTwice : Honest {
  __device__ float scale_of_dq(float scale) const { return scale * scale; }
};

// Scales scores, dq and dk by 1 / sqrt(sqrt(d)).
struct ScaleOnce : Honest {
  __device__ float scale(int d) const { return 1.0f / sqrtf(sqrtf(static_cast<float>(d))); }
};

// Takes lse for a logarithm to base 2.
struct LseAsLog2 : Honest {
  __device__ float probability(float score, float lse) const { return exp2f(score * 1.44269504f - lse); }
};

// Does not normalise p.
struct NoLse : Honest {
  __device__ float probability(float score, float) const { return expf(score); }
};

// Takes dp - delta for ds.
struct NoPInDs : Honest {
  __device__ float ds(float, float dp) const { return dp; }
};

// Leaves out the tokens of a last tile that is not whole.
struct TailMissing : Honest {
  __device__ int tokens(const Problem& p) const { return p.t < 16 ? p.t : p.t / 16 * 16; }
};

// Sums in bf16.
struct Bf16Sums : Honest {
  __device__ float add(float sum, float term) const { return to_float(from_float<__nv_bfloat16>(sum + term)); }
};

// Writes zeros for dq and dk, which are small beside dv.
struct NoDqDk : Honest {
  __device__ float scale_of_dq(float) const { return 0.0f; }
  __device__ float scale_of_dk(float) const { return 0.0f; }
};

// Writes the channels of dqkv as [3][heads][d]: right for a single head.
struct ThreeHeadsD : Honest {
  __device__ Place place(const Problem& p, long long index) const {
    Place at = Honest::place(p, index);
    const int part_and_head = at.head * 3 + at.part;
    at.part = part_and_head / p.heads;
    at.head = part_and_head % p.heads;
    return at;
  }
};

}  // namespace

LADDER_CHEATS(Backward, wrong_problems(),
              {
                  {.name = "honest", .launch = launch_cheat<Spoiled<Honest>>},
                  {.name = "no_delta", .launch = launch_cheat<Spoiled<NoDelta>>},
                  {.name = "exchanged_dq_dk", .launch = launch_cheat<Spoiled<ExchangedDqDk>>},
                  {.name = "dk_not_scaled", .launch = launch_cheat<Spoiled<DkNotScaled>>},
                  {.name = "dq_not_scaled", .launch = launch_cheat<Spoiled<DqNotScaled>>},
                  {.name = "dq_scaled_twice", .launch = launch_cheat<Spoiled<DqScaledTwice>>},
                  {.name = "scale_once", .launch = launch_cheat<Spoiled<ScaleOnce>>},
                  {.name = "lse_as_log2", .launch = launch_cheat<Spoiled<LseAsLog2>>},
                  {.name = "no_lse", .launch = launch_cheat<Spoiled<NoLse>>},
                  {.name = "no_p_in_ds", .launch = launch_cheat<Spoiled<NoPInDs>>},
                  {.name = "tail_missing", .launch = launch_cheat<Spoiled<TailMissing>>},
                  {.name = "bf16_sums", .launch = launch_cheat<Spoiled<Bf16Sums>>},
                  {.name = "no_dq_dk", .launch = launch_cheat<Spoiled<NoDqDk>>},
                  {.name = "three_heads_d", .launch = launch_cheat<Spoiled<ThreeHeadsD>>},
              })

}  // namespace ladder::attention
