// A concatenation that nothing joins: a block as on the U-Net's way up, read in two parts and joined.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "core/backend.h"
#include "core/dtype.h"
#include "core/graph.h"
#include "nn/layers.h"
#include "runtime/program.h"

namespace ladder::nn {
namespace {

constexpr int kImages = 2, kSide = 8, kChannels = 64, kOut = 64, kGroups = 32;

Declaration declared() {
  Declaration all;
  for (const char* name : {"left", "right"}) all.conv(name, {kChannels, kChannels, 1, 1});
  all.normalisation("norm", 2 * kChannels);
  all.conv("inner", {kOut, 2 * kChannels, 1, 1});
  all.conv("skip", {kOut, 2 * kChannels, 1, 1});
  all.normalisation("after", kOut);
  return all;
}

// A step of it; what `told` can do decides which operations there are, `promotions` which versions they run.
class Block {
 public:
  Block(const Promotions& told, const Promotions& promotions) {
    state_.set_values(parameters_.initial(3));
    fill(x_, 1);
    fill(dy_, 2);
    Tape tape;
    const Binding binding{
        .parameters = &parameters_, .weights = state_.weights(), .gradients = &gradients_, .promotions = &told};
    Layers layers(tape, binding);
    const auto image = [&](const char* name, const Region& region) {
      return tape.value(name, Dtype::bf16, {kImages, kSide, kSide, kChannels}, region);
    };
    const ValueId x = image("x", x_);
    const ValueId both =
        layers.concat("both", layers.conv1x1("left", x, kChannels), layers.conv1x1("right", x, kChannels));
    const ValueId y = layers.begin_conv1x1("skip", both, kOut);
    const ValueId h = layers.group_norm("norm", both, kGroups, groupnorm::Activation::silu);
    layers.finish_conv1x1(y, "skip", both, layers.conv1x1("inner", h, kOut));
    // Reads y once more in its backward pass.
    tape.add_gradient(layers.group_norm("after", y, kGroups, groupnorm::Activation::silu), image("dy", dy_));
    tape.backward();
    program_.emplace(std::move(tape), promotions);
  }

  std::vector<float> gradients() {
    program_->enqueue_poisoned(stream_);
    stream_.synchronize();
    return state_.get(gradients_);
  }
  int count(std::string_view path) const {
    return static_cast<int>(std::ranges::count_if(program_->tape().operations(), [&](const Operation& operation) {
      return operation.problem.pass->path() == path;
    }));
  }
  // Operations that read in two parts.
  int split() const {
    return static_cast<int>(std::ranges::count_if(program_->tape().operations(), [](const Operation& operation) {
      return std::ranges::any_of(operation.problem.tensors,
                                 [](const TensorSpec& spec) { return spec.name == "x_rest"; });
    }));
  }

 private:
  static void fill(const OwnedRegion& region, unsigned seed) {
    std::vector<float> values(region.bytes / size_of(Dtype::bf16));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>((i + 1) * (2654435761u + 2 * seed) >> 16 & 1023) / 512.0f - 1.0f;
    copy_rounded(values, Dtype::bf16, region);
  }

  static constexpr std::size_t kBytes = std::size_t{kImages} * kSide * kSide * kChannels * 2;
  Parameters parameters_{declared()};
  State state_{parameters_, Dtype::bf16};
  OwnedRegion gradients_{"gradients", parameters_.size() * sizeof(float)};
  OwnedRegion x_{"x", kBytes}, dy_{"dy", kBytes};
  std::optional<Program> program_;
  OwnedStream stream_;
};

TEST(Parts, AreReadAsTheyLieWithTheBitsOfTheirConcatenation) {
  if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
  if (backend::device().arch < 90) GTEST_SKIP() << "an older GPU";
  const auto promoted = [](const char* use) {
    Promotions promotions = Promotions::for_device(backend::device().slug);
    promotions.use(use);
    return promotions;
  };
  const Promotions can = promoted("groupnorm/forward=v11,groupnorm/backward=v13,gemm/fprop=v06,gemm/wgrad=v07");
  Block in_parts(can, can);
  EXPECT_EQ(in_parts.count("concat/join"), 0);
  EXPECT_EQ(in_parts.split(), 4) << "normalisation and convolution, each forward and backward";
  const std::vector<float> expected = in_parts.gradients();
  EXPECT_GT(std::ranges::count_if(expected, [](float v) { return v != 0; }), std::ssize(expected) / 4);
  // The first operation whose version cannot read parts has them joined, for all after it too.
  for (const auto& [cannot, split] : {std::pair{"groupnorm/forward=v06", 0},
                                      {"gemm/fprop=v05", 1},
                                      {"gemm/wgrad=v05", 2},
                                      {"groupnorm/backward=v12", 3}}) {
    Block joined(promoted(cannot), can);
    EXPECT_EQ(joined.count("concat/join"), 1) << cannot;
    EXPECT_EQ(joined.split(), split) << cannot;
    EXPECT_EQ(joined.gradients(), expected) << cannot;
  }
}

}  // namespace
}  // namespace ladder::nn
