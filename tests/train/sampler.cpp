// Sampler, held-out loss and image source: users of a network outside its training step.
#include "train/sampler.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <vector>

#include "core/backend.h"
#include "core/error.h"
#include "dev/diffusion/diffusion.h"
#include "tests/files.h"
#include "tests/train/data_file.h"
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

// A one-level network without zero weights: its prediction depends on the image and on the time step.
class Sampling : public NeedsDevice {
 protected:
  static constexpr std::int64_t kSeed = 11;

  // 64 channels: with one channel a group, GroupNorm would remove what the embedding adds.
  static nn::Unet2dConfig config() {
    return {.image_size = 4, .channels = 64, .channel_mult = {1}, .res_blocks = 1, .attention_resolutions = {}};
  }
  static SamplerOptions options(Dtype dtype = Dtype::f32) {
    return {.dtype = dtype, .images = 2, .steps = 3, .graph = false};
  }

  void SetUp() override {
    NeedsDevice::SetUp();
    if (IsSkipped()) return;
    parameters_.emplace(model_.declare());
    std::vector<float> weights = parameters_->initial(1);
    for (std::size_t i = 0; i < weights.size(); ++i) {
      if (weights[i] == 0) weights[i] = static_cast<float>(i % 7) * 0.02f - 0.06f;
    }
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) state(dtype).emplace(*parameters_, dtype).set_values(weights);
  }

  std::optional<nn::State>& state(Dtype dtype) { return dtype == Dtype::f32 ? fp32_ : bf16_; }

  std::vector<float> sample(const SamplerOptions& options, std::int64_t seed = kSeed, std::int64_t first = 0) {
    return Sampler(options, model_, *parameters_, state(options.dtype)->weights(), promotions_).run(seed, first);
  }

  // Run the operations that `append` adds to a tape; returns the first `count` numbers of the result region.
  template <class Append>
  std::vector<float> computed(Dtype dtype, std::size_t count, const Append& append) {
    const OwnedRegion region("result", count * size_of(dtype));
    Tape tape;
    append(tape, region);
    const OwnedStream stream;
    Program(std::move(tape), promotions_).enqueue(stream);
    stream.synchronize();
    std::vector<std::byte> raw(region.bytes);
    backend::copy_out(raw.data(), region.base, raw.size());
    std::vector<float> found(count);
    decode(dtype, raw.data(), count, found.data());
    return found;
  }

  // Returns the network's prediction, without a sampler.
  std::vector<float> predict(Dtype dtype, const std::vector<double>& x, int t) {
    const std::vector<float> times(2, static_cast<float>(t)), rounded(x.begin(), x.end());
    std::vector<std::byte> raw(x.size() * size_of(dtype));
    encode(dtype, rounded.data(), rounded.size(), raw.data());
    const OwnedRegion images("x", raw.size()), t_region("t", times.size() * sizeof(float));
    backend::copy_in(images.base, raw.data(), raw.size());
    backend::copy_in(t_region.base, times.data(), t_region.bytes);
    return computed(dtype, x.size(), [&](Tape& tape, const Region& predicted) {
      model_.forward(tape, {.parameters = &*parameters_, .weights = state(dtype)->weights(), .dtype = dtype},
                     tape.value("x", dtype, {2, 4, 4, nn::kImageChannels}, images),
                     tape.value("t", Dtype::f32, {2}, t_region), &predicted);
    });
  }

  std::vector<float> noise(std::int64_t offset, std::int64_t first = 0) {
    const std::int64_t philox[3] = {kSeed, offset, first};
    const OwnedRegion stream("philox", sizeof philox);
    backend::copy_in(stream.base, philox, sizeof philox);
    return computed(Dtype::f32, 2 * 4 * 4 * nn::kImageChannels, [&](Tape& tape, const Region& drawn) {
      tape.run<diffusion::Noise>("noise", {.n = 2, .h = 4, .w = 4, .c = 3},
                                 {{"philox", tape.value("philox", Dtype::i64, {3}, stream)},
                                  {"noise", tape.value("noise", Dtype::f32, {2, 4, 4, nn::kImageChannels}, drawn)}});
    });
  }

  // Sample in three steps at t = 666, 333 and 0 on the host, in double, with the device's predictions. `step` computes
  // the next x from alpha_bar at t and at the next time step, x0 clamped to [-1, 1], eps, x and noise. Each step has
  // its noise stream; stream 1000 is the initial noise.
  template <class Step>
  std::vector<float> sampled(Dtype dtype, std::int64_t first, const Step& step) {
    const auto schedule = diffusion::make_schedule(diffusion::Betas::linear);
    const std::vector<float> start = noise(1000, first);
    std::vector<double> x(start.begin(), start.end());
    for (int i = 0; i < 3; ++i) {
      const int t = 666 - 333 * i;
      const double bar = schedule.alphas_cumprod[t], next = t > 0 ? schedule.alphas_cumprod[t - 333] : 1;
      const std::vector<float> eps = predict(dtype, x, t), drawn = noise(i, first);
      for (std::size_t j = 0; j < x.size(); ++j) {
        const double x0 = std::clamp((x[j] - std::sqrt(1 - bar) * eps[j]) / std::sqrt(bar), -1.0, 1.0);
        x[j] = step(bar, next, x0, eps[j], x[j], drawn[j]);
      }
    }
    return {x.begin(), x.end()};
  }

  const nn::Unet2d model_{config()};
  std::optional<nn::Parameters> parameters_;
  std::optional<nn::State> fp32_, bf16_;
  Promotions promotions_ = Promotions::for_device(backend::unavailable() ? "" : backend::device().slug);
};

