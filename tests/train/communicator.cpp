// Host communicator over worlds of one to four processes: every collective against plain sums, launched and captured, and
// ranks that die or disagree.
#include "core/communicator.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/backend.h"
#include "core/error.h"
#include "core/graph.h"
#include "core/splitmix64.h"
#include "tests/files.h"
#include "tests/train/ranks.h"

namespace ladder::train {
namespace {

using ladder::test::has;
using ladder::test::message_of;
using namespace test;
using std::chrono::milliseconds;

// Device bytes with a guard after them.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(bytes), data_(backend::allocate(bytes + kGuard.size())) {}
  ~Memory() { backend::release(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void* data() const { return data_; }
  void set(const std::string& bytes) const {
    const std::string all = bytes + kGuard;
    LADDER_CHECK(bytes.size() == bytes_);
    backend::copy_in(data_, all.data(), all.size());
  }
  void poison() const { set(std::string(bytes_, '\xff')); }
  std::string get() const {
    std::string all(bytes_ + kGuard.size(), '\0');
    backend::copy_out(all.data(), data_, all.size());
    return all.ends_with(kGuard) ? all.substr(0, bytes_) : "overwritten after its end";
  }

 private:
  inline static const std::string kGuard = std::string(16, 'g');

  std::size_t bytes_;
  void* data_;
};

// Value `i` of a rank's tensor. Magnitudes from 2^-10 to 2^10 make sums depend on the order of terms.
float value(int rank, std::size_t i, int salt, Dtype dtype) {
  const std::uint64_t bits =
      splitmix64(splitmix64(i * 64 + static_cast<std::size_t>(salt)) + static_cast<unsigned>(rank));
  const float fraction = static_cast<float>(static_cast<std::int64_t>(bits >> 40) - (1 << 23)) * 0x1p-23f;
  return round_to(dtype, std::ldexp(fraction, static_cast<int>(bits % 21) - 10));
}

std::string stored(const std::vector<float>& values, Dtype dtype) {
  std::string bytes(values.size() * size_of(dtype), '\0');
  encode(dtype, values.data(), values.size(), bytes.data());
  return bytes;
}

std::string values_of(int rank, std::size_t begin, std::size_t count, int salt, Dtype dtype) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = value(rank, begin + i, salt, dtype);
  return stored(values, dtype);
}

// Sums over ranks in fp32, rank 0 first, rounded once.
std::string sums_of(int size, std::size_t begin, std::size_t count, int salt, Dtype dtype) {
  std::vector<float> sums(count);
  for (std::size_t i = 0; i < count; ++i) {
    float sum = value(0, begin + i, salt, dtype);
    for (int r = 1; r < size; ++r) sum = sum + value(r, begin + i, salt, dtype);
    sums[i] = round_to(dtype, sum);
  }
  return stored(sums, dtype);
}

// Means over ranks in fp32: sums divided by the number of ranks.
std::string means_of(int size, std::size_t count, int salt) {
  const std::string sums = sums_of(size, 0, count, salt, Dtype::f32);
  std::vector<float> values(count);
  decode(Dtype::f32, sums.data(), count, values.data());
  for (float& value : values) value /= static_cast<float>(size);
  return stored(values, Dtype::f32);
}

std::string text_of(int rank, std::size_t bytes, int salt) {
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(splitmix64(i + 1000 * (rank + 10 * salt)));
  return text;
}

// One call of every collective, in place and not, with one count.
class Calls {
 public:
  Calls(Communicator& ranks, Dtype dtype, std::size_t count)
      : ranks_(ranks), dtype_(dtype), count_(count), size_(static_cast<std::size_t>(ranks.size())) {
    for (int root = 0; root < ranks.size(); ++root) sent_.emplace_back(count);
  }

