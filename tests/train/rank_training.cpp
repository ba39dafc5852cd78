// A training by several ranks, from beginning to end: the curve, checkpoints and samples of one rank, and one end for all.
#include <csignal>

#include <cmath>
#include <functional>

#include "tests/train/ranks.h"
#include "tests/train/run.h"
#include "tests/train/tiny.h"
#include "train/ranks.h"

namespace ladder::train::test {
namespace {

constexpr int kLimit = 300;  // seconds

TrainingConfig config_of_four(Dtype dtype = Dtype::f32) {
  TrainingConfig config = small_config();
  config.batch = 4;
  config.dtype = dtype;
  return config;
}

class RankTraining : public Training {
 protected:
  using Change = std::function<void(Ranks&, TrainingConfig&)>;

  // Trains in `size` processes, and returns what each says: "done", "interrupted", or an error. `change` runs in each.
  static std::vector<std::string> train_by(int size, const TrainingConfig& config, const TrainingOptions& options,
                                           const Change& change = {}) {
    const int port = free_ports();
    Processes processes(kLimit);
    for (int rank = 0; rank < size; ++rank) {
      processes.start([=] {
        Ranks ranks(environment_of(rank_variables(rank, size, port)), {.collectives_on_host = true}, "flags");
        TrainingConfig of_rank = config;
        if (change) change(ranks, of_rank);
        return std::string(train(of_rank, options, ranks) ? "done" : "interrupted");
      });
    }
    std::vector<std::string> said;
    for (int rank = 0; rank < size; ++rank) said.push_back(processes.said(rank));
    return said;
  }

  static std::vector<std::string> all(int size, const char* word) { return std::vector<std::string>(size, word); }

  // Returns the training by one rank, four steps.
  static fs::path trained_by_one(Dtype dtype) {
    TrainingOptions o = watched_options(fmt::format("one, {}", name(dtype)));
    o.sample_every = dtype == Dtype::f32 ? 4 : 0;
    if (!fs::exists(o.out)) train(config_of_four(dtype), o);
    return o.out;
  }

  static TrainingOptions watched_options(const std::string& name) {
    TrainingOptions o = options(name);
    o.held_out_every = 4;
    return o;
  }

  static double last_held_out(const fs::path& run) {
    double loss = std::nan("");
    for (const Json& line : log_of(run)) loss = line.value("held_out_loss", loss);
    return loss;
  }

  // Expects losses, held-out losses and weights of a training as it had them with one rank.
  static void expect_near(const fs::path& run, const fs::path& one, double bound, double weights_bound) {
    const std::vector<double> found = losses_of(run), expected = losses_of(one);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], bound) << run << i;
    EXPECT_NEAR(last_held_out(run), last_held_out(one), bound) << run;
    // Compare all weights at once: Adam moves one whose gradient is rounding noise as far as any other.
    const auto flat = [](const fs::path& of) {
      std::vector<float> all;
      for (const auto& [name, values] : weights_of(of, 4)) all.insert(all.end(), values.begin(), values.end());
      return all;
    };
    EXPECT_LT(distance(flat(run), flat(one)), weights_bound) << run;
  }
};

TEST_F(RankTraining, HasTheCurveOfOne) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    const bool rounds = dtype == Dtype::bf16;
    for (int size : {2, 4}) {
      TrainingOptions o = watched_options(fmt::format("{} ranks, {}", size, name(dtype)));
      const bool samples = !rounds && size == 2;
      o.sample_every = samples ? 4 : 0;
      ASSERT_EQ(train_by(size, config_of_four(dtype), o), all(size, "done"));
      expect_near(o.out, trained_by_one(dtype), rounds ? 1e-2 : 1e-5, rounds ? 0.1 : 2e-2);
      EXPECT_EQ(log_of(o.out)[1].at("ranks"), size);
      EXPECT_GE(log_of(o.out)[1].at("slowest_ms"), log_of(o.out)[1].at("ms_a_step"));
      const auto picture = [](const fs::path& run) { return contents(run / "samples" / "step_00000004.png"); };
      EXPECT_TRUE(!samples || picture(o.out) == picture(trained_by_one(dtype)));
    }
  }
}

