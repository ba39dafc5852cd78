// Inputs and results of training steps, against the configuration and formulas of this file: images, flips, time steps,
// noise, learning rate, AdamW, clipping, moving average, losses in the log.
#include <cmath>
#include <numbers>
#include <numeric>

#include "tests/train/run.h"
#include "train/dataset.h"
#include "train/divergence.h"
#include "train/image_source.h"
#include "train/step.h"

namespace ladder::train::test {
namespace {

// Returns a configuration in which every number differs from its default and from the others of its kind.
TrainingConfig given_config() {
  TrainingConfig config = small_config();
  config.dtype = Dtype::f32;
  config.steps = 5;
  config.warm_up = 2;
  config.decay = Decay::cosine;
  config.learning_rate = 2e-3;
  config.beta1 = 0.8;
  config.beta2 = 0.95;
  config.eps = 1e-3;
  config.weight_decay = 0.3;
  config.ema_rate = 0.7;
  config.betas = diffusion::Betas::cosine;
  config.seed = 9;
  return config;
}

// Noise (Philox) and images have kernels and references of their own. These functions select a step's noise, images and
// times.
std::uint64_t mixed(std::uint64_t x) {  // splitmix64, from its author's page
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

std::vector<std::int32_t> times_of(const TrainingConfig& config, std::int64_t step) {
  std::vector<std::int32_t> times;
  for (int i = 0; i < config.batch; ++i) {
    const std::uint64_t bits = mixed(mixed(mixed(config.seed ^ 0x74696d65) + step) + i);
    times.push_back(static_cast<std::int32_t>(static_cast<double>(bits >> 32) / 4294967296.0 * 1000));
  }
  return times;
}

// Tensors of a checkpoint, concatenated.
struct Saved {
  std::vector<float> weights, average, first, second;
};

Saved saved(const fs::path& run, int step) {
  Saved all;
  for (const CheckpointTensor& tensor :
       read_checkpoint(run / "checkpoints" / ("step_0000000" + std::to_string(step))).tensors) {
    const auto add = [](std::vector<float>& to, const std::vector<float>& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    add(all.weights, tensor.weight);
    add(all.average, tensor.ema);
    add(all.first, tensor.m);
    add(all.second, tensor.v);
  }
  return all;
}

// A single step with the weights of a file, for its losses and gradients.
class Alone {
 public:
  Alone(const TrainingConfig& config, const fs::path& data_file)
      : config_(config),
        data_(data_file),
        model_(config.model),
        parameters_(model_.declare()),
        state_(parameters_, config.dtype),
        source_(data_, config.batch, std::size_t{1} << 20),
        promotions_(Promotions::for_device(backend::device().slug)),
        objective_({.dtype = config.dtype, .batch = config.batch, .betas = config.betas, .images = source_.images()},
                   model_, source_.pixels()),
        step_({.dtype = config.dtype, .clip = false, .graph = false}, objective_, parameters_, state_, promotions_) {}

  // Returns the results of step `number` with the weights in `file`. The step takes images (number - 1) * batch ..
  // number * batch - 1 of the shuffled order.
  StepResults run(const fs::path& file, std::int64_t number) {
    state_.set_values(read_weights(file, parameters_));
    Order order(config_.seed, data_.num_training(), config_.flip);
    EpsilonInputs inputs{
        .t = times_of(config_, number), .seed = static_cast<std::int64_t>(config_.seed), .offset = number};
    for (std::int64_t p = (number - 1) * config_.batch; p < number * config_.batch; ++p) {
      const auto image = static_cast<std::int32_t>(order.image(p));
      inputs.index.push_back(order.flipped(p) ? -1 - image : image);
    }
    step_.submit({.batch = inputs.bytes(), .hyper = {.one_minus_beta1 = 1, .one_minus_beta2 = 1, .eps = 1, .step = 1}});
    return *step_.collect();
  }

  // Returns the gradients in a checkpoint's order.
  std::vector<float> gradients() const {
    const std::vector<float> flat = step_.gradients();
    std::vector<float> all;
    for (const nn::Parameter& p : parameters_.all()) {
      const std::vector<float> values = file_values(p, flat);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

 private:
  TrainingConfig config_;
  Dataset data_;
  nn::Unet2d model_;
  nn::Parameters parameters_;
  nn::State state_;
  ImageSource source_;
  Promotions promotions_;
  EpsilonObjective objective_;
  Step step_;
};

double norm_of(const std::vector<float>& values) {
  return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0, std::plus<>(),
                                      [](double a, double b) { return a * b; }));
}

// `terms`: for each expected sum, the sum of its terms' magnitudes.
void expect_near(const std::vector<float>& found, const std::vector<double>& expected, const std::vector<double>& terms,
                 double ulps, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size());
  double worst = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    worst = std::max(worst, std::abs(found[i] - expected[i]) / (1e-3 + std::abs(terms[i])));
  }
  EXPECT_LT(worst, ulps * 0x1p-24) << what;
}

class Given : public Training {
 protected:
  // Returns a checkpoint without zero weights: the initialisation's zeros in last layers stop all gradients.
  static fs::path start() {
    static const fs::path file = [] {
      const nn::Parameters parameters = small_parameters();
      std::vector<float> flat = parameters.initial(3);
      for (std::size_t i = 0; i < flat.size(); ++i) {
        if (flat[i] == 0) flat[i] = 0.03f * static_cast<float>(i * 2654435761u % 201) / 100.0f - 0.03f;
      }
      Checkpoint checkpoint{{{"step", "0"}}, {}};
      for (const nn::Parameter& p : parameters.all()) {
        const std::vector<float> values = file_values(p, flat), zeros(values.size(), 0.0f);
        checkpoint.tensors.push_back(
            {.name = p.name, .shape = p.shape, .weight = values, .ema = values, .m = zeros, .v = zeros});
      }
      return write_checkpoint(folder() / "start", checkpoint);
    }();
    return file;
  }

