#include <cmath>
#include <utility>

#include "dev/optimizer/update.h"
#include "tests/wrong/wrong.h"

namespace ladder::optimizer {
namespace {

enum class Fault {
  squared,            // the sum of squares
  absolute,           // the sum of absolute values
  root_mean_square,   // divided by the number of parameters
  largest,            // the largest of all: clipping by value
  norm_over_maximum,  // the inverse scale
};

template <Fault kFault>
struct Faulty {
  __device__ void operator()(const auto& v, long long) const {
    float sum = 0;
    float most = 0;
    for (long long i = 0; i < v.p.p; ++i) {
      const float g = i < v.p.mixed ? v.load(v.t.d, i) : v.t.g[i - v.p.mixed];
      sum += fabsf(g);
      most = fmaxf(most, fabsf(g));
    }
    float norm = *v.t.norm;
    if (kFault == Fault::squared) norm *= norm;
    if (kFault == Fault::absolute) norm = sum;
    if (kFault == Fault::root_mean_square) norm /= sqrtf(static_cast<float>(v.p.p));
    if (kFault == Fault::largest) norm = most;
    if (kFault != Fault::norm_over_maximum) finish_norm(norm * norm, v.p.clip, *v.t.hyper, v.t.norm, v.t.scale);
    if (kFault == Fault::norm_over_maximum && v.p.clip) *v.t.scale = norm / v.t.hyper->max_norm;
  }
};

constexpr int one(const Problem&) { return 1; }

template <Fault kFault>
constexpr auto faulty = wrong::spoiled_output<Norm, one, Faulty<kFault>>;

// Forgets the gradients in d.
void others_alone(Problem& p) { p.p -= std::exchange(p.mixed, 0); }

// Whole vectors of eight, and drops the rest.
void whole_vectors(Problem& p) { p.p = (p.p - 1) / 8 * 8; }

// Scales without being told to.
void clips_always(Problem& p) { p.clip = true; }

}  // namespace

LADDER_CHEATS(Norm, (std::vector<std::string>{"p100 tensors3 clip", "p203 tensors5", "p203 tensors5 mixed68"}),
              {
                  wrong::honest<Norm>(),
                  faulty<Fault::squared>("squared"),
                  faulty<Fault::absolute>("absolute"),
                  faulty<Fault::root_mean_square>("root_mean_square"),
                  faulty<Fault::largest>("largest"),
                  wrong::spoiled_problem<Norm, others_alone>("others_alone"),
                  wrong::spoiled_problem<Norm, whole_vectors>("whole_vectors"),
                  faulty<Fault::norm_over_maximum>("norm_over_maximum"),
                  wrong::spoiled_problem<Norm, clips_always>("clips_always"),
              })

}  // namespace ladder::optimizer
