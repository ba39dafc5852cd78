// Weights' gradients put together: the same numbers, fewer operations, and none moved past what reads it.
#include "nn/batches.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "core/backend.h"
#include "dev/add/add.h"
#include "dev/gemm/gemm.h"
#include "runtime/program.h"

namespace ladder::nn {
namespace {

constexpr int kRows = 40, kOut = 128, kIn = 192;
const gemm::Problem kProblem{.m = kRows, .n = kOut, .k = kIn, .dtype = Dtype::bf16};

// Three layers' x and dy, small integers that differ from layer to layer, so that sums are exact in bf16; and their dw.
class Layers {
 public:
  Layers() {
    for (int layer = 0; layer < 3; ++layer) {
      write(x_[layer], [&](int i) { return (i + layer) % 3 - 1; });
      write(dy_[layer], [&](int i) { return i % (layer + 2) == 0 ? 1 : 0; });
    }
  }

  ValueId dw(Tape& tape, int layer) { return tape.value("dw", Dtype::bf16, {1, 1, kOut, kIn}, dw_[layer]); }

  void append(Tape& tape, int layer) {
    tape.run<gemm::Wgrad>("layer" + std::to_string(layer), kProblem,
                          {{"x", tape.value("x", Dtype::bf16, {kRows, kIn}, x_[layer])},
                           {"dy", tape.value("dy", Dtype::bf16, {kRows, kOut}, dy_[layer])},
                           {"dw", dw(tape, layer)}});
  }

  std::vector<std::uint16_t> run(Tape tape, const Promotions& promotions) {
    for (const OwnedRegion& region : dw_) backend::set_bytes(region.base, 0xff, region.bytes);
    const Program program(std::move(tape), promotions);
    program.enqueue(backend::check_stream());
    backend::synchronize();
    std::vector<std::uint16_t> all;
    for (const OwnedRegion& region : dw_) {
      std::vector<std::uint16_t> values(kOut * kIn);
      backend::copy_out(values.data(), region.base, region.bytes);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

 private:
  static void write(const OwnedRegion& to, const auto& value) {
    std::vector<float> values(to.bytes / 2);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(value(static_cast<int>(i)));
    std::vector<std::byte> stored(to.bytes);
    encode(Dtype::bf16, values.data(), values.size(), stored.data());
    backend::copy_in(to.base, stored.data(), stored.size());
  }

  std::array<OwnedRegion, 3> x_{OwnedRegion("x0", kRows* kIn * 2), {"x1", kRows* kIn * 2}, {"x2", kRows* kIn * 2}};
  std::array<OwnedRegion, 3> dy_{
      OwnedRegion("dy0", kRows* kOut * 2), {"dy1", kRows* kOut * 2}, {"dy2", kRows* kOut * 2}};
  std::array<OwnedRegion, 3> dw_{OwnedRegion("dw0", kOut* kIn * 2), {"dw1", kOut* kIn * 2}, {"dw2", kOut* kIn * 2}};
};

std::vector<std::string> names(const Tape& tape) {
  std::vector<std::string> all;
  for (const Operation& operation : tape.operations())
    all.push_back(operation.problem.pass->name + " " + operation.name);
  return all;
}

TEST(Batches, LayersOfOneShapeRunAsOne) {
  if (backend::device().arch < 90) GTEST_SKIP() << "wgrad_batch's 16-bit version needs sm_90a";
  const Promotions promotions = Promotions::for_device(backend::device().slug);
  Layers layers;
  Tape tape;
  for (const int layer : {0, 1, 2}) layers.append(tape, layer);
  const Tape together = with_batches(tape, promotions);
  EXPECT_EQ(names(together), std::vector<std::string>{"wgrad_batch layer0, layer1, layer2"});
  EXPECT_EQ(layers.run(together, promotions), layers.run(tape, promotions));
}

TEST(Batches, NoneWaitsPastItsReader) {
  const Promotions promotions = Promotions::for_device(backend::device().slug);
  Layers layers;
  Tape tape;
  layers.append(tape, 0);
  tape.run<add::Residual>(
      "reader", {.n = 1, .h = 1, .w = kOut, .c = kIn, .dtype = Dtype::bf16},
      {{"a", layers.dw(tape, 0)}, {"b", layers.dw(tape, 0)}, {"y", tape.value("sum", Dtype::bf16, {1, 1, kOut, kIn})}});
  for (const int layer : {1, 2}) layers.append(tape, layer);
  EXPECT_EQ(names(with_batches(tape, promotions)),
            (std::vector<std::string>{"wgrad layer0", "residual reader", "wgrad_batch layer1, layer2"}));
}

TEST(Batches, FewWeightsAreLeftAlone) {
  const Promotions promotions = Promotions::for_device(backend::device().slug);
  const gemm::Problem small{.m = kRows, .n = 64, .k = 64, .dtype = Dtype::bf16};
  Tape tape;
  for (int layer = 0; layer < 3; ++layer) {
    tape.run<gemm::Wgrad>("layer", small,
                          {{"x", tape.value("x", Dtype::bf16, {kRows, 64})},
                           {"dy", tape.value("dy", Dtype::bf16, {kRows, 64})},
                           {"dw", tape.value("dw", Dtype::bf16, {64, 64})}});
  }
  EXPECT_EQ(with_batches(tape, promotions).operations().size(), 3u);
}

// Inputs of a group are held until its last member: at most 64 MiB of them, so two layers of 32 MiB, and no two of more.
TEST(Batches, FewInputsAreHeld) {
  const Promotions promotions = Promotions::for_device(backend::device().slug);
  constexpr int kRowBytes = 2 * (kOut + kIn), kLimit = 64 << 20;
  for (const int rows : {kLimit / 2 / kRowBytes, kLimit / 2 / kRowBytes + 1}) {
    Tape tape;
    const gemm::Problem large{.m = rows, .n = kOut, .k = kIn, .dtype = Dtype::bf16};
    for (int layer = 0; layer < 5; ++layer) {
      tape.run<gemm::Wgrad>("layer" + std::to_string(layer), large,
                            {{"x", tape.value("x", Dtype::bf16, {rows, kIn})},
                             {"dy", tape.value("dy", Dtype::bf16, {rows, kOut})},
                             {"dw", tape.value("dw", Dtype::bf16, {1, 1, kOut, kIn})}});
    }
    EXPECT_EQ(with_batches(tape, promotions).operations().size(), 2 * rows * kRowBytes <= kLimit ? 3u : 5u) << rows;
  }
}

TEST(Batches, AVersionOfUseRunsEachLayerAlone) {
  Promotions promotions = Promotions::for_device(backend::device().slug);
  promotions.use("gemm/wgrad=v05");
  Layers layers;
  Tape tape;
  for (const int layer : {0, 1}) layers.append(tape, layer);
  EXPECT_EQ(with_batches(tape, promotions).operations().size(), 2u);
}

}  // namespace
}  // namespace ladder::nn