TEST_F(Sampling, TheSeedDecides) {
  Sampler sampler(options(), model_, *parameters_, fp32_->weights(), promotions_);
  const std::vector<float> images = sampler.run(1);
  EXPECT_TRUE(std::ranges::all_of(images, [](float v) { return std::isfinite(v); }));
  EXPECT_NE(sampler.run(2), images);
  EXPECT_NE(sampler.run(1, 2), images);  // images 2 and 3
  EXPECT_EQ(sampler.run(1), images);     // a run leaves no state for the next
  const std::size_t image_floats = images.size() / 2;
  EXPECT_FALSE(std::equal(images.begin(), images.begin() + image_floats, images.begin() + image_floats));
}

// The first batch runs as launches before the capture, later batches as graphs.
TEST_F(Sampling, GraphsOfAnyLengthChangeNoBit) {
  SamplerOptions ddim = options(), noisy = options(Dtype::bf16), ddpm = options(Dtype::bf16);
  noisy.eta_percent = 60;
  noisy.images = 1;
  ddpm.kind = SamplerKind::ddpm;
  for (SamplerOptions o : {ddim, noisy, ddpm}) {
    o.steps = 5;
    Sampler launches(o, model_, *parameters_, state(o.dtype)->weights(), promotions_);
    const std::vector<float> first = launches.run(1), second = launches.run(1, o.images);
    o.graph = true;
    for (const auto& [length, done] : std::map<int, std::vector<int>>{{1, {1, 2, 3, 4, 5}}, {2, {2, 4, 5}}, {7, {5}}}) {
      o.graph_steps = length;
      Sampler graphs(o, model_, *parameters_, state(o.dtype)->weights(), promotions_);
      std::vector<int> told;
      EXPECT_EQ(graphs.run(1, 0, [&](int steps) { told.push_back(steps); }), first) << length;
      EXPECT_EQ(told, done);
      EXPECT_EQ(graphs.run(1, o.images), second) << length;
    }
  }
}

TEST_F(Sampling, TheNetworkSeesTheTimeStep) {
  const std::vector<float> start = noise(0);
  const std::vector<double> x(start.begin(), start.end());
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    EXPECT_GT(distance(predict(dtype, x, 0), predict(dtype, x, 999)), 0.05) << name(dtype);
    EXPECT_GT(distance(predict(dtype, x, 333), predict(dtype, x, 0)), 0.02) << name(dtype);
  }
}

