// Operations that do their neighbours' work: which additions are left in the backward pass of the U-Net.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/backend.h"
#include "nn/models/unet2d.h"

namespace ladder::nn {
namespace {

// The operations of a step's backward pass, which are not run: there is no memory.
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

  int count(std::string_view path) const {
    const auto& all = tape_.operations();
    return static_cast<int>(std::count_if(all.begin() + first_, all.end(),
                                          [&](const Operation& each) { return each.problem.pass->path() == path; }));
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
  for (const std::vector<Block>& part : {net.down, {net.middle}, net.up}) {
    for (const Block& block : part) {
      for (const Layer& layer : block.layers) {
        blocks += layer.kind == Layer::Kind::res_block;
        pools += layer.kind == Layer::Kind::pool;
      }
    }
  }
  EXPECT_EQ(apart.count("add/embedding_backward"), blocks);
  EXPECT_EQ(together.count("add/embedding_backward"), 0);
  // The gradient of what a pool and a skip connection read meets no normalisation.
  EXPECT_GT(apart.count("add/residual"), pools);
  EXPECT_EQ(together.count("add/residual"), pools);
  EXPECT_EQ(together.count("groupnorm/backward"), apart.count("groupnorm/backward"));
  promotions.use("groupnorm/backward=v13");
  const Backward told(&promotions);
  EXPECT_EQ(told.count("add/embedding_backward"), blocks);
  EXPECT_EQ(told.count("add/residual"), apart.count("add/residual"));
}

}  // namespace
}  // namespace ladder::nn
