// Streams under the schedule `late`: work runs when something waits for it.
#include <gtest/gtest.h>

#include <cstring>

#include "core/backend.h"
#include "core/graph.h"
#include "tests/simt/support.h"

namespace ladder::simt::test {
namespace {

// Two ints on the device, and streams and events, under `late`.
class Late : public ::testing::Test {
 protected:
  int value(int i) const {
    int found = 0;
    backend::peek(&found, numbers_ + i, sizeof found);
    return found;
  }
  // Set all bytes of numbers[i] to `byte`.
  void set(int i, int byte, Stream stream) { set_bytes_async(numbers_ + i, byte, sizeof(int), stream); }

  const Scoped late_{"late"};
  int* const numbers_ = static_cast<int*>(backend::allocate(2 * sizeof(int)));
  const OwnedStream first_, second_;
  Event event_;

  Late() { backend::set_bytes(numbers_, 0, 2 * sizeof(int)); }
  ~Late() override { backend::release(numbers_); }
};

constexpr int kOnes = 0x01010101;

TEST_F(Late, WorkRunsWhenItsStreamIsWaitedFor) {
  set(0, 1, first_);
  set(1, 2, second_);
  EXPECT_EQ(value(0), 0);
  first_.synchronize();
  EXPECT_EQ(value(0), kOnes);
  EXPECT_EQ(value(1), 0) << "nothing waits for the other stream";
  backend::synchronize();
  EXPECT_EQ(value(1), 2 * kOnes);
}

TEST_F(Late, TheNullStreamRunsAtOnce) {
  set(0, 1, nullptr);
  EXPECT_EQ(value(0), kOnes);
}

TEST_F(Late, AnEventBringsWhatIsInFrontOfItAndNoMore) {
  set(0, 1, first_);
  event_.record(first_);
  set(0, 2, first_);
  event_.synchronize();
  EXPECT_EQ(value(0), kOnes);
  first_.synchronize();
  EXPECT_EQ(value(0), 2 * kOnes);
}

TEST_F(Late, AStreamThatWaitsForAnEventRunsTheOtherStreamFirst) {
  set(0, 1, first_);
  event_.record(first_);
  event_.hold_back(second_);
  copy_async(numbers_ + 1, numbers_, sizeof(int), second_);
  second_.synchronize();
  EXPECT_EQ(value(1), kOnes);
}

TEST_F(Late, AStreamThatDoesNotWaitRunsTooEarly) {
  set(0, 1, first_);
  copy_async(numbers_ + 1, numbers_, sizeof(int), second_);  // wants the value, and has no event
  backend::synchronize();
  EXPECT_EQ(value(1), 0);
}

TEST_F(Late, AnEventOfADestroyedStreamStillHoldsItsWork) {
  {
    const OwnedStream short_lived;
    set(0, 1, short_lived);
    event_.record(short_lived);
  }
  EXPECT_EQ(value(0), 0);
  event_.synchronize();
  EXPECT_EQ(value(0), kOnes);
}

TEST_F(Late, ACopyReadsPinnedMemoryLateAndOtherMemoryAtOnce) {
  const PinnedBuffer pinned(sizeof(int));
  int pageable = kOnes;
  std::memcpy(pinned.data(), &pageable, sizeof(int));
  copy_in_async(numbers_, pinned.data(), sizeof(int), first_);
  copy_in_async(numbers_ + 1, &pageable, sizeof(int), second_);
  pageable = 0;
  std::memset(pinned.data(), 0, sizeof(int));
  backend::synchronize();
  EXPECT_EQ(value(0), 0) << "the buffer was overwritten before its copy";
  EXPECT_EQ(value(1), kOnes);
}

// Captures a set on a side stream and a copy of what it sets, with or without an edge between the two.
Graph fork_and_join(int* numbers, const OwnedStream& side, bool joined_in_time) {
  return Graph::capture([&](Stream stream) {
    Event fork, join;
    fork.record(stream);
    fork.hold_back(side);
    set_bytes_async(numbers, 1, sizeof(int), side);
    join.record(side);
    if (joined_in_time) join.hold_back(stream);
    copy_async(numbers + 1, numbers, sizeof(int), stream);
    if (!joined_in_time) join.hold_back(stream);
  });
}

TEST_F(Late, AGraphRunsANodeThatLacksAnEdgeTooEarly) {
  for (const bool joined_in_time : {true, false}) {
    backend::set_bytes(numbers_, 0, 2 * sizeof(int));
    const Graph graph = fork_and_join(numbers_, second_, joined_in_time);
    graph.replay(first_);
    EXPECT_EQ(value(1), 0) << "a replay is late too";
    first_.synchronize();
    EXPECT_EQ(value(0), kOnes);
    EXPECT_EQ(value(1), joined_in_time ? kOnes : 0);
  }
}

TEST_F(Late, AReplayOutlivesItsGraph) {
  fork_and_join(numbers_, second_, true).replay(first_);
  first_.synchronize();
  EXPECT_EQ(value(1), kOnes);
}

__global__ void trap_kernel() { __trap(); }

TEST_F(Late, AFailureIsThrownWhereItsStreamIsWaitedFor) {
  launch(trap_kernel, {1, 1}, first_);
  second_.synchronize();
  EXPECT_THROW(first_.synchronize(), Failure);
  first_.synchronize();
  launch(trap_kernel, {1, 1}, first_);
  EXPECT_THROW(backend::synchronize(), Failure);
  backend::synchronize();
}

TEST_F(Late, TimesAreThoseOfEventsThatHavePassed) {
  Event end;
  EXPECT_EQ(end.seconds_since(event_), 0) << "marked, not recorded";
  event_.record(first_);
  end.record(first_);
  EXPECT_THROW(static_cast<void>(end.seconds_since(event_)), Failure);
  end.synchronize();
  EXPECT_GE(end.seconds_since(event_), 0);
}

}  // namespace
}  // namespace ladder::simt::test
