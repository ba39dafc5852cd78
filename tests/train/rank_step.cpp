// A training step of several ranks, which are processes: the sums of one rank, whatever the number of ranks, buckets
// and streams.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/train/ranks.h"
#include "tests/train/tiny.h"
#include "train/rank_sum.h"
#include "train/ranks.h"

namespace ladder::train::test {
namespace {

constexpr int kBatch = 4;
const nn::Unet2dConfig kModel = {
    .image_size = 8, .channels = 32, .channel_mult = {1}, .res_blocks = 1, .attention_resolutions = {}};
constexpr int kLimit = 120;  // seconds

struct Choice {
  bool graph = true;
  bool overlap = true;
  int buckets = 4;
  int micro_batches = 1;  // of a rank
  bool poisoned = false;
  int steps = 2;
  const char* schedule = "asc";
  Dtype reduce = Dtype::f32;
};

struct Found {
  std::vector<float> losses, gradients, values, noised, noise;
  float norm = 0;

  bool operator==(const Found&) const = default;
};

std::string packed(const Found& found) {
  std::string bytes(reinterpret_cast<const char*>(&found.norm), sizeof(float));
  for (const auto* values : {&found.losses, &found.gradients, &found.values, &found.noised, &found.noise}) {
    const std::size_t count = values->size();
    bytes.append(reinterpret_cast<const char*>(&count), sizeof(count));
    bytes.append(reinterpret_cast<const char*>(values->data()), count * sizeof(float));
  }
  return bytes;
}

Found unpacked(const std::string& bytes) {
  Found found;
  if (bytes.size() < sizeof(float)) throw std::runtime_error("the process said nothing");
  const char* next = bytes.data();
  const auto take = [&](void* to, std::size_t size) {
    if (next + size > bytes.data() + bytes.size()) throw std::runtime_error("the process said: " + bytes);
    std::memcpy(to, next, size);
    next += size;
  };
  take(&found.norm, sizeof(float));
  for (auto* values : {&found.losses, &found.gradients, &found.values, &found.noised, &found.noise}) {
    std::size_t count = 0;
    take(&count, sizeof(count));
    if (count > bytes.size()) throw std::runtime_error("the process said: " + bytes);
    values->resize(count);
    take(values->data(), count * sizeof(float));
  }
  return found;
}

// Runs steps of a batch of kBatch images as one of the ranks, and returns what it has afterwards.
Found run_steps(Ranks& ranks, Dtype dtype, const Choice& choice) {
  if (backend::kind() == backend::Kind::emulator) backend::set_schedule(choice.schedule);
  ranks.connect();
  const int batch = kBatch / ranks.size();
  Tiny net(dtype, choice.micro_batches, choice.graph, {}, batch,
           {.communicator = ranks.communicator(),
            .overlap = choice.overlap,
            .buckets = choice.buckets,
            .reduce = choice.reduce},
           kModel);
  StepResults results;
  for (int number = 1; number <= choice.steps; ++number) {
    EpsilonInputs in{.seed = 3, .offset = number};
    for (int i = 0; i < kBatch; ++i) {
      in.index.push_back(i % 2 == 0 ? i : -1 - i);
      in.t.push_back((97 * number + 251 * i) % 1000);
    }
    in.index = {in.index.begin() + ranks.rank() * batch, in.index.begin() + (ranks.rank() + 1) * batch};
    in = rows_of(in, ranks.rank() * batch, batch);
    const StepInputs inputs{.batch = in.bytes(), .hyper = hyper(net.config, number)};
    if (choice.poisoned) {
      results = net.step->run_poisoned(inputs);
    } else {
      net.step->submit(inputs);
      results = *net.step->collect();
    }
  }
  return {.losses = results.losses,
          .gradients = net.step->gradients(),
          .values = net.state.get(net.state.values),
          .noised = net.objective.noised(),
          .noise = net.objective.noise(),
          .norm = results.norm};
}

std::vector<Found> found_by_ranks(int size, Dtype dtype, const Choice& choice = {}) {
  if (size == 1) {
    Ranks one;
    return {run_steps(one, dtype, choice)};
  }
  const int port = free_ports();
  Processes processes(kLimit);
  for (int rank = 0; rank < size; ++rank) {
    processes.start([=] {
      Ranks ranks(environment_of(rank_variables(rank, size, port)), {.collectives_on_host = true}, "flags");
      return packed(run_steps(ranks, dtype, choice));
    });
  }
  std::vector<Found> found;
  found.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) found.push_back(unpacked(processes.said(rank)));
  return found;
}

class RankStep : public ::testing::TestWithParam<Dtype> {
 protected:
  void SetUp() override {
    if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
  }
};

double norm_of(const std::vector<float>& values) { return distance(values, std::vector<float>(values.size(), 0.0f)); }

// Returns the largest normalised L2 distance of a tensor's gradients, except of tensors whose gradient is rounding noise:
// a group norm of one channel a group takes away the bias in front of it.
double largest_distance(const std::vector<float>& a, const std::vector<float>& b) {
  const nn::Parameters parameters(nn::Unet2d(kModel).declare());
  double largest = 0;
  for (const nn::Parameter& p : parameters.all()) {
    const auto tensor = [&](const std::vector<float>& all) {
      return std::vector<float>(all.begin() + p.begin, all.begin() + p.begin + p.elements());
    };
    if (norm_of(tensor(b)) > 1e-6 * norm_of(b)) largest = std::max(largest, distance(tensor(a), tensor(b)));
  }
  return largest;
}

TEST(GradientBuckets, CoverAllGradientsOnce) {
  for (const nn::Unet2dConfig& model : {kModel, nn::Unet2dConfig()}) {
    const nn::Parameters parameters(nn::Unet2d(model).declare());
    for (const int num_buckets : {1, 2, 3, 7, 64}) {
      std::vector<nn::GradientRange> ranges;
      for (const GradientBucket& bucket : gradient_buckets(parameters, num_buckets)) {
        ranges.insert(ranges.end(), bucket.begin(), bucket.end());
      }
      std::ranges::sort(ranges, {}, &nn::GradientRange::begin);
      std::int64_t end = 0;
      for (const nn::GradientRange& range : ranges) {
        EXPECT_EQ(range.begin, end) << num_buckets;
        EXPECT_GT(range.end, range.begin) << num_buckets;
        EXPECT_TRUE(range.end <= parameters.matrices_end() || range.begin >= parameters.matrices_end()) << num_buckets;
        end = range.end;
      }
      EXPECT_EQ(end, parameters.size());
    }
  }
}

TEST(GradientBuckets, TheLastIsAHundredthAndThoseOfMatricesAreEqual) {
  const nn::Parameters parameters(nn::Unet2d(nn::Unet2dConfig()).declare());
  const auto size_of = [](const GradientBucket& bucket) {
    std::int64_t size = 0;
    for (const nn::GradientRange& range : bucket) size += range.end - range.begin;
    return static_cast<double>(size);
  };
  const std::vector<GradientBucket> buckets = gradient_buckets(parameters, 3);
  ASSERT_EQ(buckets.size(), 5u);
  EXPECT_NEAR(size_of(buckets[0]), size_of(buckets[2]), 1e-4 * size_of(buckets[0]));
  EXPECT_LT(size_of(buckets[4]), static_cast<double>(parameters.size()) / 100);
}

TEST_P(RankStep, RanksHaveTheSumsOfOne) {
  const bool rounds = GetParam() == Dtype::bf16;
  const Found one = found_by_ranks(1, GetParam(), {.steps = 1})[0];
  for (int size : {2, 4}) {
    const std::vector<Found> found = found_by_ranks(size, GetParam(), {.steps = 1});
    std::vector<float> noised, noise;
    for (const Found& rank : found) {
      noised.insert(noised.end(), rank.noised.begin(), rank.noised.end());
      noise.insert(noise.end(), rank.noise.begin(), rank.noise.end());
      EXPECT_EQ(rank.losses, found[0].losses);
      EXPECT_EQ(rank.gradients, found[0].gradients);
      EXPECT_EQ(rank.values, found[0].values);
      EXPECT_EQ(rank.norm, found[0].norm);
    }
    EXPECT_EQ(noised, one.noised) << size;  // an image has its bits, whichever rank it is on
    EXPECT_EQ(noise, one.noise) << size;
    EXPECT_EQ(found[0].losses.size(), one.losses.size());
    EXPECT_LT(distance(found[0].losses, one.losses), rounds ? 1e-2 : 1e-5) << size;
    EXPECT_LT(largest_distance(found[0].gradients, one.gradients), rounds ? 0.1 : 3e-5) << size;
    EXPECT_LT(distance(found[0].gradients, one.gradients), rounds ? 2e-2 : 3e-5) << size;
    EXPECT_NEAR(found[0].norm, one.norm, (rounds ? 2e-2 : 1e-5) * one.norm);
  }
}

TEST_P(RankStep, BucketsOverlapAndGraphChangeNoBit) {
  const Found expected = found_by_ranks(2, GetParam(), {.graph = false, .overlap = false, .buckets = 1})[1];
  for (const Choice& choice : {Choice{.graph = false, .buckets = 1}, Choice{.buckets = 7}, Choice{.buckets = 64},
                               Choice{.overlap = false, .buckets = 3}, Choice{.graph = false, .poisoned = true},
                               Choice{.schedule = "late"}, Choice{.graph = false, .schedule = "late"}}) {
    EXPECT_EQ(found_by_ranks(2, GetParam(), choice)[1], expected)
        << choice.graph << choice.overlap << choice.buckets << choice.poisoned << choice.schedule;
  }
}

TEST_P(RankStep, MicroBatchesOfRanksAddUp) {
  const bool rounds = GetParam() == Dtype::bf16;
  const Found one = found_by_ranks(1, GetParam())[0];
  const Found parts = found_by_ranks(2, GetParam(), {.micro_batches = 2})[0];
  EXPECT_LT(distance(parts.losses, one.losses), rounds ? 1e-2 : 1e-5);
  EXPECT_LT(distance(parts.gradients, one.gradients), rounds ? 2e-2 : 1e-4);
}

// Two ranks leave the mean where layers write gradients; three accumulate the sum.
TEST(RankStepSums, OfRoundedGradientsAreFurtherByOneRounding) {
  if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
  for (const int size : {2, 3}) {
    const Found exact = found_by_ranks(size, Dtype::bf16, {.steps = 1})[0];
    const std::vector<Found> rounded = found_by_ranks(size, Dtype::bf16, {.steps = 1, .reduce = Dtype::bf16});
    EXPECT_EQ(rounded[0].gradients, rounded[1].gradients) << size;
    const double found = distance(rounded[0].gradients, exact.gradients);
    EXPECT_GT(found, 1e-5) << size;
    EXPECT_LT(found, 1.0 / 512) << size;  // half a unit in the last place of bf16's 8 bits, at most
    EXPECT_NEAR(rounded[0].norm, exact.norm, exact.norm / 512) << size;
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, RankStep, ::testing::Values(Dtype::f32, Dtype::bf16),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace ladder::train::test
