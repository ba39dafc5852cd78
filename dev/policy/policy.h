// policy: one denoising step of Diffusion Policy (Chi et al. 2023), its 1-D U-Net and the scheduler's step, as one problem. With
// s = step[0], for all n samples of l positions and d numbers each:
//
//     scale, shift = film_table[s] + film[n]           of each res block: the C scales, then the C shifts
//     out          = network(x rounded to dtype, scale, shift)
//     x            = the scheduler's step from x, out and noise with row s of `table`, as dev/diffusion has it
//
// The network, on sequences [positions, channels]:
//
//     block    conv of `taps` taps -> GroupNorm(groups, eps 1e-5) over all positions and the group's channels -> Mish
//     res(u)   block(scale * block(u) + shift) + r(u),  r a 1x1 convolution, or u itself where the number of channels stays
//     down     of each level: res, res; then a convolution of 3 taps and stride 2, but not after the last level
//     mid      res, res
//     up       of each level from the last to the second: the level's own output of `down` is joined after u's channels; res, res
//              to the width of the level before; then a transposed convolution of 4 taps and stride 2
//     out      block of dims[0] channels, 8 groups whatever `groups` says; 1x1 convolution to d
//
// Convolutions have a bias and are conv1d's (dev/conv1d/conv1d.h). Which there are, in which order, and where the weights of
// each lie is said by layout.h alone. How the rows of FiLM come about, a table that depends on the weights and the time step and
// a vector made once an answer, is not part of the problem. Activations between convolutions may be rounded to dtype; sums,
// statistics and `out` are fp32.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/registry.h"
#include "dev/diffusion/scheduler.h"

namespace ladder::policy {

inline constexpr int kMaxLevels = 4;
inline constexpr int kLastGroups = 8;  // of the last block

struct Problem {
  int n = 1;                            // samples
  int l = 1;                            // positions: the horizon
  int d = 1;                            // numbers of an action
  int levels = 1;                       // of the U-Net
  int dims[kMaxLevels] = {8, 0, 0, 0};  // their widths
  int taps = 5;
  int groups = 8;
  int steps = 1;             // rows of film_table and table
  bool ddim = false;         // whose rows those of random inputs resemble, else DDPM's
  Dtype dtype = Dtype::f32;  // of weights and activations

  // "n1 l16 d2 dims256,512,1024 taps5 groups8 steps100 ddpm bf16": parse(str()) is the same problem.
  std::string str() const;
  // Throws UsageError. A line without a dtype word is fp32.
  static Problem parse(std::string_view line);

  std::int64_t elements() const { return std::int64_t{n} * l * d; }
  bool operator==(const Problem&) const = default;

  // Any small problem; fp32.
  static Problem random(std::uint64_t seed);
};

struct Step {
  static constexpr const char* kLayer = "policy";
  static constexpr const char* kName = "step";
  static constexpr bool kDefault = true;
  static constexpr bool kExact = false;
  using Problem = policy::Problem;

  struct Tensors {
    const void* weights;                       // [weights] dtype, of all convolutions
    const float* vectors;                      // [vectors]: biases, gammas, betas
    const float* film_table;                   // [steps, film_row]
    const float* film;                         // [n, film_row]
    const diffusion::StepCoefficients* table;  // [steps]
    const std::int32_t* step;                  // [1]
    const float* noise;                        // [n, l, d]
    float* x;                                  // [n, l, d], in place
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at);
  static double flops(const Problem& p);     // two per multiply-add of the convolutions
  static Traffic traffic(const Problem& p);  // of each table one row
  // Weights that keep the network's numbers near 1; a table in which each coefficient counts, without noise at the last step.
  static void derive(const Problem& p, HostTensors& inputs);
};

}  // namespace ladder::policy
