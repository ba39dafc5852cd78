// What looks at a network from outside its training: the sampler, the held-out loss, and where images come from.
#include "train/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "core/backend.h"
#include "core/error.h"
#include "tests/train/data_file.h"
#include "tests/train/files.h"
#include "tests/train/tiny.h"
#include "train/held_out.h"
#include "train/image_source.h"

namespace ladder::train {
namespace {

using ladder::test::message_of;
using ladder::test::Scratch;
using test::distance;
using test::Tiny;

class NeedsDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
  }
};

// A network of one level with random weights.
class Sampling : public NeedsDevice {
 protected:
  static ModelConfig model() {
    return {.image_size = 8, .channels = 32, .channel_mult = {1}, .res_blocks = 1, .attention_resolutions = {}};
  }
  static SamplerOptions options() {
    return {.model = model(), .dtype = Dtype::f32, .images = 2, .steps = 3, .graph = false};
  }

  void SetUp() override {
    NeedsDevice::SetUp();
    if (IsSkipped()) return;
    parameters_.emplace(model());
    state_.emplace(*parameters_, Dtype::f32);
    std::vector<float> weights = parameters_->initial(1);
    const Parameter& last = (*parameters_)["out.2.weight"];
    for (std::int64_t i = 0; i < last.elements(); ++i) weights[last.begin + i] = static_cast<float>(i % 7 - 3) * 0.02f;
    state_->set_values(weights);
  }

  std::vector<float> sample(const SamplerOptions& options, std::int64_t seed = 1, std::int64_t first = 0) {
    return Sampler(options, *parameters_, state_->weights(), promotions_).run(seed, first);
  }

  // The network's prediction, without a sampler.
  std::vector<float> predict(const std::vector<float>& x, float t) {
    const std::vector<float> times(2, t);
    const OwnedRegion images("x", x.size() * sizeof(float)), predicted("prediction", images.bytes);
    const OwnedRegion t_region("t", times.size() * sizeof(float));
    backend::copy_in(images.base, x.data(), images.bytes);
    backend::copy_in(t_region.base, times.data(), t_region.bytes);
    Tape tape;
    Unet(model(), *parameters_, Dtype::f32, 2, state_->weights())
        .forward(tape, tape.value("x", Dtype::f32, {2, 8, 8, kImageChannels}, images),
                 tape.value("t", Dtype::f32, {2}, t_region), &predicted);
    const OwnedStream stream;
    Program(std::move(tape), promotions_).enqueue(stream);
    stream.synchronize();
    std::vector<float> found(x.size());
    backend::copy_out(found.data(), predicted.base, predicted.bytes);
    return found;
  }

  std::optional<Parameters> parameters_;
  std::optional<State> state_;
  Promotions promotions_ = Promotions::for_device(backend::unavailable() ? "" : backend::device().slug);
};

TEST_F(Sampling, AGraphChangesNoBitAndTheSeedDecides) {
  const std::vector<float> images = sample(options());
  EXPECT_TRUE(std::ranges::all_of(images, [](float v) { return std::isfinite(v); }));
  SamplerOptions graph = options();
  graph.graph = true;
  Sampler sampler(graph, *parameters_, state_->weights(), promotions_);
  EXPECT_EQ(sampler.run(1), images);
  EXPECT_NE(sampler.run(2), images);
  const std::vector<float> next = sampler.run(1, 2);  // the two images behind those
  EXPECT_NE(next, images);
  EXPECT_EQ(sampler.run(1), images);  // nothing of a run is left for the next
  const std::size_t each = images.size() / 2;
  EXPECT_FALSE(std::equal(images.begin(), images.begin() + each, images.begin() + each));
}

// DDIM's formula on the host, in double, at the time steps of the schedule, the network asked at each.
TEST_F(Sampling, DdimIsItsFormulaAtTheSchedulesTimeSteps) {
  const auto schedule = diffusion::make_schedule(diffusion::Betas::linear);
  const std::vector<float> weights = state_->get(state_->values);
  // With a network that sees no noise one step at t = 0 scales what it begins with.
  state_->set_values(std::vector<float>(weights.size(), 0.0f));
  SamplerOptions one = options();
  one.steps = 1;
  one.clip = false;
  std::vector<float> x = sample(one);
  state_->set_values(weights);
  for (float& v : x) v = static_cast<float>(v * std::sqrt(schedule.alpha_bar(0)));

  const std::vector<int> times = {666, 333, 0};
  EXPECT_EQ(diffusion::sampled_timesteps(diffusion::Spacing::leading, 3), times);
  for (const int t : times) {
    const std::vector<float> eps = predict(x, static_cast<float>(t));
    const double bar = schedule.alpha_bar(t);
    const double next = t >= 333 ? schedule.alpha_bar(t - 333) : 1;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double x0 = std::clamp((x[i] - std::sqrt(1 - bar) * eps[i]) / std::sqrt(bar), -1.0, 1.0);
      x[i] = static_cast<float>(std::sqrt(next) * x0 + std::sqrt(1 - next) * eps[i]);
    }
  }
  EXPECT_LT(distance(sample(options()), x), 1e-4);
}

TEST_F(Sampling, NoiseOnTheWayIsDrawnWhereItIsAskedFor) {
  const std::vector<float> ddim = sample(options());
  SamplerOptions noisy = options();
  noisy.eta_percent = 100;
  EXPECT_GT(distance(sample(noisy), ddim), 0.05);
  SamplerOptions ddpm = options();
  ddpm.kind = SamplerKind::ddpm;
  const std::vector<float> small = sample(ddpm);
  EXPECT_GT(distance(small, ddim), 0.05);
  EXPECT_EQ(sample(ddpm), small);
  ddpm.large = true;
  EXPECT_NE(sample(ddpm), small);
}

