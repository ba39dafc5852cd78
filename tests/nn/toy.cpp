// The floors alone carry another model and its training: two linear layers on points of a line, built on runtime/ and nn/.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <vector>

#include "core/backend.h"
#include "core/graph.h"
#include "dev/diffusion/diffusion.h"
#include "dev/optimizer/optimizer.h"
#include "nn/layers.h"
#include "nn/update.h"
#include "runtime/program.h"

namespace ladder::nn {
namespace {

constexpr int kPoints = 32, kHidden = 64;

// y = W2 silu(W1 x + b1) + b2
class Perceptron {
 public:
  static Declaration declare() {
    Declaration all;
    all.linear("in", 1, kHidden);
    all.linear("out", kHidden, 1);
    return all;
  }

  static ValueId forward(Layers& layers, ValueId x) {
    return layers.linear("out", layers.silu("act", layers.linear("in", x, kHidden)), 1);
  }
};

// A step of its training as one tape: forward, the mean squared error (dev/diffusion's, of the targets in place of noise),
// backward and AdamW.
class Toy {
 public:
  explicit Toy(const std::vector<float>& start) {
    state_.set_values(start);
    std::vector<float> x(kPoints), y(kPoints);
    for (int i = 0; i < kPoints; ++i) {
      x[i] = static_cast<float>(i) / (kPoints - 1) * 2 - 1;
      y[i] = std::sin(3 * x[i]);
    }
    backend::copy_in(x_.base, x.data(), x_.bytes);
    backend::copy_in(y_.base, y.data(), y_.bytes);
    Tape tape;
    const Binding binding{
        .parameters = &parameters_, .weights = state_.weights(), .gradients = &gradients_, .dtype = Dtype::f32};
    Layers layers(tape, binding);
    const ValueId prediction = Perceptron::forward(layers, tape.value("x", Dtype::f32, {kPoints, 1}, x_));
    const ValueId d = tape.value("d prediction", Dtype::f32, {kPoints, 1});
    tape.run<diffusion::Loss>("loss", {.n = kPoints},
                              {{"pred", prediction},
                               {"noise", tape.value("y", Dtype::f32, {kPoints, 1}, y_)},
                               {"dpred", d},
                               {"losses", tape.value("losses", Dtype::f32, {kPoints})},
                               {"loss", tape.value("loss", Dtype::f32, {1}, results_)}});
    tape.add_gradient(prediction, d);
    tape.backward();
    const UpdateValues values{.hyper = tape.value("hyper", Dtype::f32, {8}, hyper_),
                              .norm = tape.value("norm", Dtype::f32, {1}, results_, 4),
                              .scale = tape.value("scale", Dtype::f32, {1}, results_, 8)};
    const Gradients gradients{.region = &gradients_, .dtype = Dtype::f32};
    append_norm(tape, parameters_, state_, gradients, values, false);
    append_update(tape, parameters_, state_, gradients, values, false);
    for (const Operation& operation : tape.operations()) {
      EXPECT_FALSE(operation.name == "in" && operation.problem.pass->path() == "gemm/dgrad") << "x needs no gradient";
    }
    program_.emplace(std::move(tape), Promotions::for_device(backend::device().slug));
  }

  float step(int number) {
    const optimizer::Hyper hyper{.lr = 0.02f,
                                 .one_minus_beta1 = 0.1f,
                                 .one_minus_beta2 = 0.01f,
                                 .eps = 1e-8f,
                                 .one_minus_ema_rate = 1,
                                 .step = static_cast<float>(number)};
    backend::copy_in(hyper_.base, &hyper, sizeof hyper);
    program_->enqueue(stream_);
    stream_.synchronize();
    float loss = 0;
    backend::copy_out(&loss, results_.base, sizeof loss);
    return loss;
  }

  const Parameters& parameters() const { return parameters_; }
  std::vector<float> gradients() const { return state_.get(gradients_); }
  void set(const std::vector<float>& values) { state_.set_values(values); }

 private:
  Parameters parameters_{Perceptron::declare()};
  State state_{parameters_, Dtype::f32};
  OwnedRegion gradients_{"gradients", parameters_.size() * sizeof(float)};
  OwnedRegion x_{"x", kPoints * sizeof(float)}, y_{"y", kPoints * sizeof(float)};
  OwnedRegion results_{"results", 12}, hyper_{"hyper", sizeof(optimizer::Hyper)};
  std::optional<Program> program_;
  OwnedStream stream_;
};

double error_of(const Parameters& parameters, const std::vector<float>& values) {
  const auto at = [&](const char* name, int i) { return double{values[parameters[name].begin + i]}; };
  double sum = 0;
  for (int i = 0; i < kPoints; ++i) {
    const double x = static_cast<float>(i) / (kPoints - 1) * 2 - 1;
    double y = at("out.bias", 0);
    for (int j = 0; j < kHidden; ++j) {
      const double h = at("in.weight", j) * x + at("in.bias", j);
      y += at("out.weight", j) * h / (1 + std::exp(-h));
    }
    sum += (y - std::sin(3 * x)) * (y - std::sin(3 * x));
  }
  return sum / kPoints;
}

TEST(ToyModel, TrainsOnTheFloorsAlone) {
  if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
  const std::vector<float> start = Parameters(Perceptron::declare()).initial(1);
  Toy toy(start);
  // The first loss and every gradient against the formula on the host, in double, by central differences.
  EXPECT_NEAR(toy.step(1), error_of(toy.parameters(), start), 1e-6);
  const std::vector<float> gradients = toy.gradients();
  for (const Parameter& p : toy.parameters().all()) {
    for (std::int64_t i = p.begin; i < p.begin + p.elements(); ++i) {
      std::vector<float> above = start, below = start;
      above[i] += 1e-2f;
      below[i] -= 1e-2f;
      const double slope =
          (error_of(toy.parameters(), above) - error_of(toy.parameters(), below)) / (double{above[i]} - below[i]);
      EXPECT_NEAR(gradients[i], slope, 1e-4) << p.name << " " << i - p.begin;
    }
  }
  toy.set(start);
  float loss = 0;
  for (int number = 1; number <= 200; ++number) loss = toy.step(number);
  EXPECT_LT(loss, 0.05 * error_of(toy.parameters(), start));
}

}  // namespace
}  // namespace ladder::nn