  void fill(int salt) const {
    const int r = ranks_.rank();
    reduced_.set(values_of(r, 0, count_, salt, dtype_));
    first_.set(values_of(r, 0, count_, salt + 2, dtype_));
    second_.set(values_of(r, 0, count_ / 2, salt + 3, Dtype::f32));
    scattered_from_.set(values_of(r, 0, size_ * count_, salt + 1, dtype_));
    gathered_from_.set(text_of(r, count_, salt));
    for (const Memory* to : {&scattered_, &copied_, &gathered_}) to->poison();
    std::string filled(size_ * count_, '\xff');
    filled.replace(offset(), count_, text_of(r, count_, salt + 1));
    gathered_in_place_.set(filled);
    for (int root = 0; root < ranks_.size(); ++root) {
      sent_[static_cast<std::size_t>(root)].set(root == r ? text_of(r, count_, salt + 2) : std::string(count_, '\xff'));
    }
  }

  void enqueue(Stream stream) const {
    ranks_.all_reduce(reduced_.data(), count_, dtype_, stream);
    copy_async(copied_.data(), reduced_.data(), count_ * size_of(dtype_), stream);
    ranks_.all_reduce({{{.data = first_.data(), .count = count_, .dtype = dtype_},
                        {.data = second_.data(), .count = count_ / 2, .mean = true}}},
                      stream);
    ranks_.reduce_scatter(scattered_from_.data(), scattered_.data(), count_, dtype_, stream);
    ranks_.all_gather(gathered_from_.data(), gathered_.data(), count_, stream);
    auto* const part = static_cast<std::byte*>(gathered_in_place_.data()) + offset();
    ranks_.all_gather(part, gathered_in_place_.data(), count_, stream);
    for (int root = 0; root < ranks_.size(); ++root) {
      ranks_.broadcast(sent_[static_cast<std::size_t>(root)].data(), count_, root, stream);
    }
  }

  // Returns the first wrong result after fill(salt), or nothing.
  std::string wrong(int salt) const {
    const std::string sums = sums_of(ranks_.size(), 0, count_, salt, dtype_);
    if (reduced_.get() != sums) return "all_reduce";
    if (copied_.get() != sums) return "copy after all_reduce";
    if (first_.get() != sums_of(ranks_.size(), 0, count_, salt + 2, dtype_)) return "first array";
    if (second_.get() != means_of(ranks_.size(), count_ / 2, salt + 3)) return "second array, a mean";
    if (scattered_.get() != sums_of(ranks_.size(), offset(), count_, salt + 1, dtype_)) return "reduce_scatter";
    std::string all, all_in_place;
    for (int r = 0; r < ranks_.size(); ++r) all += text_of(r, count_, salt);
    for (int r = 0; r < ranks_.size(); ++r) all_in_place += text_of(r, count_, salt + 1);
    if (gathered_.get() != all) return "all_gather";
    if (gathered_in_place_.get() != all_in_place) return "all_gather in place";
    for (int root = 0; root < ranks_.size(); ++root) {
      if (sent_[static_cast<std::size_t>(root)].get() != text_of(root, count_, salt + 2)) {
        return fmt::format("broadcast from {}", root);
      }
    }
    return "";
  }

 private:
  std::size_t offset() const { return static_cast<std::size_t>(ranks_.rank()) * count_; }

