// The network of policy.h as a list of stages, its convolutions in the order in which they run, and the offsets of
// their parameters in the packed tensors. It follows from the problem alone; all code that packs, checks or reads
// weights uses it.
//
// weights  of each stage [k, taps, c], c innermost, in the stages' order; those of a residual convolution [k, c] stand
//          right before those of the stage that adds it. A transposed convolution has the same order: its tap t
//          multiplies position i of the input for position 2 i - 1 + t of the output, so that w[k][t][c] is PyTorch's
//          weight[c][k][t].
// vectors  of each stage bias [k], then, where it is normalised, gamma [k] and beta [k]; the residual convolution's
//          bias [k] stands right before them.
// film     a row has the scales [k], then the shifts [k] of each res block in order.
// values   output of each stage, [n, out_l, k], stage after stage: room that a version may use.
#pragma once

#include <cstdint>

#include "dev/conv1d/conv1d.h"
#include "dev/policy/policy.h"

namespace ladder::policy {

inline constexpr int kNone = -1;
inline constexpr int kSample = -2;  // x in the place of a stage's value

enum class Residual : std::uint8_t { none, identity, convolution };

// A convolution, and the way from its output h to the stage's value v:
//     v = h                                     without groups
//     v = Mish(GroupNorm(h))                    with groups
//     v = scale v + shift                       with film, and groups
//     v = v + r(u)                              with a residual; u is the input of the stage before
struct Stage {
  int l;       // positions of the input
  int c;       // channels of the input: the last `joined` of them are those of joined_stage
  int joined;  // 0: there is no joined stage
  int k;       // channels of the output
  int taps;
  int source;        // the stage whose value is the input, or kSample
  int joined_stage;  // the stage whose value is joined to the input, or kNone
  int groups;        // 0: not normalised
  int film;          // offset of the scales in a row of film, or kNone
  int weights;
  int bias;
  int residual_weights;  // with Residual::convolution
  int residual_bias;
  int value;  // offset of one sample's values; of n samples' values, n times as much
  Residual residual;
  bool stride2;
  bool transposed;

  __host__ __device__ constexpr int gamma() const { return bias + k; }
  __host__ __device__ constexpr int beta() const { return bias + 2 * k; }
  // Returns the stage as a problem of conv1d, which says how long the output is and which taps reach a position.
  __host__ __device__ constexpr conv1d::Problem convolution(int n) const {
    conv1d::Problem conv{.n = n, .l = l, .c = c, .k = k, .taps = taps, .stride2 = stride2, .transposed = transposed};
    conv.split = joined > 0 ? c - joined : 0;
    return conv;
  }
  // Returns the 1x1 convolution of this stage's input that the next stage adds.
  __host__ __device__ constexpr conv1d::Problem widened(int n, int width) const {
    conv1d::Problem conv{.n = n, .l = l, .c = c, .k = width, .taps = 1};
    conv.split = joined > 0 ? c - joined : 0;
    return conv;
  }
  __host__ __device__ constexpr int out_l() const { return convolution(1).out_l(); }
};

inline constexpr int kMaxStages = 10 * kMaxLevels;

struct Network {
  int count = 0;  // stages
  int weights = 0;
  int vectors = 0;
  int film_row = 0;
  int values = 0;  // of one sample
  Stage stages[kMaxStages] = {};
};

Network network_of(const Problem& p);

}  // namespace ladder::policy