// Test both batches of two images: the second batch's noise follows the first's.
TEST_F(Sampling, EveryStepIsItsFormulaAndHasANoiseOfItsOwn) {
  EXPECT_EQ(diffusion::scheduler_timesteps({}, 3), (std::vector<int>{666, 333, 0}));
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    const double tolerance = dtype == Dtype::f32 ? 1e-4 : 1e-2;  // an x on the edge between two bf16 numbers
    for (const std::int64_t first : {0, 2}) {
      const std::string at = fmt::format("{}, image {}", name(dtype), first);
      for (const int eta : {0, 60}) {
        SamplerOptions ddim = options(dtype);
        ddim.eta_percent = eta;
        const auto step = [&](double bar, double next, double x0, double eps, double, double drawn) {
          const double sigma = eta / 100.0 * std::sqrt((1 - next) / (1 - bar) * (1 - bar / next));
          return std::sqrt(next) * x0 + std::sqrt(1 - next - sigma * sigma) * eps + sigma * drawn;
        };
        EXPECT_LT(distance(sample(ddim, kSeed, first), sampled(dtype, first, step)), tolerance)
            << at << ", eta " << eta;
      }
      for (const bool large : {false, true}) {
        SamplerOptions ddpm = options(dtype);
        ddpm.kind = SamplerKind::ddpm;
        ddpm.large = large;
        const auto step = [&](double bar, double next, double x0, double, double x, double drawn) {
          const double beta = 1 - bar / next, variance = large ? beta : beta * (1 - next) / (1 - bar);
          return (std::sqrt(next) * beta * x0 + std::sqrt(1 - beta) * (1 - next) * x) / (1 - bar) +
                 (next < 1 ? std::sqrt(variance) * drawn : 0);
        };
        EXPECT_LT(distance(sample(ddpm, kSeed, first), sampled(dtype, first, step)), tolerance)
            << at << ", ddpm " << large;
      }
    }
  }
}

// Draw images 0 to 3 in batches of four, three, two and one, with noise in each step.
TEST_F(Sampling, AnImageIsTheSameInBatchesOfAnySize) {
  SamplerOptions o = options();
  o.kind = SamplerKind::ddpm;
  o.images = 4;
  const std::vector<float> expected = sample(o);
  for (const int images : {1, 2, 3}) {
    o.images = images;
    Sampler sampler(o, model_, *parameters_, fp32_->weights(), promotions_);
    std::vector<float> found;
    for (std::int64_t first = 0; first < 4; first += images) {
      const std::vector<float> batch = sampler.run(kSeed, first);
      found.insert(found.end(), batch.begin(), batch.end());
    }
    found.resize(expected.size());
    EXPECT_LT(distance(found, expected), 1e-4) << images;
  }
}

// Finite weights with a prediction that is not finite, with and without a clamp that would hide it.
TEST_F(Sampling, WhatIsNotFiniteIsNoImage) {
  std::vector<float> weights = parameters_->initial(1);
  std::ranges::fill(weights, 3e38f);
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    state(dtype)->set_values(weights);
    for (const SamplerKind kind : {SamplerKind::ddim, SamplerKind::ddpm}) {
      for (const bool clip : {true, false}) {
        SamplerOptions o = options(dtype);
        o.kind = kind;
        o.clip = clip;
        const std::string message = message_of<Failure>([&] { sample(o, kSeed, 6); });
        EXPECT_TRUE(ladder::test::has(message, "image 6 has a number that is not finite")) << name(dtype);
      }
    }
  }
}

TEST_F(Sampling, NoImagesAreRefused) {
  SamplerOptions none = options();
  none.images = 0;
  EXPECT_EQ(message_of<UsageError>([&] { sample(none); }), "there is at least one image to sample");
  SamplerOptions short_graph = options();
  short_graph.graph_steps = 0;
  EXPECT_EQ(message_of<UsageError>([&] { sample(short_graph); }), "there is at least one step in a graph");
}

class HeldOutLoss : public NeedsDevice {};

