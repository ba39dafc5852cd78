// Branches of a tape: the order that dependences require, and no shared memory between operations that may overlap.
#include "runtime/stream_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/backend.h"
#include "dev/add/add.h"
#include "tests/unordered.h"

namespace ladder {
namespace {

using test::unordered_pairs;

// Tape: a, b on the side stream; c, d, e on the main stream; f (main) needs b and e; g (side) needs d; h (main) needs
// f.
class Branches : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
    const auto x = tape_.value("x", Dtype::f32, {8, 64}, region_);
    tape_.set_side_stream(true);
    const auto a = sum("a", x, x), b = sum("b", a, a);
    tape_.set_side_stream(false);
    const auto c = sum("c", x, x), d = sum("d", c, c), e = sum("e", d, c);
    const auto f = sum("f", e, b);
    tape_.set_side_stream(true);
    sum("g", d, d);
    tape_.set_side_stream(false);
    sum("h", f, f);
  }

  ValueId sum(const std::string& name, ValueId x, ValueId y) {
    const ValueId z = tape_.value(name, Dtype::f32, {8, 64});
    tape_.run<add::Residual>(name, {.n = 8, .c = 64}, {{"a", x}, {"b", y}, {"y", z}});
    return z;
  }

  enum { kA, kB, kC, kD, kE, kF, kG, kH };
  OwnedRegion region_{"elsewhere", 8 * 64 * sizeof(float)};
  Tape tape_;
  Promotions promotions_ = Promotions::for_device("emulator");
};

TEST_F(Branches, WaitForWhatTheyTouchAndNoMore) {
  const std::vector<StreamSlot> slots = plan_streams(tape_, true);
  EXPECT_EQ(slots[kA].waits_for, kBegin);
  EXPECT_EQ(slots[kF].waits_for, kB);
  EXPECT_EQ(slots[kG].waits_for, kD);
  for (const int other : {kB, kC, kD, kE, kH}) EXPECT_EQ(slots[other].waits_for, kNothing) << other;
  EXPECT_EQ(slots[kA].first, kA);
  EXPECT_EQ(slots[kB].last, kE);  // f is the first operation to wait for b
  EXPECT_EQ(slots[kG].first, kE);
  EXPECT_EQ(slots[kG].last, kH);  // no operation waits for g before the end
  for (const StreamSlot& slot : plan_streams(tape_, false)) {
    EXPECT_FALSE(slot.side_stream);
    EXPECT_EQ(slot.waits_for, kNothing);
  }
}

// g moves right after d, which it needs; a and b are early enough already.
TEST_F(Branches, AreEarly) {
  const Tape early = hoist_side_stream(tape_);
  std::string order;
  for (const Operation& operation : early.operations()) order += operation.name;
  EXPECT_EQ(order, "abcdgefh");
  const Program program(early, promotions_);
  EXPECT_EQ(unordered_pairs(program, program.slots()), std::vector<std::string>{});
}

// Each side-stream operation holds two values of 40 MiB. The main stream waits for the first of them once a second is
// enqueued.
TEST(Turns, WhatIsHeldHasALimit) {
  constexpr int kColumns = 10 << 20;
  const OwnedRegion elsewhere("elsewhere", kColumns * sizeof(float));
  Tape tape;
  const ValueId other = tape.value("other", Dtype::f32, {1, kColumns}, elsewhere);
  const auto value = [&] { return tape.value("", Dtype::f32, {1, kColumns}); };
  const auto sum = [&](ValueId x) {
    const ValueId y = value();
    tape.run<add::Residual>("", {.c = kColumns}, {{"a", x}, {"b", other}, {"y", y}});
    return y;
  };
  ValueId x = value();
  for (int i = 0; i < 3; ++i) {
    x = sum(x);
    tape.set_side_stream(true);
    sum(x);
    tape.set_side_stream(false);
  }
  const std::vector<StreamSlot> slots = plan_streams(tape, true);
  EXPECT_EQ(slots[2].waits_for, kNothing);
  EXPECT_EQ(slots[4].waits_for, 1);
  EXPECT_EQ(slots[1].last, 3);
  EXPECT_EQ(slots[3].last, 5);  // the end
}

TEST_F(Branches, ShareNoMemoryWithWhatMayRunAtTheSameTime) {
  const Program program(tape_, promotions_);
  EXPECT_EQ(unordered_pairs(program, program.slots()), std::vector<std::string>{});
  const Program in_line(tape_, promotions_, false);
  EXPECT_EQ(unordered_pairs(in_line, in_line.slots()), std::vector<std::string>{});
}

// The check must find three faults: a missing join, a missing fork, and memory planned as if there were no branches.
TEST_F(Branches, FaultsAreFound) {
  const Program program(tape_, promotions_);
  for (const auto& [operation, pair] : {std::pair{kF, "b and f"}, {kG, "d and g"}}) {
    std::vector<StreamSlot> spoiled = program.slots();
    spoiled[operation].waits_for = kNothing;
    const std::vector<std::string> found = unordered_pairs(program, spoiled);
    EXPECT_TRUE(std::ranges::find(found, pair) != found.end()) << pair;
  }
  EXPECT_FALSE(unordered_pairs(Program(tape_, promotions_, false), program.slots()).empty());
}

}  // namespace
}  // namespace ladder
