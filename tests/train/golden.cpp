// The network against PyTorch: tests/golden/unet_tiny.json, which reference/pytorch/unet_golden.py makes in float64 and
// which says itself how its weights and inputs are made.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include <nlohmann/json.hpp>

#include "core/backend.h"
#include "core/paths.h"
#include "tests/train/tiny.h"
#include "train/model_files.h"

namespace ladder::train {
namespace {

using Json = nlohmann::json;
using test::Tiny;

const Json& golden() {
  static const Json made = [] {
    std::ifstream file(source_dir() + "/tests/golden/unet_tiny.json");
    return Json::parse(file);
  }();
  return made;
}

std::uint32_t hash32(std::uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352d;
  x ^= x >> 15;
  x *= 0x846ca68b;
  return x ^ (x >> 16);
}

float value(std::uint32_t stream, std::uint32_t element) {
  return static_cast<float>(hash32(stream * (1u << 20) + element) >> 8) / 8388608.0f - 1.0f;
}

bool is_normalisation(const std::string& name) {
  return name.find(".norm.") != std::string::npos || name.find("in_layers.0.") != std::string::npos ||
         name.find("out_layers.0.") != std::string::npos || name.rfind("out.0.", 0) == 0;
}

// In PyTorch's layout.
std::vector<float> weights_of(const nn::Parameter& p, std::uint32_t stream) {
  std::vector<float> values(p.elements());
  const bool is_weight = p.name.ends_with(".weight");
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(p.fan_in)));
  for (std::uint32_t i = 0; i < values.size(); ++i) {
    const float v = value(stream, i);
    values[i] = is_normalisation(p.name) ? (is_weight ? 1.0f + v / 4 : v / 4) : scale * v;
  }
  return values;
}

// [n, c, h, w] elements counted in that order, as [n, h, w, c].
std::vector<float> image(std::uint32_t stream, float scale, int n, int side) {
  std::vector<float> made(static_cast<std::size_t>(n) * side * side * nn::kImageChannels);
  std::uint32_t element = 0;
  for (int i = 0; i < n; ++i) {
    for (int c = 0; c < nn::kImageChannels; ++c) {
      for (int p = 0; p < side * side; ++p) {
        made[(static_cast<std::size_t>(i) * side * side + p) * nn::kImageChannels + c] =
            scale * value(stream, element++);
      }
    }
  }
  return made;
}

// A projection of a gradient that is off by a share of its norm is off by about as much of the norm.
void expect_gradient(const std::string& name, std::size_t parameter, const std::vector<float>& g, const Json& known) {
  constexpr double kLimit = 3e-5;
  const double norm = known["norm"];
  double squares = 0;
  for (const float element : g) squares += double{element} * element;
  EXPECT_NEAR(std::sqrt(squares), norm, kLimit * norm) << name;
  ASSERT_EQ(known["projections"].size(), 4u);
  for (std::uint32_t j = 0; j < 4; ++j) {
    const std::uint32_t stream = 1024 + 4 * static_cast<std::uint32_t>(parameter) + j;
    double projection = 0;
    for (std::size_t e = 0; e < g.size(); ++e)
      projection += double{g[e]} * value(stream, static_cast<std::uint32_t>(e));
    EXPECT_NEAR(projection, known["projections"][j].get<double>(), 2 * kLimit * norm) << name << ", projection " << j;
  }
}

// A gradient of qkv with zeros but in the rows of q, k or v: [heads][q, k, v][d].
std::vector<float> only(char part, std::vector<float> g, const nn::Parameter& p, int d) {
  const auto wanted = static_cast<std::int64_t>(std::string("qkv").find(part));
  const std::int64_t columns = p.elements() / p.shape[0];
  for (std::int64_t row = 0; row < p.shape[0]; ++row) {
    if (row / d % 3 == wanted) continue;
    for (std::int64_t column = 0; column < columns; ++column) g[row * columns + column] = 0;
  }
  return g;
}

TEST(TrainGolden, LossPredictionAndGradientsArePyTorchs) {
  if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
  Tiny net(Dtype::f32);
  const auto& parameters = net.parameters.all();
  ASSERT_EQ(golden()["parameters"].size(), parameters.size());
  std::vector<float> weights(net.parameters.size(), 0.0f);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Json& known = golden()["parameters"][i];
    ASSERT_EQ(known["name"], parameters[i].name);
    ASSERT_EQ(known["shape"].get<std::vector<std::int64_t>>(), parameters[i].shape) << parameters[i].name;
    const std::vector<float> values = weights_of(parameters[i], static_cast<std::uint32_t>(i));
    ASSERT_EQ(known["first_values"][0].get<float>(), values[0]) << parameters[i].name;
    set_file_values(parameters[i], values, weights);
  }
  net.set(weights);

  const int side = net.config.model.image_size;
  const int n = net.config.batch;
  const std::vector<float> noise = image(1001, 2, n, side);
  std::vector<float> noised = image(1000, 1, n, side);
  EpsilonInputs inputs = net.batch();
  inputs.t = golden()["t"].get<std::vector<std::int32_t>>();
  const auto schedule = diffusion::make_schedule(diffusion::Betas::linear);
  for (std::size_t i = 0; i < noised.size(); ++i) {
    const double bar = schedule.alpha_bar(inputs.t[i / (noised.size() / n)]);
    noised[i] = static_cast<float>(std::sqrt(bar) * noised[i] + std::sqrt(1 - bar) * noise[i]);
  }
  net.objective.set_batch(noised, noise);
  const StepResults results = net.step->run_on_batch({.batch = inputs.bytes(), .hyper = hyper(net.config, 1)});
  EXPECT_NEAR(results.loss, golden()["loss"].get<double>(), 1e-5);

  const std::vector<float> nhwc = net.objective.prediction();
  const std::size_t pixels = static_cast<std::size_t>(side) * side;
  const auto stride = golden()["pred"]["stride"].get<std::size_t>();
  const double pred_norm = golden()["pred"]["norm"];
  std::size_t checked = 0;
  for (std::size_t element = 0; element < nhwc.size(); element += stride, ++checked) {
    const std::size_t image_idx = element / (pixels * nn::kImageChannels);
    const std::size_t c = element / pixels % nn::kImageChannels;
    const float found = nhwc[(image_idx * pixels + element % pixels) * nn::kImageChannels + c];
    EXPECT_NEAR(found, golden()["pred"]["elements"][checked].get<double>(), 3e-5 * pred_norm) << element;
  }
  EXPECT_EQ(checked, golden()["pred"]["elements"].size());

  const std::vector<float> gradients = net.step->gradients();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const nn::Parameter& p = parameters[i];
    const Json& known = golden()["parameters"][i];
    const std::vector<float> g = file_values(p, gradients);
    if (!known.contains("parts")) {
      expect_gradient(p.name, i, g, known);
      continue;
    }
    // q, k and v apart: the gradients of the first two are a thirtieth of the last one's.
    for (const auto& [part, part_known] : known["parts"].items()) {
      expect_gradient(p.name + " " + part, i, only(part[0], g, p, net.config.model.head_size), part_known);
    }
  }
}

}  // namespace
}  // namespace ladder::train