  Communicator& ranks_;
  Dtype dtype_;
  std::size_t count_, size_;
  Memory reduced_{count_ * size_of(dtype_)}, copied_{count_ * size_of(dtype_)};
  Memory first_{count_ * size_of(dtype_)}, second_{count_ / 2 * sizeof(float)};
  Memory scattered_from_{size_ * count_ * size_of(dtype_)}, scattered_{count_ * size_of(dtype_)};
  Memory gathered_from_{count_}, gathered_{size_ * count_}, gathered_in_place_{size_ * count_};
  std::deque<Memory> sent_;  // by root
};

std::unique_ptr<Communicator> communicator_of(World& world) {
  return make_host_communicator(world.rank(), world.size(), [&world](std::string bytes, const Combine& combine) {
    return world.reduce(std::move(bytes), combine);
  });
}

// Launches the calls twice, then replays them twice from a graph. Returns the first wrong result.
std::string wrong_of(const Calls& calls, Communicator& ranks) {
  const OwnedStream stream;
  std::optional<Graph> graph;
  for (int turn = 0; turn < 4; ++turn) {
    if (turn == 2) graph = Graph::capture([&](Stream captured) { calls.enqueue(captured); });
    calls.fill(10 * turn);
    if (graph) {
      graph->replay(stream);
    } else {
      calls.enqueue(stream);
    }
    stream.synchronize();
    ranks.check();
    const std::string wrong = calls.wrong(10 * turn);
    if (!wrong.empty()) return fmt::format("{} at turn {}", wrong, turn);
  }
  return "";
}

std::string run_all(World& world, const std::string& schedule, const std::vector<std::size_t>& counts) {
  backend::set_schedule(schedule);
  const std::unique_ptr<Communicator> ranks = communicator_of(world);
  if (ranks->rank() != world.rank() || ranks->size() != world.size()) return "other numbers";
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    for (const std::size_t count : counts) {
      const std::string wrong = wrong_of(Calls(*ranks, dtype, count), *ranks);
      if (!wrong.empty()) return fmt::format("{} of {} {}", wrong, count, name(dtype));
    }
  }
  return "right";
}

class HostCommunicator : public ::testing::Test {
 protected:
  void SetUp() override {
    if (backend::kind() == backend::Kind::gpu) GTEST_SKIP() << "ranks are forked, which CUDA does not survive";
  }
};

TEST_F(HostCommunicator, CollectivesAreThoseOfPlainSums) {
  for (const char* schedule : {"asc", "late"}) {
    for (int size = 1; size <= 4; ++size) {
      const int port = free_ports();
      Processes ranks;
      for (int r = 0; r < size; ++r) {
        ranks.start(rank_variables(r, size, port), [schedule](World& world) {
          return run_all(world, schedule, {1, 0, 7, 1000});
        });
      }
      for (int r = 0; r < size; ++r) EXPECT_EQ(ranks.said(r), "right") << r << " of " << size << ", " << schedule;
    }
  }
}

TEST_F(HostCommunicator, ManyElements) {
  const int port = free_ports();
  Processes ranks;
  for (int r = 0; r < 3; ++r) {
    ranks.start(rank_variables(r, 3, port), [](World& world) { return run_all(world, "late", {1'000'003}); });
  }
  for (int r = 0; r < 3; ++r) EXPECT_EQ(ranks.said(r), "right") << r;
}

// The order of terms and the number of roundings show in these sums.
TEST_F(HostCommunicator, SumsOfTheTestDependOnTheirOrder) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    int num_reversed_differ = 0, num_rounded_differ = 0;
    for (std::size_t i = 0; i < 1000; ++i) {
      float sum = 0, reversed = 0, rounded = 0;
      for (int r = 0; r < 4; ++r) sum += value(r, i, 0, dtype);
      for (int r = 3; r >= 0; --r) reversed += value(r, i, 0, dtype);
      for (int r = 0; r < 4; ++r) rounded = round_to(dtype, rounded + value(r, i, 0, dtype));
      num_reversed_differ += sum != reversed;
      num_rounded_differ += round_to(dtype, sum) != rounded;
    }
    EXPECT_GT(num_reversed_differ, 10) << name(dtype);
    EXPECT_EQ(num_rounded_differ > 100, dtype == Dtype::bf16) << name(dtype);
  }
}

