// A tape and its place in memory: gradients in the right order and number, no two values on one address at a time.
#include "runtime/tape.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "dev/add/add.h"
#include "dev/gemm/gemm.h"
#include "runtime/arena.h"
#include "runtime/early_weights.h"
#include "runtime/program.h"
#include "tests/files.h"
#include "tests/support.h"

namespace ladder {
namespace {

using ladder::test::message_of;

bool live_together(const Lifetime& a, const Lifetime& b) { return a.first <= b.last && b.first <= a.last; }

TEST(Arena, NoTwoThatLiveTogetherShareAByte) {
  std::mt19937_64 random(ladder::test::seed());
  for (int round = 0; round < 200; ++round) {
    std::vector<Lifetime> lifetimes(1 + random() % 60);
    for (Lifetime& lifetime : lifetimes) {
      lifetime.first = static_cast<int>(random() % 30);
      lifetime.last = lifetime.first + static_cast<int>(random() % (round % 2 == 0 ? 4 : 30));
      lifetime.bytes = random() % 5 == 0 ? random() % 4 : random() % 5000;
    }
    const ArenaPlan plan = plan_arena(lifetimes);
    ASSERT_EQ(plan.offsets.size(), lifetimes.size());
    std::size_t most_alive = 0;
    for (int operation = 0; operation < 60; ++operation) {
      std::size_t alive = 0;
      for (const Lifetime& lifetime : lifetimes) {
        if (lifetime.first <= operation && operation <= lifetime.last) alive += lifetime.bytes;
      }
      most_alive = std::max(most_alive, alive);
    }
    EXPECT_GE(plan.bytes, most_alive);
    for (std::size_t i = 0; i < lifetimes.size(); ++i) {
      EXPECT_EQ(plan.offsets[i] % 256, 0u);
      EXPECT_LE(plan.offsets[i] + lifetimes[i].bytes, plan.bytes);
      for (std::size_t j = 0; j < i; ++j) {
        if (!live_together(lifetimes[i], lifetimes[j])) continue;
        EXPECT_TRUE(plan.offsets[i] + lifetimes[i].bytes <= plan.offsets[j] ||
                    plan.offsets[j] + lifetimes[j].bytes <= plan.offsets[i])
            << i << " and " << j;
      }
    }
  }
}

TEST(Arena, WhatIsFreeIsUsedAgain) {
  // A chain: each value is read by the operation that writes the next one. Two are alive at a time.
  std::vector<Lifetime> chain;
  for (int i = 0; i < 20; ++i) chain.push_back({.first = i, .last = i + 1, .bytes = 1024});
  EXPECT_EQ(plan_arena(chain).bytes, 2048u);
  for (Lifetime& lifetime : chain) lifetime.last = 20;
  EXPECT_EQ(plan_arena(chain).bytes, 20480u);
  EXPECT_EQ(plan_arena({}).bytes, 0u);
}

void append_addition(Tape& tape, const std::string& name, ValueId a, ValueId b, ValueId y) {
  tape.run<add::Residual>(name, {.n = 2, .c = 4}, {{"a", a}, {"b", b}, {"y", y}});
}

class Tapes : public ::testing::Test {
 protected:
  ValueId value(const std::string& name) { return tape_.value(name, Dtype::f32, {2, 4}); }
  ValueId in_region(const std::string& name) { return tape_.value(name, Dtype::f32, {2, 4}, region_); }
  ValueId gradient(ValueId of) { return tape_.gradient(of, append_addition); }

