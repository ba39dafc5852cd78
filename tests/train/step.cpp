// A training step: the same bits in every way to run it, parts right up to rounding, and no value read too early or too
// late.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <span>

#include "core/backend.h"
#include "core/error.h"
#include "nn/models/unet2d_layers.h"
#include "tests/files.h"
#include "tests/train/tiny.h"
#include "tests/unordered.h"

namespace ladder::train {
namespace {

using test::distance;
using test::Tiny;

struct Outcome {
  std::vector<float> losses;
  std::vector<float> gradients;
  std::vector<float> values;
  std::vector<float> average;

  bool operator==(const Outcome&) const = default;
};

Outcome outcome(Tiny& net, const StepResults& results) {
  return {results.losses, net.step->gradients(), net.state.get(net.state.values), net.state.get(net.state.average)};
}

Outcome two_steps(Tiny&& net) {
  net.run(1);
  return outcome(net, net.run(2));
}

bool all_finite(const std::vector<float>& values) {
  return std::ranges::all_of(values, [](float v) { return std::isfinite(v); });
}

class TrainStep : public ::testing::TestWithParam<Dtype> {
 protected:
  void SetUp() override {
    if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
  }
};

TEST_P(TrainStep, AGraphHasTheBitsOfLaunches) {
  const Outcome launched = two_steps(Tiny(GetParam(), 1, false));
  EXPECT_TRUE(all_finite(launched.gradients));
  EXPECT_EQ(launched, two_steps(Tiny(GetParam(), 1, true)));
}

// Poison the arena with NaN before the step and each value after its last use: reading a value too early or too late
// shows.
TEST_P(TrainStep, NoValueIsReadTooEarlyOrTooLate) {
  Tiny plain(GetParam());
  const Outcome expected = outcome(plain, plain.run());
  Tiny poisoned(GetParam());
  const StepResults results = poisoned.step->run_poisoned(poisoned.inputs());
  EXPECT_EQ(outcome(poisoned, results), expected);
}

TEST_P(TrainStep, MicroBatchesAddUpToTheBatch) {
  Tiny undivided(GetParam(), 1);
  const Outcome expected = outcome(undivided, undivided.run());
  Tiny parts(GetParam(), 2);
  const Outcome found = outcome(parts, parts.run());
  const bool rounds = GetParam() == Dtype::bf16;
  EXPECT_LT(distance(found.losses, expected.losses), rounds ? 1e-2 : 1e-6);
  EXPECT_LT(distance(found.gradients, expected.gradients), rounds ? 2e-2 : 2e-5);
}

// Compare updates that read gradients in the layers' dtype with versions that need them widened to fp32 first.
TEST_P(TrainStep, AnUpdateOfWidenedGradientsHasTheSameBits) {
  const bool rounds = GetParam() == Dtype::bf16;
  Tiny as_they_are(GetParam()), widened(GetParam(), 1, false, "optimizer/norm=v02,optimizer/adamw=v02");
  EXPECT_EQ(outcome(widened, widened.run()), outcome(as_they_are, as_they_are.run()));
  EXPECT_EQ(widened.state.get(widened.state.first_moments), as_they_are.state.get(as_they_are.state.first_moments));
  const auto accumulations = [](const Tiny& net) {
    int count = 0;
    for (const Program* program : net.step->programs()) {
      for (const Operation& operation : program->tape().operations()) {
        count += operation.problem.pass->path() == "optimizer/accumulate";
      }
    }
    return count;
  };
  EXPECT_EQ(accumulations(as_they_are), 0);
  EXPECT_EQ(accumulations(widened), rounds ? 2 : 0);
  const auto fp32_of_matrices = static_cast<std::size_t>(widened.parameters.matrices_end()) * sizeof(float);
  EXPECT_GE(widened.step->bytes(), as_they_are.step->bytes() + (rounds ? fp32_of_matrices : 0));
}

// The time steps' embedding, its gradients and the weights' gradients run on a side stream, with the same bits, and no
// overlapping operation touches their memory.
TEST_P(TrainStep, BranchesHaveTheBitsOfOneLine) {
  Tiny branching(GetParam(), 1, true), in_line(GetParam());
  in_line.step = std::make_unique<Step>(StepOptions{.dtype = GetParam(), .graph = false, .branches = false},
                                        in_line.objective, in_line.parameters, in_line.state, in_line.promotions);
  EXPECT_EQ(outcome(branching, branching.run()), outcome(in_line, in_line.run()));
  std::set<std::string> side_stream, at_the_same_time;
  for (const Program* program : branching.step->programs()) {
    EXPECT_EQ(ladder::test::unordered_pairs(*program, program->slots()), std::vector<std::string>{});
    for (std::size_t i = 0; i < program->slots().size(); ++i) {
      const StreamSlot& slot = program->slots()[i];
      if (!slot.side_stream) continue;
      const Operation& operation = program->tape().operations()[i];
      side_stream.insert(operation.problem.pass->path());
      const auto meanwhile = std::span(program->slots()).subspan(slot.first, slot.last - slot.first + 1);
      if (std::ranges::count(meanwhile, false, &StreamSlot::side_stream) >= 2) {
        at_the_same_time.insert(operation.problem.pass->path());
      }
    }
  }
  std::set<std::string> expected = {"conv3x3/wgrad", "embedding/timestep", "gemm/dgrad",   "gemm/fprop",
                                    "gemm/wgrad",    "silu/backward",      "silu/forward", "add/embedding_backward"};
  if (GetParam() == Dtype::bf16) expected.insert({"conv3x3/wgrad_batch", "gemm/wgrad_batch"});
  EXPECT_EQ(side_stream, expected);
  EXPECT_EQ(at_the_same_time, expected);
}

// A groupnorm/backward version that adds to dx and sums it removes the separate operations. No gradient changes by more
// than the rounding steps that disappear with them.
TEST_P(TrainStep, GroupNormsBackwardPassDoesItsNeighboursWork) {
  if (backend::device().arch < 90) GTEST_SKIP() << "an older GPU";
  const bool rounds = GetParam() == Dtype::bf16;
  const char* const version = rounds ? "groupnorm/backward=v14" : "groupnorm/backward=v01";
  Tiny apart(GetParam(), 1, false, "groupnorm/backward=v02");
  Tiny together(GetParam(), 1, false, version);
  const auto sums = [](const Tiny& net) {
    const auto& all = net.step->programs()[1]->tape().operations();
    return std::ranges::count_if(
        all, [](const Operation& operation) { return operation.problem.pass->path() == "add/embedding_backward"; });
  };
  EXPECT_GT(sums(apart), 1);
  EXPECT_EQ(sums(together), 1);  // over images, of the sums that GroupNorm made
  const Outcome expected = outcome(apart, apart.run());
  const Outcome found = outcome(together, together.run());
  EXPECT_EQ(found.losses, expected.losses);
  EXPECT_LT(distance(found.gradients, expected.gradients), rounds ? 1e-2 : 1e-5);
  Tiny poisoned(GetParam(), 1, false, version);
  const StepResults results = poisoned.step->run_poisoned(poisoned.inputs());
  EXPECT_EQ(outcome(poisoned, results), found);
}

// A block adds its first convolution's bias and its embedding's bias to the same pixels, so their gradients are equal.
// The first comes from the embedding's sums over pixels, the second from a product of the linear layers.
TEST_P(TrainStep, ABiasBesideTheEmbeddingHasItsGradient) {
  Tiny net(GetParam());
  net.run();
  const std::vector<float> all = net.step->gradients();
  const auto gradient = [&](const std::string& name) {
    const nn::Parameter& p = net.parameters[name];
    return std::vector<float>(all.begin() + p.begin, all.begin() + p.begin + p.elements());
  };
  int blocks = 0;
  for (const nn::Parameter& p : net.parameters.all()) {
    const auto end = p.name.rfind("in_layers.2.bias");
    if (end == std::string::npos) continue;
    ++blocks;
    const std::vector<float> expected = gradient(p.name.substr(0, end) + "emb_layers.1.bias");
    EXPECT_TRUE(std::ranges::any_of(expected, [](float v) { return v != 0; })) << p.name;
    EXPECT_LT(distance(gradient(p.name), expected), 1e-6) << p.name;
  }
  EXPECT_GT(blocks, 2);
}

// A convolution version that also adds the embedding and the residual removes the separate operations. Gradients stay
// as near to those without rounding as before: in the root mean square over several batches on a GPU, as one batch's
// rounding error may differ by a quarter to either side.
TEST_P(TrainStep, ConvolutionsAddWhatFollowsThem) {
  if (backend::device().arch < 90) GTEST_SKIP() << "an older GPU";
  const bool rounds = GetParam() == Dtype::bf16;
  Tiny apart(GetParam(), 1, false, rounds ? "conv3x3/fprop=v09" : "conv3x3/fprop=v03");
  Tiny together(GetParam(), 1, false, rounds ? "conv3x3/fprop=v14" : "conv3x3/fprop=v01");
  const auto counts = [](const Tiny& net, const char* pass) {
    const auto& all = net.step->programs()[1]->tape().operations();
    return std::ranges::count_if(all,
                                 [&](const Operation& operation) { return operation.problem.pass->path() == pass; });
  };
  EXPECT_GT(counts(apart, "add/embedding"), 0);
  EXPECT_EQ(counts(together, "add/embedding"), 0);
  EXPECT_LT(counts(together, "add/residual"), counts(apart, "add/residual"));
  const Outcome expected = outcome(apart, apart.run());
  const Outcome found = outcome(together, together.run());
  EXPECT_LT(distance(found.losses, expected.losses), rounds ? 1e-2 : 1e-6);
  EXPECT_LT(distance(found.gradients, expected.gradients), rounds ? 4e-2 : 2e-5);
  if (!rounds) return;
  Tiny unrounded(Dtype::f32);
  double of_apart = 0, of_together = 0;
  const int batches = backend::kind() == backend::Kind::gpu ? 16 : 1;
  for (int batch = 1; batch <= batches; ++batch) {
    const auto gradients = [&](Tiny& net) {
      net.set(net.random_weights());
      return outcome(net, net.run(batch)).gradients;
    };
    const auto exact = gradients(unrounded);
    of_apart += std::pow(distance(gradients(apart), exact), 2);
    of_together += std::pow(distance(gradients(together), exact), 2);
  }
  EXPECT_LT(std::sqrt(of_together), 1.1 * std::sqrt(of_apart)) << "root of the sum over " << batches << " batches";
}

// An up block's input and skip are not joined if all their readers can read two tensors.
TEST_P(TrainStep, NothingIsJoinedThatCanBeReadInParts) {
  if (backend::device().arch < 90) GTEST_SKIP() << "an older GPU";
  const auto joins = [](const Tiny& net) {
    const auto& all = net.step->programs()[1]->tape().operations();
    return std::ranges::count_if(
        all, [](const Operation& operation) { return operation.problem.pass->path() == "concat/join"; });
  };
  const auto blocks = std::ssize(nn::Unet2dLayers(nn::unet2d_config("tiny")).up);
  Tiny promoted(GetParam());
  EXPECT_EQ(joins(promoted), GetParam() == Dtype::bf16 ? 0 : blocks);
  if (GetParam() != Dtype::bf16) return;
  Tiny joined(GetParam(), 1, false, "groupnorm/forward=v06");
  EXPECT_EQ(joins(joined), blocks);
  const Outcome expected = outcome(joined, joined.run());
  const Outcome found = outcome(promoted, promoted.run());
  EXPECT_LT(distance(found.losses, expected.losses), 1e-2);
  EXPECT_LT(distance(found.gradients, expected.gradients), 2e-2);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, TrainStep, ::testing::Values(Dtype::f32, Dtype::bf16),
                         [](const auto& info) { return name(info.param); });

class TrainStepOnce : public TrainStep {};

TEST_P(TrainStepOnce, AnotherStepHasOtherNoise) {
  Tiny net(GetParam());
  net.run(1);
  const std::vector<float> first = net.objective.noise();
  net.run(2);
  EXPECT_GT(distance(net.objective.noise(), first), 0.5);
}

// A gradient that is not finite leaves parameters, moments and average unchanged, and is reported.
TEST_P(TrainStepOnce, LeavesOutAnUpdateThatIsNotFinite) {
  Tiny net(GetParam());
  std::vector<float> weights = net.random_weights();
  weights[net.parameters["out.2.bias"].begin] = std::numeric_limits<float>::infinity();
  net.set(weights);
  const StepResults results = net.run();
  EXPECT_EQ(results.scale, 0);
  EXPECT_EQ(net.state.get(net.state.values), weights);
  EXPECT_EQ(net.state.get(net.state.average), weights);
  EXPECT_EQ(net.state.get(net.state.first_moments), std::vector<float>(weights.size(), 0.0f));
}

// A step with a gradient that is not finite, between two good steps, leaves no trace.
TEST_P(TrainStepOnce, AStepLeftOutBetweenGoodOnesChangesNothing) {
  Tiny plain(GetParam());
  plain.run(1);
  const Outcome expected = outcome(plain, plain.run(3));
  Tiny net(GetParam());
  net.run(1);
  const std::vector<float> noise = net.objective.noise();
  net.objective.set_batch(std::vector<float>(noise.size(), std::numeric_limits<float>::infinity()), noise);
  EXPECT_EQ(net.step->run_on_batch(net.inputs(2)).scale, 0);
  EXPECT_EQ(outcome(net, net.run(3)), expected);
}

// Submit more steps than can be in flight: each result must belong to its step.
TEST_P(TrainStepOnce, ResultsComeInTheOrderOfTheirSteps) {
  Tiny net(GetParam());
  std::vector<StepResults> results;
  for (int number = 1; number <= 6; ++number) {
    if (auto oldest = net.step->submit(net.inputs(number))) results.push_back(*oldest);
  }
  while (auto oldest = net.step->collect()) results.push_back(*oldest);
  ASSERT_EQ(results.size(), 6u);
  Tiny alone(GetParam());
  for (int number = 1; number <= 6; ++number) {
    EXPECT_EQ(results[number - 1].losses, alone.run(number).losses);
  }
}

// The batch's first pass reads far past the images. In a replayed graph the failure shows at the wait for the results.
TEST_P(TrainStepOnce, ALaunchThatFailsIsReported) {
  if (backend::kind() == backend::Kind::gpu)
    GTEST_SKIP() << "a process whose kernel has failed can use no GPU any more";
  for (const bool graph : {false, true}) {
    Tiny net(GetParam(), 1, graph);
    EpsilonInputs batch = net.batch();
    batch.index[0] = 1 << 20;
    const std::string message = ladder::test::message_of<Failure>([&] {
      net.step->submit({.batch = batch.bytes(), .hyper = hyper(net.config, 1)});
      net.step->collect();
    });
    EXPECT_TRUE(ladder::test::has(message, "dev/diffusion/batch")) << graph;
  }
}

// The gradient must predict the loss's change in a direction: central differences along the gradient itself and along a
// random direction.
TEST_P(TrainStepOnce, TheGradientIsTheSlopeOfTheLoss) {
  Tiny net(GetParam());
  const std::vector<float> weights = net.random_weights();
  net.run();
  const std::vector<float> gradient = net.step->gradients();
  std::vector<float> mixed = gradient;  // random signs, so that a wrong layer does not hide behind the others
  for (std::size_t i = 0; i < mixed.size(); ++i) mixed[i] *= (i * 2654435761u >> 16) % 2 == 0 ? 1.0f : -0.5f;
  for (const std::vector<float>& direction : {gradient, mixed}) {
    double norm = 0, slope = 0;
    for (std::size_t i = 0; i < direction.size(); ++i) {
      norm += double{direction[i]} * direction[i];
      slope += double{direction[i]} * gradient[i];
    }
    const double h = 2e-3 / std::sqrt(norm);
    const auto loss_at = [&](double distance) {
      std::vector<float> moved = weights;
      for (std::size_t i = 0; i < moved.size(); ++i) moved[i] += static_cast<float>(distance * direction[i]);
      net.set(moved);
      return double{net.run().loss};
    };
    const double found = (loss_at(h) - loss_at(-h)) / (2 * h);
    EXPECT_NEAR(found, slope, 5e-3 * std::abs(slope));
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, TrainStepOnce, ::testing::Values(Dtype::f32),
                         [](const auto& info) { return name(info.param); });

}  // namespace
}  // namespace ladder::train
