// Sides of a step: what the words mean, and that each is built, replayed in turn and written down.
#include <gtest/gtest.h>

#include "core/dependent_launch.h"
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

TEST(Sides, WhatComparesNothingIsRefused) {
  for (const auto& [text, says] : {std::pair{"conv3x3/fprop", "<layer>/<pass>=<version>,<version>"},
                                   {"", "<layer>/<pass>=<version>,<version>"},
                                   {"a/b=v01,,v02", "<layer>/<pass>=<version>,<version>"},
                                   {"a/b=v01", "a/b has one value"},
                                   {"a/b=v01,v02,c/d=v01", "c/d has one value"},
                                   {"a/b=v01,v02,c/d=v01,v02,v03", "as many values as the first"},
                                   {"a/b=v01,v02,a/b=v03,v04", "a/b is there twice"},
                                   {"overlap=on,maybe", "overlap is on or off, not 'maybe'"}}) {
    const std::string message = message_of<UsageError>([&, text = text] { sides_of(text); });
    EXPECT_TRUE(has(message, says)) << message;
    EXPECT_TRUE(has(message, "--compare '")) << message;
  }
}

class Comparison : public Training {
 protected:
  static Json record_of(const std::string& text) {
    const fs::path file = folder() / "compared.json";
    EXPECT_EQ(compare(small_config(), options("none"), text, 1, file), 0);
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

TEST_F(Comparison, AVersionThatRunsNothingIsNamed) {
  const auto refusal = [](const std::string& text) {
    return message_of<Failure>([&] { compare(small_config(), options("none"), text, 1, folder() / "no.json"); });
  };
  EXPECT_TRUE(has(refusal("conv3x3/fprop=promoted,v10"), "conv3x3/fprop v10_winograd runs none of the step's"));
  EXPECT_TRUE(has(refusal("diffusion/ddim_step=v01,promoted"), "the step has no operation of diffusion/ddim_step"));
  EXPECT_FALSE(fs::exists(folder() / "no.json"));
}

}  // namespace
}  // namespace ladder::train::test
