// Sides of a step: what the words mean, and that each is built, replayed in turn and written down.
#include <gtest/gtest.h>

#include "core/backend.h"
#include "core/dependent_launch.h"
#include "tests/train/ranks.h"
#include "tests/train/run.h"
#include "train/comparison.h"

namespace ladder::train::test {
namespace {

TEST(Sides, EachHasItsOwnValues) {
  EXPECT_EQ(sides_of("conv3x3/fprop=v09,promoted,v14"),
            (std::vector<Side>{{.name = "conv3x3/fprop=v09", .use = "conv3x3/fprop=v09"},
                               {.name = "conv3x3/fprop=promoted", .use = ""},
                               {.name = "conv3x3/fprop=v14", .use = "conv3x3/fprop=v14"}}));
  EXPECT_EQ(sides_of("a/b=v01,v02,overlap=on,off,c/d=promoted,v03"),
            (std::vector<Side>{{.name = "a/b=v01,overlap=on,c/d=promoted", .use = "a/b=v01"},
                               {.name = "a/b=v02,overlap=off,c/d=v03", .use = "a/b=v02,c/d=v03", .overlap = false}}));
}

TEST(Sides, SwitchesHaveTheirWords) {
  EXPECT_EQ(sides_of("branches=on,off,batches=off,on,early=off,off"),
            (std::vector<Side>{{.name = "branches=on,batches=off,early=off", .early = false, .batches = false},
                               {.name = "branches=off,batches=on,early=off", .early = false, .branches = false}}));
}

TEST(Sides, RanksHaveSettingsOfTheirOwn) {
  EXPECT_EQ(sides_of("ranks=alone,all,reduce=fp32,bf16,sums=beside,after,buckets=1,64"),
            (std::vector<Side>{{.name = "ranks=alone,reduce=fp32,sums=beside,buckets=1",
                                .alone = true,
                                .sums_beside = true,
                                .buckets = 1,
                                .reduce = Dtype::f32},
                               {.name = "ranks=all,reduce=bf16,sums=after,buckets=64",
                                .sums_beside = false,
                                .buckets = 64,
                                .reduce = Dtype::bf16}}));
}

TEST(Sides, WhatComparesNothingIsRefused) {
  for (const auto& [text, says] : {std::pair{"conv3x3/fprop", "<layer>/<pass>=<version>,<version>"},
                                   {"", "<layer>/<pass>=<version>,<version>"},
                                   {"a/b=v01,,v02", "<layer>/<pass>=<version>,<version>"},
                                   {"a/b=v01", "a/b has one value"},
                                   {"a/b=v01,v02,c/d=v01", "c/d has one value"},
                                   {"a/b=v01,v02,c/d=v01,v02,v03", "as many values as the first"},
                                   {"a/b=v01,v02,a/b=v03,v04", "a/b is there twice"},
                                   {"overlap=on,maybe", "overlap is on or off, not 'maybe'"},
                                   {"reduce=fp32,fp16", "reduce is fp32 or bf16, not 'fp16'"},
                                   {"ranks=all,one", "ranks is all or alone, not 'one'"},
                                   {"sums=beside,on", "sums is beside or after, not 'on'"},
                                   {"buckets=1,0", "buckets is a number from 1 to 64, not '0'"},
                                   {"buckets=1,65", "buckets is a number from 1 to 64, not '65'"},
                                   {"buckets=1,4x", "buckets is a number from 1 to 64, not '4x'"}}) {
    const std::string message = message_of<UsageError>([&, text = text] { sides_of(text); });
    EXPECT_TRUE(has(message, says)) << message;
    EXPECT_TRUE(has(message, "--compare '")) << message;
  }
}

class Comparison : public Training {
 protected:
  static Json record_of(const std::string& text) {
    const fs::path file = folder() / "compared.json";
    Ranks one;
    EXPECT_EQ(compare(small_config(), options("none"), text, 1, file, one), 0);
    return Json::parse(contents(file));
  }
};

TEST_F(Comparison, SidesRunTheirVersionsOnTheSameWeights) {
  const Json record = record_of("conv3x3/fprop=v01,promoted");
  EXPECT_EQ(record.at("schema"), "ladder.step-comparison/1");
  ASSERT_EQ(record.at("sides").size(), 2u);
  const Json& naive = record.at("sides")[0];
  const Json& promoted = record.at("sides")[1];
  for (const Json& version : naive.at("versions")) EXPECT_EQ(version.at("version"), "v01_naive");
  EXPECT_NE(promoted.at("versions"), naive.at("versions"));
  for (const Json& side : record.at("sides")) {
    ASSERT_EQ(side.at("seconds").size(), 2u);  // there and back
    for (const double seconds : side.at("seconds")) EXPECT_GT(seconds, 0);
    EXPECT_EQ(side.at("losses")[0], side.at("losses")[1]);  // nothing has trained
  }
  EXPECT_NEAR(naive.at("losses")[0], promoted.at("losses")[0].get<double>(), 1e-2);
}

TEST_F(Comparison, SidesHaveGraphsOfTheirOwn) {
  const Json record = record_of("groupnorm/forward=v01,v04,branches=off,on");
  const Json& sides = record.at("sides");
  // v04 splits groups over blocks, and adds up in a second kernel.
  EXPECT_LT(sides[0].at("graph_nodes").get<int>(), sides[1].at("graph_nodes").get<int>());
  EXPECT_NEAR(sides[0].at("losses")[0], sides[1].at("losses")[0].get<double>(), 1e-3);
}

TEST_F(Comparison, TheSwitchIsBackAfterwards) {
  const Json record = record_of("overlap=off,on");
  EXPECT_EQ(record.at("sides")[0].at("overlap"), false);
  EXPECT_EQ(record.at("sides")[1].at("overlap"), true);
  EXPECT_TRUE(launches_overlap());
}

TEST_F(Comparison, SettingsOfRanksNeedSeveral) {
  Ranks one;
  const std::string message = message_of<UsageError>(
      [&] { compare(small_config(), options("none"), "reduce=fp32,bf16", 1, folder() / "no.json", one); });
  EXPECT_TRUE(has(message, "are of several ranks: --gpus")) << message;
}

// Ranks alone have the losses of their parts, whose mean is the loss of all. The emulator has no marks, so that times of
// sums are 0 there.
TEST_F(Comparison, RanksStepAloneAndTogether) {
  if (backend::kind() == backend::Kind::gpu) GTEST_SKIP() << "forks after CUDA has begun";
  const fs::path file = folder() / "ranks.json";
  const int port = free_ports();
  Processes processes(120);
  for (int rank = 0; rank < 2; ++rank) {
    processes.start([=] {
      Ranks ranks(environment_of(rank_variables(rank, 2, port)), {.collectives_on_host = true}, "flags");
      const std::string text = "ranks=alone,all,all,sums=beside,beside,after,reduce=fp32,fp32,bf16,buckets=2,2,1";
      return fmt::format("{}", compare(small_config(), options("none"), text, 2, file, ranks));
    });
  }
  ASSERT_EQ(processes.said(0), "0");
  ASSERT_EQ(processes.said(1), "0");
  const Json record = Json::parse(contents(file));
  EXPECT_EQ(record.at("ranks"), 2);
  const Json& sides = record.at("sides");
  const nn::Parameters parameters = small_parameters();
  for (const Json& side : sides) {
    ASSERT_EQ(side.at("rank_seconds").size(), 2u);
    for (const Json& seconds : side.at("rank_seconds")) EXPECT_EQ(seconds.size(), 4u);
    EXPECT_TRUE(side.at("seconds") == side.at("rank_seconds")[0] || side.at("seconds") == side.at("rank_seconds")[1]);
    EXPECT_NEAR(side.at("losses")[0], sides[0].at("losses")[0].get<double>(), 1e-3);
    EXPECT_EQ(side.at("losses")[0], side.at("losses")[1]);
  }
  EXPECT_FALSE(sides[0].contains("sum_times"));
  for (const int side : {1, 2}) {
    const Json& times = sides[side].at("sum_times");
    ASSERT_EQ(times.at("sums").size(), side == 1 ? 4u : 3u);  // two more than those of matrices
    std::size_t bytes = 0;
    for (const Json& sum : times.at("sums")) bytes += sum.at("bytes").get<std::size_t>();
    const std::size_t matrices = parameters.matrices_end(), all = parameters.size();
    EXPECT_EQ(bytes, side == 1 ? 4 * all : 2 * matrices + 4 * (all - matrices));
    EXPECT_EQ(times.at("sums")[0].at("dtype"), side == 1 ? "fp32" : "bf16");
  }
}

TEST_F(Comparison, AVersionThatRunsNothingIsNamed) {
  const auto refusal = [](const std::string& text) {
    Ranks one;
    return message_of<Failure>([&] { compare(small_config(), options("none"), text, 1, folder() / "no.json", one); });
  };
  EXPECT_TRUE(has(refusal("conv3x3/fprop=promoted,v10"), "conv3x3/fprop v10_winograd runs none of the step's"));
  EXPECT_TRUE(has(refusal("diffusion/ddim_step=v01,promoted"), "the step has no operation of diffusion/ddim_step"));
  EXPECT_FALSE(fs::exists(folder() / "no.json"));
}

}  // namespace
}  // namespace ladder::train::test