// Streamed images, two runs of one world, and a run that was interrupted and went on have the same bits.
TEST_F(RankTraining, HasTheSameBitsInEveryRun) {
  TrainingOptions o = options("two");
  ASSERT_EQ(train_by(2, config_of_four(), o), all(2, "done"));
  TrainingOptions streamed = options("two, streamed");
  streamed.device_data_bytes = 0;
  ASSERT_EQ(train_by(2, config_of_four(), streamed), all(2, "done"));
  expect_same_step(o.out, streamed.out, 4);
  TrainingOptions again = options("two, again");
  again.stop_at = 2;
  ASSERT_EQ(train_by(2, config_of_four(), again), all(2, "done"));
  again.stop_at = 0;
  again.resume = true;
  ASSERT_EQ(train_by(2, config_of_four(), again), all(2, "done"));
  expect_same_step(o.out, again.out, 4);
}

TEST_F(RankTraining, GoesOnWithAnotherNumberOfRanks) {
  TrainingOptions o = watched_options("2, 1, 4");
  o.checkpoint_every = 1;
  o.stop_at = 1;
  ASSERT_EQ(train_by(2, config_of_four(), o), all(2, "done"));
  o.resume = true;
  o.stop_at = 3;
  const std::string text = printed([&] { train(config_of_four(), o); });
  EXPECT_TRUE(has(text, "note: the checkpoint is of 2 ranks, this is of 1"));
  o.stop_at = 0;
  ASSERT_EQ(train_by(4, config_of_four(), o), all(4, "done"));
  expect_near(o.out, trained_by_one(Dtype::f32), 1e-5, 2e-2);
}

// One rank gets the signal, before the first step; all stop after one step and the results' delay, with one checkpoint.
TEST_F(RankTraining, StopsTogether) {
  TrainingOptions o = options("stopped");
  o.checkpoint_every = 0;
  TrainingConfig config = config_of_four();
  config.steps = 1000;
  EXPECT_EQ(train_by(2, config, o,
                     [&](Ranks& ranks, TrainingConfig&) {
                       if (ranks.rank() == 0) return;
                       std::thread([log = o.out / "log.jsonl"] {
                         while (!fs::exists(log) || fs::file_size(log) == 0) std::this_thread::yield();
                         kill(getpid(), SIGTERM);
                       }).detach();
                     }),
            all(2, "interrupted"));
  EXPECT_TRUE(has_checkpoint(o.out));
}

TEST_F(RankTraining, RefusesABatchThatCannotBeCut) {
  TrainingConfig config = config_of_four();
  config.micro_batches = 2;
  for (const std::string& said : train_by(3, config, options("uncut"))) {
    EXPECT_TRUE(has(said, "a batch of 4 cannot be cut into 3 ranks of 2 micro-batches: --batch 6 or 12")) << said;
  }
  TrainingOptions o = options("rounded parts");
  o.reduce = "bf16";
  for (const std::string& said : train_by(2, config, o)) EXPECT_TRUE(has(said, "--reduce bf16 sums gradients")) << said;
}

// A rank whose weights are not the others' ends the training before a checkpoint has them.
TEST_F(RankTraining, ARankThatDriftsEndsIt) {
  TrainingOptions o = options("drifted");
  o.checkpoint_every = 2;
  for (const std::string& said : train_by(2, config_of_four(), o, [](Ranks&ranks, TrainingConfig&config) {
         if (ranks.rank() == 1) config.learning_rate *= 2;
       })) {
    EXPECT_TRUE(has(said, "rank 1 has other weights than rank 0 after step 2: no checkpoint was written")) << said;
  }
  EXPECT_FALSE(has_checkpoint(o.out));
}

}  // namespace
}  // namespace ladder::train::test