// The held-out loss equals that of steps on the same images, time steps and noise. The third image fills its batch of
// two and counts once. The training's state does not change.
TEST_F(HeldOutLoss, IsTheMeanOverItsImagesAndChangesNothing) {
  Tiny net(Dtype::bf16);
  const nn::Binding binding{.parameters = &net.parameters,
                            .weights = net.state.weights(),
                            .dtype = net.config.dtype,
                            .promotions = &net.promotions};
  Ranks one;
  HeldOut held_out(epsilon_options(net.config, Tiny::kImages), {3, 1, 2}, one, net.model, binding, net.pixels,
                   net.promotions);
  const std::vector<float> weights = net.state.get(net.state.values), moments = net.state.get(net.state.first_moments);
  const double loss = held_out.loss();
  EXPECT_EQ(held_out.loss(), loss);
  EXPECT_EQ(net.state.get(net.state.values), weights);
  EXPECT_EQ(net.state.get(net.state.first_moments), moments);

  optimizer::Hyper still = hyper(net.config, 1);
  still.lr = 0;
  double sum = 0;
  for (const int first : {0, 2}) {
    EpsilonInputs batch{.seed = 0x68656c64, .offset = first};
    batch.index = first == 0 ? std::vector<std::int32_t>{3, 1} : std::vector<std::int32_t>{2, 2};
    batch.t = first == 0 ? std::vector<std::int32_t>{166, 500} : std::vector<std::int32_t>{833, 833};
    net.step->submit({.batch = batch.bytes(), .hyper = still});
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
  // Returns the device bytes of an image that load() or held_out() names.
  static std::vector<std::uint8_t> at(const ImageSource& source, std::int32_t number, std::size_t image_bytes) {
    std::vector<std::uint8_t> all(source.pixels().bytes);
    backend::copy_out(all.data(), source.pixels().base, all.size());
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>((number < 0 ? -1 - number : number) * image_bytes);
    return {begin, begin + static_cast<std::ptrdiff_t>(image_bytes)};
  }
  static std::vector<std::uint8_t> bytes(const std::uint8_t* image, std::size_t image_bytes) {
    return {image, image + image_bytes};
  }
};

TEST_F(Images, AreWhereTheyAreSaidToBe) {
  const Scratch scratch;
  test::put_images(scratch / "some.ldata", 4, 9, 2);
  const Dataset data(scratch / "some.ldata");
  const std::size_t image_bytes = data.image_bytes();
  for (const std::size_t room : {9 * image_bytes, 9 * image_bytes - 1}) {
    ImageSource source(data, 3, room);
    EXPECT_EQ(source.streams(), room < 9 * image_bytes);
    EXPECT_EQ(source.pixels().bytes, source.images() * image_bytes);
    EXPECT_EQ(source.images(), source.streams() ? 2 + 2 * 3 : 9);
    const OwnedStream stream;
    std::vector<std::int32_t> before;
    // A batch must not overwrite images of the previous batch, which a step may still be reading.
    for (const std::vector<std::int32_t>& batch :
         std::vector<std::vector<std::int32_t>>{{0, 1, 2}, {-1 - 6, 5, 4}, {3, 3, -1 - 0}, {6, 2, 1}, {1, 1, 1}}) {
      const std::vector<std::int32_t> placed = source.load(batch, stream);
      stream.synchronize();
      ASSERT_EQ(placed.size(), batch.size());
      for (std::size_t i = 0; i < batch.size(); ++i) {
        EXPECT_EQ(placed[i] < 0, batch[i] < 0);
        EXPECT_LT(placed[i] < 0 ? -1 - placed[i] : placed[i], source.images());
        EXPECT_EQ(at(source, placed[i], image_bytes),
                  bytes(data.training(batch[i] < 0 ? -1 - batch[i] : batch[i]), image_bytes));
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
        EXPECT_EQ(at(source, source.held_out()[i], image_bytes), bytes(data.held_out(i), image_bytes));
      }
    }
  }
}

// Nobody waits for the stream between batches, as if a step took longer than the loading of the next ones.
TEST_F(Images, AreReadBeforeTheirPlaceIsTaken) {
  constexpr std::size_t kBatch = 3;
  constexpr std::size_t kBatches = 7;
  const Scratch scratch;
  test::put_images(scratch / "some.ldata", 4, 9, 2);
  const Dataset data(scratch / "some.ldata");
  const std::size_t image_bytes = data.image_bytes();
  ImageSource source(data, kBatch, 0);
  const OwnedStream stream;
  const PinnedBuffer read(kBatches * kBatch * image_bytes);
  const auto image_of = [&](std::size_t i) { return static_cast<std::byte*>(read.data()) + i * image_bytes; };
  const auto number_of = [](std::size_t i) { return static_cast<std::int32_t>((i + i / kBatch) % 7); };
  for (std::size_t first = 0; first < kBatches * kBatch; first += kBatch) {
    const auto placed = source.load({number_of(first), number_of(first + 1), number_of(first + 2)}, stream);
    for (std::size_t i = 0; i < kBatch; ++i) {
      const auto* const place = static_cast<const std::byte*>(source.pixels().base) + placed[i] * image_bytes;
      copy_out_async(image_of(first + i), place, image_bytes, stream);
    }
    source.release(stream);
  }
  stream.synchronize();
  for (std::size_t i = 0; i < kBatches * kBatch; ++i) {
    EXPECT_EQ(std::memcmp(image_of(i), data.training(number_of(i)), image_bytes), 0) << "image " << i;
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
