// Normalises each key's scores over the queries.
#include "tests/wrong/attention/forward/forward.h"

namespace ladder::attention::forward_wrong {
namespace {

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

LADDER_VERSION(Forward, {.launch = launch_cheat<OverQueries>, .dtypes = {Dtype::f32}})

}  // namespace ladder::attention::forward_wrong