  Region region_{.name = "elsewhere", .bytes = 1024};
  Tape tape_;
};

TEST_F(Tapes, TheBackwardPassRunsLastFirst) {
  std::string order;
  for (const char* name : {"a", "b", "c"}) tape_.on_backward([&order, name] { order += name; });
  tape_.backward();
  EXPECT_EQ(order, "cba");
  tape_.backward();  // once
  EXPECT_EQ(order, "cba");
}

TEST_F(Tapes, GradientsOfSeveralUsesAreAddedUp) {
  const ValueId x = value("x"), d1 = value("d1"), d2 = value("d2"), d3 = value("d3");
  EXPECT_FALSE(tape_.has_gradient(x));
  EXPECT_EQ(message_of<Failure>([&] { gradient(x); }), "nothing gave x a gradient");
  tape_.add_gradient(x, d1);
  EXPECT_EQ(gradient(x), d1);  // a single one is no addition
  EXPECT_TRUE(tape_.operations().empty());
  tape_.add_gradient(x, d2);
  const ValueId first_sum = gradient(x);
  tape_.add_gradient(x, d3);
  const ValueId sum = gradient(x);
  ASSERT_EQ(tape_.operations().size(), 2u);
  EXPECT_EQ(tape_.operations()[0].problem.pass->path(), "add/residual");
  EXPECT_EQ(tape_.operations()[0].values, (std::vector<ValueId>{d1, d2, first_sum}));
  EXPECT_EQ(tape_.operations()[1].values, (std::vector<ValueId>{first_sum, d3, sum}));
  EXPECT_EQ(tape_[sum].name, "d x");
  EXPECT_FALSE(tape_.has_gradient(d1));
}

TEST_F(Tapes, AnOperationMayAddToAGradientItself) {
  const ValueId x = value("x"), d1 = value("d1"), both = value("both"), d3 = value("d3");
  tape_.add_gradient(x, d1);
  tape_.replace_gradient(x, both);
  EXPECT_EQ(gradient(x), both);
  EXPECT_TRUE(tape_.operations().empty());
  tape_.add_gradient(x, d3);
  const ValueId sum = gradient(x);
  ASSERT_EQ(tape_.operations().size(), 1u);
  EXPECT_EQ(tape_.operations()[0].values, (std::vector<ValueId>{both, d3, sum}));
}

TEST_F(Tapes, AnOperationMayTakeTheSummands) {
  const ValueId x = value("x"), d1 = value("d1"), d2 = value("d2"), all = value("all");
  EXPECT_EQ(tape_.num_gradients(x), 0);
  EXPECT_TRUE(tape_.take_gradients(x).empty());
  tape_.add_gradient(x, d1);
  tape_.add_gradient(x, d2);
  EXPECT_EQ(tape_.num_gradients(x), 2);
  EXPECT_EQ(tape_.take_gradients(x), (std::vector<ValueId>{d1, d2}));
  EXPECT_FALSE(tape_.has_gradient(x));
  tape_.add_gradient(x, all);
  EXPECT_EQ(gradient(x), all);
  EXPECT_TRUE(tape_.operations().empty());
}

TEST_F(Tapes, AnOperationIsGivenWhatItTakes) {
  const ValueId a = value("a"), y = value("y");
  const ValueId small = tape_.value("small", Dtype::f32, {4}), half = tape_.value("half", Dtype::bf16, {2, 4});
  const auto refusal = [&](std::initializer_list<std::pair<std::string_view, ValueId>> tensors) {
    return message_of<Failure>([&] { tape_.run<add::Residual>("sum", {.n = 2, .c = 4}, tensors); });
  };
  EXPECT_NE(refusal({{"a", a}, {"y", y}}).find("tensor b has no value"), std::string::npos);
  EXPECT_NE(refusal({{"a", a}, {"b", small}, {"y", y}}).find("but small has 4 of fp32"), std::string::npos);
  EXPECT_NE(refusal({{"a", a}, {"b", half}, {"y", y}}).find("but half has 8 of bf16"), std::string::npos);
  EXPECT_NE(refusal({{"a", a}, {"b", a}, {"y", y}, {"z", a}}).find("has 3 tensors, but 4 were given"),
            std::string::npos);
  EXPECT_TRUE(tape_.operations().empty());
}

// Weights that nothing in front has written are loaded early; gradients, images and weights just updated are not.
TEST_F(Tapes, WeightsAreLoadedEarlyWhereNothingHasWrittenThem) {
  const gemm::Fprop::Problem square{.m = 2, .n = 4, .k = 4};
  const auto image = [&](const char* name) { return tape_.value(name, Dtype::f32, {2, 4}); };
  const auto in = [&](const Region& region, std::size_t offset) {
    return tape_.value(region.name, Dtype::f32, {4, 4}, region, offset);
  };
  const OwnedRegion weights("weights", 2 * 256);
  const OwnedRegion images("images", 256);
  const ValueId w0 = in(weights, 0), w1 = in(weights, 256), x = tape_.value("x", Dtype::f32, {2, 4}, images);
  const auto product = [&](ValueId from, ValueId w) {
    const ValueId y = image("y");
    tape_.run<gemm::Fprop>("product", square, {{"x", from}, {"w", w}, {"y", y}});
    return y;
  };
  ValueId y = product(product(x, w0), w0);  // the first two
  y = product(y, w0);
  y = product(x, w1);
  // An update of w0's second row.
  const ValueId row = tape_.value("row", Dtype::f32, {1, 4}, weights, 16);
  tape_.run<add::Residual>("update", {.n = 1, .c = 4}, {{"a", row}, {"b", row}, {"y", row}});
  y = product(y, w0);
  y = product(y, w1);

  std::vector<void*> addresses;
  for (const Value& value : tape_.values()) {
    addresses.push_back(value.region ? static_cast<std::byte*>(value.region->base) + value.offset : nullptr);
  }
  const std::vector<const void*> none, first{weights.base}, second{static_cast<std::byte*>(weights.base) + 256};
  EXPECT_EQ(early_weights(tape_, addresses),
            (std::vector<std::vector<const void*>>{none, none, first, second, none, none, second}));
}

TEST_F(Tapes, WhatIsReadMustHaveBeenWritten) {
  append_addition(tape_, "sum", value("never written"), in_region("b"), value("y"));
  const std::string message = message_of<Failure>([&] { Program(tape_, Promotions::for_device("emulator")); });
  EXPECT_EQ(message, "sum reads never written before anything has written it");
}

}  // namespace
}  // namespace ladder
