// The reference of diffusion: the formulas of dev/diffusion/diffusion.h in double precision. Philox is implemented here
// a second time, on 32-bit words. u1 and u2 are the fp32 numbers that define the stream; everything after them is
// double.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "core/check/check.h"
#include "dev/diffusion/diffusion.h"

namespace ladder::diffusion {
namespace {

using Words = std::array<std::uint32_t, 4>;

Words philox(Words counter, std::uint32_t key0, std::uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xd2511f53} * counter[0];
    const std::uint64_t b = std::uint64_t{0xcd9e8d57} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key0, static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key1, static_cast<std::uint32_t>(a)};
    key0 += 0x9e3779b9;
    key1 += 0xbb67ae85;
  }
  return counter;
}

struct Normal {
  double value;
  double radius;  // sqrt(-2 ln u1); scales the error of u1 and of the angle
};

// Normal number of element `index` in a batch of images with `image` elements each. stream: seed, offset, first image.
Normal normal(const std::vector<float>& stream, std::int64_t image, std::int64_t index) {
  const auto seed = static_cast<std::uint64_t>(stream[0]);
  const auto offset = static_cast<std::uint64_t>(stream[1]);
  const auto first = static_cast<std::int64_t>(stream[2]);
  const std::int64_t quads = (image + 3) / 4;
  const std::int64_t element = index % image;
  const auto group = static_cast<std::uint64_t>((first + index / image) * quads + element / 4);
  const auto low = [](std::uint64_t v) { return static_cast<std::uint32_t>(v); };
  const auto high = [](std::uint64_t v) { return static_cast<std::uint32_t>(v >> 32); };
  const Words r = philox({low(group), high(group), low(offset), high(offset)}, low(seed), high(seed));
  const std::size_t pair = element % 4 / 2 * 2;
  const double u1 = std::fma(static_cast<float>(r[pair]), 0x1p-32f, 0x1p-33f);
  const double u2 = static_cast<float>(r[pair + 1]) * 0x1p-32f;
  const double radius = std::sqrt(-2 * std::log(u1));
  const double angle = 2 * std::numbers::pi * u2;
  return {radius * (element % 2 == 0 ? std::cos(angle) : std::sin(angle)), radius};
}

Expected zeros(std::int64_t count) { return {std::vector<double>(count), std::vector<double>(count)}; }

NamedOutputs batch(const Case& c, const HostTensors& in) {
  const auto& p = problem_of<Batch>(c);
  Expected x0 = zeros(p.elements());
  std::int64_t i = 0;
  for (int n = 0; n < p.n; ++n) {
    const auto index = static_cast<std::int64_t>(in["index"][n]);
    const std::int64_t image = index < 0 ? -1 - index : index;
    for (int row = 0; row < p.h; ++row) {
      for (int column = 0; column < p.w; ++column) {
        for (int channel = 0; channel < p.c; ++channel, ++i) {
          const int from = index < 0 ? p.w - 1 - column : column;
          const double pixel = in["pixels"][((image * p.h + row) * p.w + from) * p.c + channel];
          x0.value[i] = pixel / 127.5 - 1;
          x0.magnitude[i] = pixel / 127.5 + 1;
        }
      }
    }
  }
  return {{"x0", std::move(x0)}};
}

NamedOutputs noise(const Case& c, const HostTensors& in) {
  const auto& p = problem_of<Noise>(c);
  Expected noise = zeros(p.elements());
  for (std::int64_t i = 0; i < p.elements(); ++i) {
    const Normal made = normal(in["philox"], p.image(), i);
    noise.value[i] = made.value;
    noise.magnitude[i] = made.radius;
  }
  return {{"noise", std::move(noise)}};
}

NamedOutputs q_sample(const Case& c, const HostTensors& in) {
  const auto& p = problem_of<QSample>(c);
  Expected noise = zeros(p.elements());
  Expected x_t = zeros(p.elements());
  for (std::int64_t i = 0; i < p.elements(); ++i) {
    const auto t = static_cast<std::size_t>(in["t"][i / p.image()]);
    const double signal = in["table"][2 * t];
    const double weight = in["table"][2 * t + 1];
    const Normal made = normal(in["philox"], p.image(), i);
    noise.value[i] = made.value;
    noise.magnitude[i] = made.radius;
    x_t.value[i] = signal * in["x0"][i] + weight * made.value;
    x_t.magnitude[i] = std::abs(signal * in["x0"][i]) + std::abs(weight) * made.radius;
  }
  NamedOutputs outputs;
  outputs["noise"] = std::move(noise);
  outputs["x_t"] = std::move(x_t);
  return outputs;
}

