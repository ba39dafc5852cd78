// Fused operations: the additions and sums that remain in the U-Net's backward pass.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/backend.h"
#include "nn/layers.h"
#include "nn/models/unet2d.h"

namespace ladder::nn {
namespace {

// Operations of a step's backward pass. They never run: no memory is allocated.
class Backward {
 public:
  explicit Backward(const Promotions* promotions) {
    const Region all{.name = "all", .bytes = parameters_.size() * sizeof(float)};
    const Binding binding{.parameters = &parameters_,
                          .weights = {.values = &all, .copies = &all},
                          .gradients = &all,
                          .promotions = promotions};
    constexpr int kBatch = 32;
    std::vector<std::int64_t> image = model_.sample_shape();
    image.insert(image.begin(), kBatch);
    const ValueId y = model_.forward(tape_, binding, tape_.value("x", Dtype::bf16, image),
                                     tape_.value("t", Dtype::i32, {kBatch}), nullptr);
    first_ = static_cast<std::ptrdiff_t>(tape_.operations().size());
    tape_.add_gradient(y, tape_.value("dy", Dtype::bf16, image));
    tape_.backward();
  }

  const std::vector<Operation>& operations() const { return tape_.operations(); }

  int count(std::string_view path) const {
    const auto& all = tape_.operations();
    return static_cast<int>(std::count_if(all.begin() + first_, all.end(), [&](const Operation& operation) {
      return operation.problem.pass->path() == path;
    }));
  }

 private:
  Unet2d model_{unet2d_config("unet64")};
  Parameters parameters_{model_.declare()};
  Tape tape_;
  std::ptrdiff_t first_ = 0;
};

TEST(Neighbours, GroupNormsBackwardPassAddsAndSums) {
  if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
  Promotions promotions = Promotions::for_device(backend::device().slug);
  promotions.use("groupnorm/backward=v01");
  const Backward apart(nullptr), together(&promotions);
  const Unet2dLayers net{unet2d_config("unet64")};
  int blocks = 0, pools = 0;
  for (const Layer& layer : net.all()) {
    blocks += layer.kind == Layer::Kind::res_block;
    pools += layer.kind == Layer::Kind::pool;
  }
  constexpr int kOfBiases = 1;  // the sum that makes the bias gradients of all first convolutions
  EXPECT_EQ(apart.count("add/embedding_backward"), blocks + kOfBiases);
  EXPECT_EQ(together.count("add/embedding_backward"), kOfBiases);
  // No normalisation can fuse the addition at a tensor that both a pool and a skip connection read.
  EXPECT_GT(apart.count("add/residual"), pools);
  EXPECT_EQ(together.count("add/residual"), pools);
  EXPECT_EQ(together.count("groupnorm/backward"), apart.count("groupnorm/backward"));
  promotions.use("groupnorm/backward=v13");
  const Backward told(&promotions);
  EXPECT_EQ(told.count("add/embedding_backward"), blocks + kOfBiases);
  EXPECT_EQ(told.count("add/residual"), apart.count("add/residual"));
}

TEST(Additions, TakeGradientsOfAnyRank) {
  for (const std::vector<std::int64_t>& shape :
       std::vector<std::vector<std::int64_t>>{{24}, {2, 12}, {2, 3, 4}, {2, 3, 1, 4}, {2, 3, 1, 2, 2}}) {
    Tape tape;
    const ValueId x = tape.value("x", Dtype::f32, shape);
    for (const char* name : {"d1", "d2"}) tape.add_gradient(x, tape.value(name, Dtype::f32, shape));
    EXPECT_EQ(tape[tape.gradient(x, append_addition)].shape, shape);
    ASSERT_EQ(tape.operations().size(), 1u);
  }
}

// The operation that adds the embedding to a convolution's output computes the bias gradient with the embedding's
// gradient.
TEST(Neighbours, AConvolutionBeforeTheEmbeddingSumsNoBias) {
  const Backward apart(nullptr);
  int first = 0, others = 0;
  for (const Operation& operation : apart.operations()) {
    if (operation.problem.pass->path() != "conv3x3/wgrad") continue;
    const bool is_first = operation.name.ends_with(".in_layers.2");
    const auto sums = std::ranges::count(operation.problem.tensors, "dbias", &TensorSpec::name);
    EXPECT_EQ(sums, is_first ? 0 : 1) << operation.name;
    (is_first ? first : others) += 1;
  }
  EXPECT_EQ(first, 22);
  EXPECT_EQ(others, 24);
}

}  // namespace
}  // namespace ladder::nn
