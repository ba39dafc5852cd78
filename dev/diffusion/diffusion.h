// diffusion: noise, the noised image, the loss and the steps of a sampler, (Ho et al. 2020). For every element i of image n:
//
//     batch      x0[i] = pixels[index[n]][i] / 127.5 - 1; index[n] < 0 means image -1 - index[n], mirrored left to right
//     noise      noise[i] = normal(i)
//     q_sample   noise[i] = normal(i),  x_t[i] = signal[t[n]] x0[i] + noise_weight[t[n]] noise[i]
//     loss       losses[n] = mean of (pred - noise)^2 over the image,  loss = mean over all,  dpred = 2 (pred - noise) / count
//     ddpm_step  x0 = clamp((x_scale x - pred_scale pred) x0_scale, -clip, clip),  x = x0_weight x0 + x_weight x + sigma noise
//     ddim_step  the same x0,  x = x0_weight x0 + x_weight x + pred_weight pred + sigma noise
//
// The coefficients of a step are row step[0] of a table on the device (scheduler.h), so that a captured graph takes
// others when the counter has changed. They say what the model's output `pred` is: the noise, x0 or v. x is fp32 and updated in place; y is x as the model takes it, where that is a
// 16-bit type.
//
// The stream of noise. normal(i) of element i of image n is word i % 4 of four normal numbers made by Box and Muller's
// transform from
//
//     Philox4x32-10 (Salmon et al. 2011), counter = ((first + n) quads + i / 4, offset), key = seed, each 64 bits, lower
//     word first, quads = an image's elements / 4, rounded up
//
// seed, offset and first are philox[0] to philox[2] on the device. A training step's noise follows from its seed and number
// alone; an image's follows from its number `first + n`, however many are in a batch. Of the four words r0..r3,
// u1 = fma(r0, 2^-32, 2^-33) and u2 = r1 * 2^-32, converted and rounded to fp32, make sqrt(-2 log u1) cos(2 pi u2) and the
// same with the sine; r2 and r3 make the other two.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/registry.h"
#include "dev/diffusion/scheduler.h"

namespace ladder::diffusion {

struct Problem {
  int n = 1;                 // images
  int h = 1;                 // rows
  int w = 1;                 // columns
  int c = 1;                 // channels
  bool cosine = false;       // the schedule, else linear
  bool large = false;        // ddpm_step: variance fixed_large, else fixed_small
  bool no_clip = false;      // the predicted x0 is not clamped
  bool clipped_eps = false;  // ddim_step: eps is derived anew from the clamped x0
  int steps = 50;            // of the sampler, "leading"
  int eta = 0;               // ddim_step: per cent; there is noise where it is not 0
  int images = 0;            // batch: of the data set that a batch of n is taken from; 0: n
  Dtype dtype = Dtype::f32;  // of x0, x_t, pred, dpred and y; noise, x and losses are fp32

  // "n32 h64 w64 c3 bf16", "n4 h8 w8 c3 cosine large no-clip clipped-eps steps250 eta100 fp32", "n32 h64 w64 c3
  // images1200 bf16": parse(str()) is the same problem.
  std::string str() const;
  // Throws UsageError. A line without a dtype word is fp32.
  static Problem parse(std::string_view line);

  std::int64_t image() const { return std::int64_t{h} * w * c; }
  std::int64_t elements() const { return n * image(); }
  int set_size() const { return images == 0 ? n : images; }
  bool operator==(const Problem&) const = default;

  // Any small problem; fp32.
  static Problem random(std::uint64_t seed);
};

struct Batch {
  static constexpr const char* kLayer = "diffusion";
  static constexpr const char* kName = "batch";
  static constexpr bool kExact = false;
  using Problem = diffusion::Problem;

  struct Tensors {
    const std::uint8_t* pixels;  // [images, h, w, c]
    const std::int32_t* index;   // [n]
    void* x0;                    // [n, h, w, c] dtype
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at) {
    return {
        .pixels = at.get<const std::uint8_t>("pixels"), .index = at.get<const std::int32_t>("index"), .x0 = at["x0"]};
  }
  static double flops(const Problem& p);
  static Traffic traffic(const Problem& p);  // n images are read, however many there are
};

struct Noise {
  static constexpr const char* kLayer = "diffusion";
  static constexpr const char* kName = "noise";
  static constexpr bool kExact = false;
  using Problem = diffusion::Problem;

  struct Tensors {
    const std::int64_t* philox;  // [3]: seed, offset, first
    float* noise;                // [n, h, w, c]
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at) {
    return {.philox = at.get<const std::int64_t>("philox"), .noise = at.get<float>("noise")};
  }
  static double flops(const Problem& p);  // of all passes: ten an element, a convention
};

struct QSample {
  static constexpr const char* kLayer = "diffusion";
  static constexpr const char* kName = "q_sample";
  static constexpr bool kDefault = true;
  static constexpr bool kExact = false;
  using Problem = diffusion::Problem;

  struct Tensors {
    const void* x0;              // [n, h, w, c] dtype
    const std::int32_t* t;       // [n]
    const Diffused* table;       // [kTimesteps]
    const std::int64_t* philox;  // [3]: seed, offset, first
    void* x_t;                   // [n, h, w, c] dtype
    float* noise;                // [n, h, w, c]
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at);
  static double flops(const Problem& p) { return Noise::flops(p); }
  // The table of the problem's schedule, within a few per cent; first and last time step are 0 and 999.
  static void derive(const Problem& p, HostTensors& inputs);
};

struct Loss {
  static constexpr const char* kLayer = "diffusion";
  static constexpr const char* kName = "loss";
  static constexpr bool kExact = false;
  using Problem = diffusion::Problem;

  struct Tensors {
    const void* pred;    // [n, h, w, c] dtype
    const float* noise;  // [n, h, w, c]
    void* dpred;         // [n, h, w, c] dtype
    float* losses;       // [n]
    float* loss;         // [1]
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at);
  static double flops(const Problem& p) { return Noise::flops(p); }
};

struct DdpmStep {
  static constexpr const char* kLayer = "diffusion";
  static constexpr const char* kName = "ddpm_step";
  static constexpr bool kExact = false;
  using Problem = diffusion::Problem;

  struct Tensors {
    const void* pred;               // [n, h, w, c] dtype
    const float* noise;             // [n, h, w, c]
    const StepCoefficients* table;  // [steps]
    const std::int32_t* step;       // [1]
    float* x;                       // [n, h, w, c], in place
    void* y;                        // [n, h, w, c] dtype, or null where that is fp32
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at);
  static double flops(const Problem& p) { return Noise::flops(p); }
  static void derive(const Problem& p, HostTensors& inputs);  // the table, within a few per cent
};

struct DdimStep {
  static constexpr const char* kLayer = "diffusion";
  static constexpr const char* kName = "ddim_step";
  static constexpr bool kExact = false;
  using Problem = diffusion::Problem;

  struct Tensors {
    const void* pred;               // [n, h, w, c] dtype
    const float* noise;             // [n, h, w, c], or null where eta is 0
    const StepCoefficients* table;  // [steps]
    const std::int32_t* step;       // [1]
    float* x;                       // [n, h, w, c], in place
    void* y;                        // [n, h, w, c] dtype, or null where that is fp32
  };

  static std::vector<TensorSpec> tensors(const Problem& p);
  static Tensors bind(const Pointers& at);
  static double flops(const Problem& p) { return Noise::flops(p); }
  static void derive(const Problem& p, HostTensors& inputs);  // the table, within a few per cent
};

}  // namespace ladder::diffusion