NamedOutputs loss(const Case& c, const HostTensors& in) {
  const auto& p = problem_of<Loss>(c);
  const auto count = static_cast<double>(p.elements());
  Expected dpred = zeros(p.elements());
  Expected losses = zeros(p.n);
  Expected loss = zeros(1);
  for (std::int64_t i = 0; i < p.elements(); ++i) {
    const double pred = in["pred"][i];
    const double target = in["noise"][i];
    const double square = (pred - target) * (pred - target);
    // The difference has the rounding errors of pred and noise, and its square the same relative error.
    const double terms = (std::abs(pred) + std::abs(target)) * std::abs(pred - target);
    dpred.value[i] = 2 * (pred - target) / count;
    dpred.magnitude[i] = 2 * (std::abs(pred) + std::abs(target)) / count;
    losses.value[i / p.image()] += square / static_cast<double>(p.image());
    losses.magnitude[i / p.image()] += terms / static_cast<double>(p.image());
    loss.value[0] += square / count;
    loss.magnitude[0] += terms / count;
  }
  NamedOutputs outputs;
  outputs["dpred"] = std::move(dpred);
  outputs["losses"] = std::move(losses);
  outputs["loss"] = std::move(loss);
  return outputs;
}

NamedOutputs step(const Problem& p, const HostTensors& in) {
  StepCoefficients s{};
  const float* const row = &in["table"][static_cast<std::size_t>(in["step"][0]) * kStepColumns];
  std::copy(row, row + kStepColumns, reinterpret_cast<float*>(&s));
  const std::vector<float>* const noise = in.find("noise");
  Expected x = zeros(p.elements());
  for (std::int64_t i = 0; i < p.elements(); ++i) {
    const double before = in["x"][i];
    const double pred = in["pred"][i];
    const double random = noise ? (*noise)[i] : 0;
    const double clip = s.clip;
    const double x0 = std::clamp((s.x_scale * before - s.pred_scale * pred) * s.x0_scale, -clip, clip);
    x.value[i] = s.x0_weight * x0 + s.x_weight * before + s.pred_weight * pred + s.sigma * random;
    const double terms = std::abs(s.x_scale * before) + std::abs(s.pred_scale * pred);
    x.magnitude[i] = std::abs(s.x0_weight * s.x0_scale) * terms + std::abs(s.x_weight * before) +
                     std::abs(s.pred_weight * pred) + std::abs(s.sigma * random);
  }
  NamedOutputs outputs;
  if (size_of(p.dtype) == 2) {
    outputs["y"] = x;
    // A step may change x by less than a 16-bit type resolves, so only the fp32 x discriminates.
    outputs["y"].discriminating = false;
  }
  outputs["x"] = std::move(x);
  return outputs;
}

NamedOutputs ddpm_step(const Case& c, const HostTensors& in) { return step(problem_of<DdpmStep>(c), in); }
NamedOutputs ddim_step(const Case& c, const HostTensors& in) { return step(problem_of<DdimStep>(c), in); }

}  // namespace
}  // namespace ladder::diffusion

// No outliers in the table: an outlier is no valid scheduler coefficient (a clip below 0).
LADDER_OUTLIERS(ladder::diffusion::DdpmStep, {.tame = {"table"}})
LADDER_OUTLIERS(ladder::diffusion::DdimStep, {.tame = {"table"}})
LADDER_REFERENCE(ladder::diffusion::Batch, ladder::diffusion::batch)
LADDER_REFERENCE(ladder::diffusion::Noise, ladder::diffusion::noise)
LADDER_REFERENCE(ladder::diffusion::QSample, ladder::diffusion::q_sample)
LADDER_REFERENCE(ladder::diffusion::Loss, ladder::diffusion::loss)
LADDER_REFERENCE(ladder::diffusion::DdpmStep, ladder::diffusion::ddpm_step)
LADDER_REFERENCE(ladder::diffusion::DdimStep, ladder::diffusion::ddim_step)