TEST_F(Sampling, NoImagesAreRefused) {
  SamplerOptions none = options();
  none.images = 0;
  EXPECT_EQ(message_of<UsageError>([&] { sample(none); }), "there is at least one image to sample");
}

class HeldOutLoss : public NeedsDevice {};

// The loss is that of steps on the same images, time steps and noise; the third image fills its batch up twice and
// counts once. Nothing of the training changes.
TEST_F(HeldOutLoss, IsTheMeanOverItsImagesAndChangesNothing) {
  Tiny net(Dtype::bf16);
  const StepOptions options{.model = net.config.model, .dtype = Dtype::bf16, .batch = 2, .images = Tiny::kImages};
  HeldOut held_out(options, {3, 1, 2}, net.parameters, net.state.weights(), net.pixels, net.promotions);
  const std::vector<float> weights = net.state.get(net.state.values), moments = net.state.get(net.state.first_moments);
  const double loss = held_out.loss();
  EXPECT_EQ(held_out.loss(), loss);
  EXPECT_EQ(net.state.get(net.state.values), weights);
  EXPECT_EQ(net.state.get(net.state.first_moments), moments);

  StepInputs inputs = net.inputs();
  inputs.hyper.lr = 0;
  inputs.seed = 0x68656c64;
  double sum = 0;
  for (const int first : {0, 2}) {
    inputs.offset = first;
    inputs.index = first == 0 ? std::vector<std::int32_t>{3, 1} : std::vector<std::int32_t>{2, 2};
    inputs.t = first == 0 ? std::vector<std::int32_t>{166, 500} : std::vector<std::int32_t>{833, 833};
    net.step->submit(inputs);
    const StepResults results = *net.step->collect();
    sum += results.losses[0] + (first == 0 ? double{results.losses[1]} : 0);
  }
  EXPECT_DOUBLE_EQ(loss, sum / 3);
}

TEST_F(HeldOutLoss, TimeStepsLieInEqualDistances) {
  EXPECT_EQ(HeldOut::time_step(0, 1), 500);
  EXPECT_EQ(HeldOut::time_step(0, 1000), 0);
  EXPECT_EQ(HeldOut::time_step(999, 1000), 999);
  EXPECT_EQ(HeldOut::time_step(2047, 2048), 999);
  for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(HeldOut::time_step(i, 10), static_cast<std::int32_t>(50 + 100 * i));
}

class Images : public NeedsDevice {
 protected:
  // The bytes on the device of an image that place() or held_out() names.
  static std::vector<std::uint8_t> at(const ImageSource& source, std::int32_t number, std::size_t each) {
    std::vector<std::uint8_t> all(source.pixels().bytes);
    backend::copy_out(all.data(), source.pixels().base, all.size());
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>((number < 0 ? -1 - number : number) * each);
    return {begin, begin + static_cast<std::ptrdiff_t>(each)};
  }
  static std::vector<std::uint8_t> bytes(const std::uint8_t* image, std::size_t each) { return {image, image + each}; }
};

TEST_F(Images, AreWhereTheyAreSaidToBe) {
  const Scratch scratch;
  test::put_images(scratch / "some.ldata", 4, 9, 2);
  const Dataset data(scratch / "some.ldata");
  const std::size_t each = data.image_bytes();
  for (const std::size_t room : {9 * each, 9 * each - 1}) {
    ImageSource source(data, 3, room);
    EXPECT_EQ(source.streams(), room < 9 * each);
    EXPECT_EQ(source.pixels().bytes, source.images() * each);
    EXPECT_EQ(source.images(), source.streams() ? 2 + 2 * 3 : 9);
    const OwnedStream stream;
    std::vector<std::int32_t> before;
    // Of each turn and the one before it: a step may still be at work on that.
    for (const std::vector<std::int32_t>& batch :
         std::vector<std::vector<std::int32_t>>{{0, 1, 2}, {-1 - 6, 5, 4}, {3, 3, -1 - 0}, {6, 2, 1}, {1, 1, 1}}) {
      const std::vector<std::int32_t> placed = source.place(batch, stream);
      stream.synchronize();
      ASSERT_EQ(placed.size(), batch.size());
      for (std::size_t i = 0; i < batch.size(); ++i) {
        EXPECT_EQ(placed[i] < 0, batch[i] < 0);
        EXPECT_LT(placed[i] < 0 ? -1 - placed[i] : placed[i], source.images());
        EXPECT_EQ(at(source, placed[i], each), bytes(data.training(batch[i] < 0 ? -1 - batch[i] : batch[i]), each));
      }
      if (source.streams()) {
        for (const std::int32_t old : before) {
          const auto same = [old](std::int32_t now) { return std::max(now, -1 - now) == std::max(old, -1 - old); };
          EXPECT_TRUE(std::ranges::none_of(placed, same)) << "a place that a step may be reading is written to";
        }
      }
      before = placed;
      source.release(stream);
      ASSERT_EQ(source.held_out().size(), 2u);
      for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(at(source, source.held_out()[i], each), bytes(data.held_out(i), each));
      }
    }
  }
}

TEST_F(Images, OfManyHeldOutSomeAreTaken) {
  const Scratch scratch;
  test::put_images(scratch / "many.ldata", 1, 2100, 2090);
  const Dataset data(scratch / "many.ldata");
  for (const std::size_t room : {std::size_t{0}, std::size_t{1} << 20}) {
    const ImageSource source(data, 1, room);
    EXPECT_EQ(source.held_out().size(), 2048u);
    EXPECT_EQ(at(source, source.held_out().back(), 3), bytes(data.held_out(2047), 3));
  }
}

}  // namespace
}  // namespace ladder::train
