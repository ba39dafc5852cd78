// optimizer: AdamW (Loshchilov and Hutter 2019) with clipping by the gradients' global norm and an exponential moving
// average of the parameters, over all parameters of a model at once. They lie in flat buffers, one tensor right after
// the other, so that a step is two passes and knows nothing of tensors. A third one makes g of the gradients that the
// layers left:
//
//     accumulate  g = share d  with "first",  else  g = g + share d;  share = 1 / parts, for a step of `parts` batches
//     norm   norm = sqrt(sum of g^2),  scale = min(1, max_norm / (norm + 1e-6)),  1 where the problem has no "clip",
//            0 where the norm is not finite
//     adamw  g = scale g
//            m = m + one_minus_beta1 (g - m),  v = v + one_minus_beta2 (g^2 - v)
//            p = (1 - lr weight_decay) p - lr / (1 - beta1^step) * m / (sqrt(v / (1 - beta2^step)) + eps)
//            ema = ema + one_minus_ema_rate (p - ema),  w = p rounded to dtype;  all but w stay as they are where
//            scale is 0 or NaN
//
//     g, p, m, v, ema  [p] fp32          d, w  [p] dtype, w where that is a 16-bit type          norm, scale  [1]
//     hyper  [8]
//
// With "mixedN", norm and adamw take the gradients of the first N parameters from d [N], in dtype as layers leave them,
// and those of the others from g [p - N].
//
// (PyTorch's clip_grad_norm_ and AdamW.) What changes from step to step lies in `hyper` on the device, so that a
// captured graph takes the new values. It holds 1 - beta rather than beta: of 0.999 and 0.9999 rounded to fp32, 1 -
// beta is wrong by 1e-5 and 3e-4.
//
// Tensors, which only tests need (tensor_begins()): tensor i < tensors has one parameter and a share of the others in
// proportion to 1 + (i * 2654435761 mod 2^32) / 2^22; the offset at which it begins is rounded down.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/registry.h"

namespace ladder::optimizer {

struct Hyper {
  float lr;
  float one_minus_beta1;
  float one_minus_beta2;
  float eps;
  float weight_decay;
  float one_minus_ema_rate;
  float step;  // 1 at the first one
  float max_norm;
};

struct Problem {
  std::int64_t p = 1;  // parameters
  int tensors = 1;     // tensors that the parameters belong to; no kernel needs to know
  bool clip = false;
  int parts = 1;             // accumulate: batches of a step
  bool first = false;        // accumulate: this is the first of them, and g's previous values are ignored
  std::int64_t mixed = 0;    // norm, adamw: the gradients of this many first parameters are in d, the others' in g
  Dtype dtype = Dtype::f32;  // of d and w; everything else is fp32

  // "p20494211 tensors326 clip bf16", "p4096 tensors1 parts4 first bf16", "p4096 tensors1 mixed4000 bf16":
  // parse(str()) is the same problem.
  std::string str() const;
  // Throws UsageError. A line without a dtype word is fp32.
  static Problem parse(std::string_view line);

  // Offsets of the first parameter of each tensor, then p.
  std::vector<std::int64_t> tensor_begins() const;
  bool operator==(const Problem&) const = default;

  // Any small problem; fp32.
  static Problem random(std::uint64_t seed);
};

struct Accumulate {
  static constexpr const char* kLayer = "optimizer";
  static constexpr const char* kName = "accumulate";
  using Problem = optimizer::Problem;

  struct Tensors {
    const void* d;  // [p] dtype
    float* g;       // [p], in place unless `first`
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at) { return {.d = at["d"], .g = at.get<float>("g")}; }
  static double flops(const Problem& p);                                          // two a parameter
  static bool exact(const Problem& p) { return (p.parts & (p.parts - 1)) == 0; }  // a power of two
};

struct Norm {
  static constexpr const char* kLayer = "optimizer";
  static constexpr const char* kName = "norm";
  static constexpr bool kExact = false;
  using Problem = optimizer::Problem;

  struct Tensors {
    const void* d;       // [mixed] dtype, or null where there are none
    const float* g;      // [p - mixed]
    const Hyper* hyper;  // [8]
    float* norm;         // [1]
    float* scale;        // [1]
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at);
  static double flops(const Problem& p);                      // two a parameter
  static void derive(const Problem& p, HostTensors& inputs);  // hyper, such that the gradient is clipped
};

struct AdamW {
  static constexpr const char* kLayer = "optimizer";
  static constexpr const char* kName = "adamw";
  static constexpr bool kDefault = true;
  static constexpr bool kExact = false;
  using Problem = optimizer::Problem;

  struct Tensors {
    const void* d;       // [mixed] dtype, or null where there are none
    const float* g;      // [p - mixed]
    const float* scale;  // [1]
    const Hyper* hyper;  // [8]
    float* p;            // [p], as m, v and ema; in place
    float* m;
    float* v;
    float* ema;
    void* w;  // [p] dtype, or null where that is fp32
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at);
  static double flops(const Problem& p);                      // twenty a parameter: a convention
  static void derive(const Problem& p, HostTensors& inputs);  // hyper; scale, of clipping or none; v >= 0
};

}  // namespace ladder::optimizer