TEST_F(HostCommunicator, DeadRankEndsTheOthers) {
  for (const bool captured : {false, true}) {
    for (int killed = 0; killed < 3; ++killed) {
      const int port = free_ports();
      Processes ranks;
      for (int r = 0; r < 3; ++r) {
        ranks.start(rank_variables(r, 3, port), [captured](World& world) -> std::string {
          const std::unique_ptr<Communicator> all = communicator_of(world);
          const Calls calls(*all, Dtype::bf16, 1000);
          const OwnedStream stream;
          calls.enqueue(stream);
          const Graph graph = Graph::capture([&](Stream on) { calls.enqueue(on); });
          for (;;) {
            if (captured) {
              graph.replay(stream);
            } else {
              calls.enqueue(stream);
            }
            stream.synchronize();  // the failure is the communicator's: streams go on
            try {
              all->check();
            } catch (const RankEnded& first) {
              graph.replay(stream);
              stream.synchronize();
              const std::string again = message_of<RankEnded>([&] { all->check(); });
              return again == first.what() ? again : "another failure: " + again;
            }
          }
        });
      }
      std::this_thread::sleep_for(milliseconds(700));
      const Stopwatch watch;
      ranks.kill_now(killed);
      for (int r = 0; r < 3; ++r) {
        const std::string said = ranks.said(r);
        const std::string start = fmt::format("rank {} (host ", killed);
        EXPECT_TRUE(r == killed || (said.starts_with(start) && has(said, ") ended: its connection closed"))) << said;
      }
      EXPECT_LT(watch.seconds(), kAtOnce);
    }
  }
}

TEST_F(HostCommunicator, RanksThatDisagreeFail) {
  for (const bool summed : {true, false}) {
    const int port = free_ports();
    Processes ranks;
    for (int r = 0; r < 2; ++r) {
      ranks.start(rank_variables(r, 2, port), [summed](World& world) {
        const std::unique_ptr<Communicator> all = communicator_of(world);
        const Memory memory(64);
        const std::size_t count = world.rank() == 0 ? 4 : 5;
        if (summed) all->all_reduce(memory.data(), count, Dtype::f32, nullptr);
        if (!summed) all->broadcast(memory.data(), count, 0, nullptr);
        all->check();
        world.exchange("");
        return std::string("agreed");
      });
    }
    const std::string first = ranks.said(0), second = ranks.said(1);
    if (summed) {
      EXPECT_EQ(first, "Failure: ranks disagree on a sum: rank 0 has 16 bytes, rank 1 20");
      EXPECT_TRUE(second.starts_with("RankEnded 0: ")) << second;
    } else {
      EXPECT_TRUE(first.starts_with("RankEnded 1: ")) << first;
      EXPECT_EQ(second, "Failure: ranks disagree on a collective: rank 1 expects 5 bytes, rank 0 sent 4");
    }
  }
}

TEST_F(HostCommunicator, TheFirstFailureIsKeptAndEndsAllThatFollows) {
  int num_calls = 0;
  const std::unique_ptr<Communicator> ranks = make_host_communicator(
      0, 2,
      [&](const std::string&, const Combine&) -> std::string { throw Failure(fmt::format("call {}", ++num_calls)); });
  const Memory memory(64);
  const OwnedStream stream;
  ranks->check();
  for (int i = 0; i < 3; ++i) {
    ranks->all_reduce(memory.data(), 16, Dtype::f32, stream);
    stream.synchronize();
    EXPECT_EQ(message_of<Failure>([&] { ranks->check(); }), "call 1");
  }
  EXPECT_EQ(num_calls, 1);
}

TEST_F(HostCommunicator, WrongArgumentsAreNamed) {
  const ReduceOnHost never = [](const std::string&, const Combine&) -> std::string { throw Failure("called"); };
  EXPECT_TRUE(has(message_of<Failure>([&] { make_host_communicator(2, 2, never); }), "rank < size"));
  const std::unique_ptr<Communicator> alone = make_host_communicator(0, 1, never);
  const Memory memory(64);
  EXPECT_TRUE(has(message_of<Failure>([&] { alone->all_reduce(memory.data(), 4, Dtype::f16, nullptr); }), "fp16"));
  EXPECT_TRUE(has(message_of<Failure>([&] { alone->broadcast(memory.data(), 4, 1, nullptr); }), "root < size_"));
  EXPECT_EQ(message_of<Failure>([] { make_nccl_communicator(0, 1, {}); }),
            "the emulator has no NCCL: --collectives host is right");
}

}  // namespace
}  // namespace ladder::train
