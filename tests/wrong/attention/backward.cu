#include "tests/wrong/attention/problems.h"
#include "tests/wrong/wrong.h"

namespace ladder::attention {
namespace {

using Tensors = Backward::Tensors;

enum class Fault {
  none,
  dk_not_scaled,    // leaves the scale out of dk
  dq_not_scaled,    // leaves the scale out of dq
  dq_scaled_twice,  // scales dq twice
  scale_once,       // scales scores, dq and dk by 1 / sqrt(sqrt(d))
  no_p_in_ds,       // takes dp - delta for ds
  tail_missing,     // leaves out the tokens of a last tile that is not whole
  bf16_sums,        // sums in bf16
};

// Every element's thread makes p and ds of its row or column anew.
template <Fault kFault>
struct Faulty {
  static __device__ float factor(float scale, bool is_dq) {
    if (kFault == Fault::dk_not_scaled && !is_dq) return 1.0f;
    if (kFault == Fault::dq_not_scaled && is_dq) return 1.0f;
    return kFault == Fault::dq_scaled_twice && is_dq ? scale * scale : scale;
  }

  __device__ void operator()(const auto& v, long long index) const {
    const Problem& p = v.p;
    const Element at = element_of_o(p, index / (3 * p.d) * p.d + index % p.d);
    const auto part = static_cast<int>(index / p.d % 3);  // dq, dk or dv
    const auto qkv = [&](int token, int which, int x) { return v.load(v.t.qkv, index_in_qkv(p, at, token, which, x)); };
    const auto of_o = [&](const void* o, int token, int x) {
      return v.load(o, ((at.image * p.t + token) * p.heads + at.head) * p.d + x);
    };
    const auto d = static_cast<float>(p.d);
    const float scale = 1.0f / sqrtf(kFault == Fault::scale_once ? sqrtf(d) : d);
    float sum = 0;
    for (int other = 0; other < (kFault == Fault::tail_missing ? whole_tiles(p.t) : p.t); ++other) {
      const int query = part == 0 ? at.token : other;
      const int key = part == 0 ? other : at.token;
      float score = 0;
      float dp = 0;
      float delta = 0;
      for (int x = 0; x < p.d; ++x) {
        score += qkv(query, 0, x) * qkv(key, 1, x);
        dp += of_o(v.t.d_o, query, x) * qkv(key, 2, x);
        delta += of_o(v.t.d_o, query, x) * of_o(v.t.o, query, x);
      }
      const float probability = expf(scale * score - v.t.lse[(at.image * p.heads + at.head) * p.t + query]);
      const float ds = (kFault == Fault::no_p_in_ds ? 1.0f : probability) * (dp - delta);
      const float term = part == 2 ? probability * of_o(v.t.d_o, query, at.channel)
                                   : factor(scale, part == 0) * ds * qkv(other, 1 - part, at.channel);
      sum = kFault == Fault::bf16_sums ? bf16(sum + term) : sum + term;
    }
    v.store(v.t.dqkv, index, sum);
  }
};

template <Fault kFault>
constexpr auto faulty = wrong::other_kernel<Backward, size_qkv, Faulty<kFault>>;

// Writes dq where dk belongs, and dk where dq does.
struct ExchangedDqDk {
  __device__ long long operator()(const Problem& p, long long i) const {
    const long long part = i / p.d % 3;
    return part < 2 ? i + (1 - 2 * part) * p.d : i;
  }
};

// Takes lse for a logarithm to base 2.
struct LseAsLog2 {
  __device__ float operator()(const auto& v, long long i) const { return v.t.lse[i] / 1.44269504f; }
};

// Writes zeros for dq and dk, which are small beside dv.
struct NoDqDk {
  __device__ void operator()(const auto& v, long long i) const {
    if (i / v.p.d % 3 < 2) v.store(v.t.dqkv, i, 0.0f);
  }
};

}  // namespace

// no_delta leaves delta out of ds, as if the softmax were not normalised; no_lse does not normalise p.
LADDER_CHEATS(Backward, wrong_problems(),
              {
                  faulty<Fault::none>("honest"),
                  wrong::spoiled_input<Backward, &Tensors::o, size_o, wrong::Zero>("no_delta"),
                  wrong::moved_output<Backward, &Tensors::dqkv, size_qkv, ExchangedDqDk>("exchanged_dq_dk"),
                  faulty<Fault::dk_not_scaled>("dk_not_scaled"),
                  faulty<Fault::dq_not_scaled>("dq_not_scaled"),
                  faulty<Fault::dq_scaled_twice>("dq_scaled_twice"),
                  faulty<Fault::scale_once>("scale_once"),
                  wrong::spoiled_input<Backward, &Tensors::lse, size_lse, LseAsLog2>("lse_as_log2"),
                  wrong::spoiled_input<Backward, &Tensors::lse, size_lse, wrong::Zero>("no_lse"),
                  faulty<Fault::no_p_in_ds>("no_p_in_ds"),
                  faulty<Fault::tail_missing>("tail_missing"),
                  faulty<Fault::bf16_sums>("bf16_sums"),
                  wrong::spoiled_output<Backward, size_qkv, NoDqDk>("no_dq_dk"),
                  wrong::moved_output<Backward, &Tensors::dqkv, size_qkv, ThreeHeadsD>("three_heads_d"),
              })

}  // namespace ladder::attention
