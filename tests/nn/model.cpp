// A model before anything runs: configurations, layers, parameters and their memory layout.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "nn/models/unet2d.h"
#include "tests/files.h"

namespace ladder::nn {
namespace {

using ladder::test::has;
using ladder::test::message_of;

Parameters parameters_of(const Unet2dConfig& config) { return Parameters(Unet2d(config).declare()); }

TEST(ModelConfigs, ListsAreRead) {
  EXPECT_EQ(parse_list("1,2,3,4", "--channel-mult"), (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(parse_list("16", "--attention-resolutions"), std::vector<int>{16});
  EXPECT_EQ(parse_list("", "--attention-resolutions"), std::vector<int>{});
  for (const char* text : {"1,2,", ",1", "1,,2", "1;2", "1, 2", "one", "1.5", "99999999999", ","}) {
    const std::string message = message_of<UsageError>([&] { parse_list(text, "--channel-mult"); });
    EXPECT_TRUE(has(message, fmt::format("--channel-mult is a list of numbers such as 1,2,3, not '{}'", text)));
  }
}

TEST(ModelConfigs, WhatCannotBeBuiltIsRefused) {
  const Unet2dConfig good = unet2d_config("tiny");
  good.check();
  const auto refusal = [&](const auto& change) {
    Unet2dConfig config = good;
    change(config);
    return message_of<UsageError>([&] { config.check(); });
  };
  EXPECT_TRUE(has(refusal([](Unet2dConfig& c) { c.channel_mult = {}; }), "such as 1,2,3,4"));
  EXPECT_TRUE(has(refusal([](Unet2dConfig& c) {
                    c.channel_mult = {1, 0};
                  }),
                  "channel multiplier 0: 1 to 64 are right"));
  EXPECT_TRUE(has(refusal([](Unet2dConfig& c) { c.res_blocks = 0; }), "res-blocks 0: 1 to 1000 are right"));
  EXPECT_TRUE(has(refusal([](Unet2dConfig& c) { c.image_size = 9; }), "9 pixels a side cannot be halved 1 times"));
  EXPECT_TRUE(has(refusal([](Unet2dConfig& c) { c.head_size = 48; }), "32 or 64, not 48"));
  EXPECT_TRUE(has(refusal([](Unet2dConfig& c) { c.channels = 48; }), "level 0 has 48 channels"));
  EXPECT_TRUE(has(refusal([](Unet2dConfig& c) { c.attention_resolutions = {2}; }), "no level has that size"));
  EXPECT_TRUE(has(refusal([](Unet2dConfig& c) { c.attention_resolutions = {64}; }), "at most 32x32"));
  EXPECT_TRUE(has(refusal([](Unet2dConfig& c) { c.image_size = 128; }), "no level has that size"));
  EXPECT_TRUE(has(refusal([](Unet2dConfig& c) {
                    c.image_size = 128;
                    c.attention_resolutions = {};
                  }),
                  "give more levels"));
  EXPECT_TRUE(has(refusal([](Unet2dConfig& c) {
                    c.channels = 32;
                    c.channel_mult = {2, 3};
                    c.head_size = 64;
                  }),
                  "96 channels are no multiple of the head size 64"));
  EXPECT_TRUE(has(message_of<UsageError>([] { unet2d_config("unet"); }), "there are: unet64, tiny"));
}

// The first level's channel multiplier applies to the first convolution too, as in guided-diffusion.
TEST(Architectures, TheFirstConvolutionHasTheFirstLevelsChannels) {
  Unet2dConfig config = unet2d_config("tiny");
  config.channels = 16;
  config.channel_mult = {2, 4};
  const Parameters parameters = parameters_of(config);
  EXPECT_EQ(parameters["input_blocks.0.0.weight"].shape, (std::vector<std::int64_t>{32, 3, 3, 3}));
  EXPECT_EQ(parameters["input_blocks.1.0.in_layers.0.weight"].shape, std::vector<std::int64_t>{32});
  EXPECT_EQ(parameters["time_embed.0.weight"].shape, (std::vector<std::int64_t>{64, 16}));
  EXPECT_EQ(parameters["out.2.weight"].shape, (std::vector<std::int64_t>{3, 32, 3, 3}));
}

TEST(Architectures, EachUpBlockTakesAnOutputOfTheWayDown) {
  for (const char* name : {"unet64", "tiny"}) {
    const Unet2dLayers net{unet2d_config(name)};
    ASSERT_EQ(net.up.size(), net.down.size());
    int channels = net.middle.out();
    for (std::size_t i = 0; i < net.up.size(); ++i) {
      EXPECT_EQ(net.up[i].skip, net.down[net.down.size() - 1 - i].out());
      EXPECT_EQ(net.up[i].layers.front().in, channels + net.up[i].skip);
      channels = net.up[i].out();
    }
  }
}

TEST(ModelParameters, ThoseOfUnet64AreGuidedDiffusions) {
  const Parameters parameters = parameters_of(unet2d_config("unet64"));
  EXPECT_EQ(parameters.count(), 20494211);
  EXPECT_EQ(parameters.all().size(), 326u);
  std::set<std::string> zeroed;
  for (const Parameter& p : parameters.all()) {
    if (p.start != Parameter::Start::zeros || !p.name.ends_with(".weight")) continue;
    zeroed.insert(p.name.substr(0, p.name.size() - std::string(".weight").size()));
  }
  EXPECT_EQ(zeroed.size(), 34u);
  EXPECT_TRUE(zeroed.contains("out.2"));
  EXPECT_EQ(std::ranges::count_if(zeroed, [](const auto& name) { return name.ends_with(".out_layers.3"); }), 22);
  EXPECT_EQ(std::ranges::count_if(zeroed, [](const auto& name) { return name.ends_with(".proj_out"); }), 11);

  const auto shape = [&](const char* name) { return parameters[name].shape; };
  using Shape = std::vector<std::int64_t>;
  EXPECT_EQ(parameters.all().front().name, "time_embed.0.weight");
  EXPECT_EQ(parameters.all().back().name, "out.2.bias");
  EXPECT_EQ(shape("time_embed.0.weight"), (Shape{256, 64}));
  EXPECT_EQ(shape("input_blocks.4.0.skip_connection.weight"), (Shape{128, 64, 1, 1}));
  EXPECT_EQ(shape("input_blocks.7.1.qkv.weight"), (Shape{576, 192, 1}));
  EXPECT_EQ(shape("input_blocks.11.1.proj_out.weight"), (Shape{256, 256, 1}));
  EXPECT_EQ(shape("middle_block.1.norm.weight"), Shape{256});
  EXPECT_EQ(shape("output_blocks.0.0.in_layers.2.weight"), (Shape{256, 512, 3, 3}));
  EXPECT_EQ(shape("output_blocks.11.0.in_layers.2.weight"), (Shape{64, 128, 3, 3}));
  EXPECT_EQ(shape("output_blocks.11.0.emb_layers.1.weight"), (Shape{64, 256}));
  EXPECT_THROW(parameters["input_blocks.3.0.op.weight"], Failure);  // conv_resample is off
  EXPECT_THROW(parameters["out.3.weight"], Failure);
}

TEST(ModelParameters, LieApartAlignedAndInTheirRanges) {
  for (const char* name : {"unet64", "tiny"}) {
    const Parameters parameters = parameters_of(unet2d_config(name));
    std::vector<const Parameter*> order;
    for (const Parameter& p : parameters.all()) order.push_back(&p);
    std::ranges::sort(order, {}, &Parameter::begin);
    std::int64_t end = 0;
    for (const Parameter* p : order) {
      EXPECT_EQ(p->begin % kAlignment, 0) << p->name;
      EXPECT_GE(p->begin, end) << p->name;
      end = p->begin + p->elements();
      const bool is_matrix = p->range == Parameter::Range::matrices;
      EXPECT_EQ(p->begin < parameters.matrices_end(), is_matrix) << p->name;
    }
    EXPECT_GE(parameters.size(), end);
    // The embedding layers of all blocks share one matrix: a block's rows are its layer's weights and bias. The biases
    // of the convolutions that the embeddings are added to have the same layout.
    const Parameters::Group& group = parameters.group("emb_layers.1");
    const std::int64_t biases_begin = parameters.group("in_layers.2.bias").bias_begin;
    EXPECT_NE(biases_begin, group.bias_begin);
    EXPECT_EQ(group.columns, unet2d_config(name).embedding_channels());
    std::size_t layers = 0, biases = 0;
    for (const Parameter& p : parameters.all()) {
      if (p.group.empty()) continue;
      if (p.group == "in_layers.2.bias") {
        ASSERT_TRUE(p.name.ends_with("in_layers.2.bias")) << p.name;
        const std::string block = p.name.substr(0, p.name.size() - p.group.size());
        EXPECT_EQ(p.begin, biases_begin + group.row.at(block + "emb_layers.1")) << p.name;
        ++biases;
        continue;
      }
      EXPECT_NE(p.name.find(".emb_layers.1."), std::string::npos) << p.name;
      const bool is_weight = p.name.ends_with(".weight");
      const std::int64_t row = group.row.at(p.name.substr(0, p.name.rfind('.')));
      EXPECT_EQ(p.begin, is_weight ? group.weights_begin + row * group.columns : group.bias_begin + row) << p.name;
      EXPECT_LE(row + p.shape[0], group.rows);
      layers += is_weight;
    }
    EXPECT_EQ(layers, group.row.size());
    EXPECT_EQ(biases, layers);
  }
}

TEST(ModelParameters, BeginAsPyTorchWouldDrawThemFromTheSeed) {
  const Parameters parameters = parameters_of(unet2d_config("tiny"));
  const std::vector<float> values = parameters.initial(3);
  EXPECT_EQ(values, parameters.initial(3));
  EXPECT_NE(values, parameters.initial(4));
  std::vector<bool> covered(values.size());
  for (const Parameter& p : parameters.all()) {
    const auto begin = values.begin() + p.begin;
    const auto [least, most] = std::minmax_element(begin, begin + p.elements());
    std::fill_n(covered.begin() + p.begin, p.elements(), true);
    if (p.start != Parameter::Start::uniform) {
      const float wanted = p.start == Parameter::Start::ones ? 1 : 0;
      EXPECT_EQ(*least, wanted) << p.name;
      EXPECT_EQ(*most, wanted) << p.name;
      continue;
    }
    // The values fill the range from end to end, with a uniform distribution's variance of bound^2 / 3.
    const double bound = 1 / std::sqrt(static_cast<double>(p.fan_in));
    EXPECT_GE(*least, -bound) << p.name;
    EXPECT_LE(*most, bound) << p.name;
    if (p.elements() < 1000) continue;
    EXPECT_LT(*least, -0.97 * bound) << p.name;
    EXPECT_GT(*most, 0.97 * bound) << p.name;
    double squares = 0;
    for (auto value = begin; value != begin + p.elements(); ++value) squares += double{*value} * *value;
    EXPECT_NEAR(squares / static_cast<double>(p.elements()), bound * bound / 3, bound * bound / 20) << p.name;
  }
  EXPECT_EQ(parameters["input_blocks.1.0.in_layers.2.bias"].fan_in, 64 * 9);  // a bias has its weight's fan_in
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!covered[i]) {
      ASSERT_EQ(values[i], 0.0f) << i;
    }
  }
}

}  // namespace
}  // namespace ladder::nn