  // Train with a checkpoint after every step, and compare each with the previous checkpoint, a gradient and AdamW's
  // formula. Returns the norm of each gradient.
  static std::vector<double> train_and_compare(const std::string& name, const TrainingConfig& config) {
    TrainingOptions o = options(name);
    o.initial_weights = start() / kFiles[0];
    o.checkpoint_every = 1;
    train(config, o);
    const std::vector<Json> log = log_of(o.out);
    EXPECT_EQ(log.size(), static_cast<std::size_t>(config.steps));
    Alone alone(config, data());
    Saved before = saved(folder() / "start", 0);
    std::vector<double> norms;
    for (int k = 1; k <= config.steps; ++k) {
      const fs::path weights =
          k == 1 ? start() / kFiles[0] : o.out / "checkpoints" / ("step_0000000" + std::to_string(k - 1)) / kFiles[0];
      const StepResults results = alone.run(weights, k);
      const std::vector<float> g = alone.gradients();
      norms.push_back(norm_of(g));
      const double scale = config.clip > 0 ? std::min(1.0, config.clip / (norms.back() + 1e-6)) : 1;
      // Warm up over two steps, then half a cosine down to zero after the last step.
      const double lr =
          config.learning_rate * (k <= 2 ? k / 2.0 : 0.5 * (1 + std::cos(std::numbers::pi * (k - 3) / 3.0)));
      const double rate = config.ema_ramp ? std::min(config.ema_rate, std::exp2(-20.0 / k)) : config.ema_rate;
      const Saved now = saved(o.out, k);
      std::vector<double> p, m, m_terms, v, ema;
      for (std::size_t i = 0; i < g.size(); ++i) {
        const double kept = config.beta1 * before.first[i], added = (1 - config.beta1) * scale * g[i];
        m.push_back(kept + added);
        m_terms.push_back(std::abs(kept) + std::abs(added));
        v.push_back(config.beta2 * before.second[i] + (1 - config.beta2) * std::pow(scale * g[i], 2));
        const double m_hat = m[i] / (1 - std::pow(config.beta1, k)), v_hat = v[i] / (1 - std::pow(config.beta2, k));
        p.push_back(before.weights[i] - lr * config.weight_decay * before.weights[i] -
                    lr * m_hat / (std::sqrt(v_hat) + config.eps));
        ema.push_back(rate * before.average[i] + (1 - rate) * p[i]);
      }
      const std::string at = name + ", step " + std::to_string(k);
      expect_near(now.first, m, m_terms, 16, at + ": first moments");
      expect_near(now.second, v, v, 16, at + ": second moments");
      expect_near(now.weights, p, p, 16, at + ": weights");
      expect_near(now.average, ema, ema, 16, at + ": average");
      before = now;

      const Json& line = log[k - 1];
      EXPECT_EQ(line.at("step"), k);
      EXPECT_EQ(line.at("images"), k * config.batch);
      EXPECT_NEAR(line.at("learning_rate").get<double>(), lr, 1e-9) << at;
      EXPECT_NEAR(line.at("ema_rate").get<double>(), rate, 1e-9) << at;
      EXPECT_NEAR(line.at("gradient_norm").get<double>(), norms.back(), 1e-5 * norms.back()) << at;
      EXPECT_NEAR(line.at("loss").get<double>(), (results.losses[0] + results.losses[1]) / 2.0, 1e-6) << at;
      double sum[4] = {}, count[4] = {};
      for (int i = 0; i < config.batch; ++i) {
        const int quarter = times_of(config, k)[i] / 250;
        sum[quarter] += results.losses[i];
        ++count[quarter];
      }
      for (int q = 0; q < 4; ++q) {
        const Json& found = line.at("loss_by_quartile_of_t")[q];
        EXPECT_NEAR(found.is_null() ? -1 : found.get<double>(), count[q] == 0 ? -1 : sum[q] / count[q], 1e-6) << at;
      }
    }
    return norms;
  }
};

// Run five steps of two images on five images, into the second and third epoch.
TEST_F(Given, EveryStepIsItsFormula) {
  const std::vector<double> norms = train_and_compare("unclipped", [] {
    TrainingConfig config = given_config();
    config.clip = 0;
    return config;
  }());
  // A clipping bound between the norms takes effect at some steps only.
  std::vector<double> sorted = norms;
  std::ranges::sort(sorted);
  TrainingConfig config = given_config();
  config.clip = (sorted[1] + sorted[2]) / 2;
  config.ema_ramp = true;
  ASSERT_GT(sorted[4] / sorted[0], 1.05);
  train_and_compare("clipped", config);
}

TEST_F(Given, ImagesHeldOutAreNeverDrawn) {
  // The same training images with other held-out images: a training that drew a held-out image would differ.
  const fs::path other = folder() / "other held out.ldata";
  put_images(folder() / "longer.ldata", kSide, 9, 3);
  const std::string five = contents(data()), six = contents(folder() / "longer.ldata");
  const std::size_t image_bytes = 3 * kSide * kSide;
  ASSERT_EQ(five.substr(128, 5 * image_bytes), six.substr(128, 5 * image_bytes));
  put_raw_images(other, kSide, 8, 3,
                 six.substr(128, 5 * image_bytes) + six.substr(128 + 6 * image_bytes, 3 * image_bytes));
  ASSERT_NE(contents(other), five);
  TrainingConfig config = given_config();
  for (const std::size_t room : {std::size_t{1} << 20, std::size_t{0}}) {
    TrainingOptions o = options("held out " + std::to_string(room));
    o.device_data_bytes = room;
    train(config, o);
    TrainingOptions p = options("held out, other " + std::to_string(room));
    p.device_data_bytes = room;
    p.data = other;
    train(config, p);
    EXPECT_EQ(weights_of(o.out, 5), weights_of(p.out, 5));
  }
}

StepResults results_of(float loss, float scale = 1) { return {.losses = {loss}, .loss = loss, .scale = scale}; }

TEST(Divergences, AStepBetweenThoseLeftOutBeginsTheCountAnew) {
  Divergence watch("try this", 7);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 19; ++i) EXPECT_FALSE(watch.look_at(results_of(1, 0), 1));
    EXPECT_TRUE(watch.look_at(results_of(1), 1));
  }
  EXPECT_EQ(watch.skipped(), 7 + 3 * 19);
  for (int i = 0; i < 19; ++i) watch.look_at(results_of(1, 0), 1);
  EXPECT_TRUE(has(message_of<Failure>([&] { watch.look_at(results_of(1, 0), 1); }), "20 steps in a row"));
}

TEST(Divergences, AJumpThatStaysEndsItAndASpikeDoesNot) {
  Divergence watch("try this");
  for (int i = 0; i < 100; ++i) watch.look_at(results_of(0.1f), i);
  watch.look_at(results_of(3), 100);
  for (int i = 0; i < 100; ++i) watch.look_at(results_of(0.1f), i);
  const auto jump = [&] {
    for (int i = 0; i < 30; ++i) watch.look_at(results_of(3), 200 + i);
  };
  EXPECT_TRUE(has(message_of<Failure>(jump), "the loss has jumped from 0.1"));
}

}  // namespace
}  // namespace ladder::train::test
