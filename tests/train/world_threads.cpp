// A world that several threads use: collectives, checks and last words at one time; and bytes that rank 0 combines.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/files.h"
#include "tests/train/ranks.h"
#include "train/world.h"

namespace ladder::train {
namespace {

using ladder::test::has;
using namespace test;
using std::chrono::milliseconds;

TEST(World, RankZeroCombinesBytes) {
  for (int size = 1; size <= 4; ++size) {
    const int port = free_ports();
    Processes ranks;
    std::string expected;
    for (int r = 0; r < size; ++r) {
      expected += fmt::format("{},", r);
      ranks.start(rank_variables(r, size, port), [](World& world) {
        int num_combined = 0;
        const std::string joined =
            world.reduce(fmt::format("{},", world.rank()), [&](const std::vector<std::string>& texts) {
              ++num_combined;
              std::string all;
              for (const std::string& text : texts) all += text;
              return all;
            });
        const std::string large = world.reduce(std::string(3'000'001, 'x'), [](std::vector<std::string> texts) {
          return texts.back() + std::string(1'000'000, 'y');
        });
        if (large != std::string(3'000'001, 'x') + std::string(1'000'000, 'y')) return std::string("other bytes");
        return fmt::format("{} by {}; {}", joined, num_combined, exchange_once(world));
      });
    }
    for (int r = 0; r < size; ++r) {
      const std::string said = ranks.said(r);
      EXPECT_TRUE(has(said, fmt::format("{} by {}; 0 of {};", expected, r == 0 ? 1 : 0, size))) << said;
    }
  }
}

TEST(World, CheckLeavesACollectiveToItsThread) {
  const int port = free_ports();
  Processes ranks;
  for (int r = 0; r < 3; ++r) {
    ranks.start(rank_variables(r, 3, port), [](World& world) {
      std::atomic<bool> done = false;
      std::string text = "same";
      std::thread thread([&] {
        for (int i = 0; i < 300 && text == "same"; ++i) {
          const std::string sent(static_cast<std::size_t>(1000 * i), static_cast<char>('a' + world.rank()));
          const auto last = [](std::vector<std::string> texts) { return texts.back(); };
          if (world.reduce(sent, last) != std::string(sent.size(), 'c')) text = "other bytes";
        }
        done = true;
      });
      while (!done) world.check();
      thread.join();
      return text + exchange_once(world);
    });
  }
  for (int r = 0; r < 3; ++r) EXPECT_EQ(ranks.said(r), "same0 of 3;1 of 3;2 of 3;");
}

TEST(World, LastWordsWhileAThreadWaitsInACollective) {
  for (int failing = 0; failing < 3; ++failing) {
    const int port = free_ports();
    Processes ranks;
    const Stopwatch watch;
    for (int r = 0; r < 3; ++r) {
      ranks.start(rank_variables(r, 3, port), [=](World& world) {
        exchange_once(world);
        if (world.rank() == failing) {
          std::thread thread([&] {
            try {
              exchange_once(world);
            } catch (const RankEnded&) {
              return;  // or the others had sent all
            }
          });
          std::this_thread::sleep_for(milliseconds(300));
          world.send_last_words("out of memory");
          thread.join();
          return std::string("gone");
        }
        if (world.rank() == (failing + 1) % 3) std::this_thread::sleep_for(milliseconds(1500));
        return exchange_for_ever(world);
      });
    }
    for (int r = 0; r < 3; ++r) {
      const std::string said = ranks.said(r);
      const bool told = has(said, fmt::format("RankEnded {}: rank {} (host ", failing, failing)) &&
                        has(said, ") ended: out of memory");
      EXPECT_TRUE(r == failing ? said == "gone" : told) << r << ": " << said;
    }
    EXPECT_LT(watch.seconds(), kAtOnce);
  }
}

}  // namespace
}  // namespace ladder::train
