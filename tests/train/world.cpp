// Worlds of one to four processes: meeting, exchange, and ranks that are missing, double, foreign or dead.
#include "train/world.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/files.h"
#include "tests/train/ranks.h"

namespace ladder::train {
namespace {

using ladder::test::has;
using namespace test;
using std::chrono::milliseconds;

TEST(World, RanksExchangeBytes) {
  for (int size = 1; size <= 4; ++size) {
    const int port = free_ports();
    Processes ranks;
    for (int r = 0; r < size; ++r) {
      ranks.start(rank_variables(r, size, port), [](World& world) {
        for (const std::size_t bytes : {0u, 1u, 3'000'001u}) {
          const std::vector<std::string> all = world.exchange(
              std::string(bytes * static_cast<std::size_t>(world.rank()), static_cast<char>(world.rank())));
          for (std::size_t other = 0; other < all.size(); ++other) {
            if (all[other] != std::string(bytes * other, static_cast<char>(other))) return std::string("other bytes");
          }
        }
        world.check();
        return exchange_once(world) + world.host(world.size() - 1);
      });
    }
    char host[256] = {};
    gethostname(host, sizeof(host) - 1);
    std::string expected;
    for (int r = 0; r < size; ++r) expected += fmt::format("{} of {};", r, size);
    for (int r = 0; r < size; ++r) EXPECT_EQ(ranks.said(r), expected + std::string(host).substr(0, 63));
  }
}

TEST(World, RankZeroMayComeLast) {
  const int port = free_ports();
  Processes ranks;
  ranks.start(rank_variables(1, 2, port), exchange_once);
  std::this_thread::sleep_for(milliseconds(500));
  ranks.start(rank_variables(0, 2, port), exchange_once);
  for (int r : {0, 1}) EXPECT_EQ(ranks.said(r), "0 of 2;1 of 2;");
}

TEST(World, MeetsAtTheFirstFreePort) {
  const int port = free_ports();
  const Socket first = loopback_socket(port + 1, true), third = loopback_socket(port + 3, true);
  ASSERT_TRUE(first && third);
  Processes ranks;
  for (int r : {0, 1}) ranks.start(rank_variables(r, 2, port), exchange_once);
  for (int r : {0, 1}) EXPECT_EQ(ranks.said(r), "0 of 2;1 of 2;");  // rank 1 waits in vain for an answer of the first
}

TEST(World, ServerOfAnotherProgramIsPassedOver) {
  const int port = free_ports();
  const Socket server = loopback_socket(port + 1, true);
  Processes ranks;
  ranks.start([&] {
    for (;;) {
      const Socket accepted(accept(server.fd(), nullptr, nullptr));
      send(accepted.fd(), std::string(200, '\0').data(), 200, MSG_NOSIGNAL);
      std::this_thread::sleep_for(milliseconds(200));
    }
    return std::string();
  });
  for (int r : {0, 1}) ranks.start(rank_variables(r, 2, port), exchange_once);
  for (int i : {1, 2}) EXPECT_EQ(ranks.said(i), "0 of 2;1 of 2;");
}

TEST(World, AllPortsTaken) {
  const int port = free_ports();
  std::vector<Socket> sockets;
  for (int p = port + 1; p <= port + 16; ++p) sockets.push_back(loopback_socket(p, true));
  Processes ranks;
  const Stopwatch watch;
  ranks.start(rank_variables(0, 2, port), exchange_once);
  const std::string said = ranks.said(0);
  EXPECT_TRUE(has(said, fmt::format("Failure: rank 0 cannot listen on 127.0.0.1:{}-{}: port {}: Address already in use",
                                    port + 1, port + 16, port + 16)))
      << said;
  EXPECT_LT(watch.seconds(), kAtOnce);
}

TEST(World, ExplicitRendezvousOnAllInterfaces) {
  const int port = free_ports();
  Processes ranks;
  for (int r : {0, 1}) {
    Variables variables = rank_variables(r, 2, port);
    variables["MASTER_ADDR"] = "nowhere.invalid";
    variables["LADDER_RENDEZVOUS"] = fmt::format("{}:{}", "0.0.0.0", port);
    ranks.start(variables, exchange_once);
  }
  for (int r : {0, 1}) EXPECT_EQ(ranks.said(r), "0 of 2;1 of 2;");
}

TEST(World, StrangersAreDropped) {
  const int port = free_ports();
  Processes ranks;
  ranks.start(rank_variables(0, 2, port), exchange_once);
  std::vector<Socket> strangers;
  for (const std::string& text :
       {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), std::string(1000, '\xff'), std::string("LADDER1\0", 8),
        std::string("LADDER1\0", 8) + std::string(200, 'a'), std::string()}) {
    for (int i = 0; i < 50 && (strangers.empty() || !strangers.back()); ++i) {
      if (!strangers.empty() && !strangers.back()) strangers.pop_back();
      strangers.push_back(loopback_socket(port + 1, false));
      if (!strangers.back()) std::this_thread::sleep_for(milliseconds(100));
    }
    ASSERT_TRUE(strangers.back());
    ASSERT_EQ(send(strangers.back().fd(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
    strangers.emplace_back();
  }
  ranks.start(rank_variables(1, 2, port), exchange_once);
  for (int r : {0, 1}) EXPECT_EQ(ranks.said(r), "0 of 2;1 of 2;");
}

TEST(World, TwoRunsAtOnePortStayApart) {
  const int port = free_ports();
  Processes ranks;
  for (int i = 0; i < 4; ++i) {
    Variables variables = rank_variables(i / 2, 2, port);
    const std::string run = i % 2 == 0 ? "a" : "b";
    variables["LADDER_RUN"] = run;
    ranks.start(variables, [run](World& world) {
      const std::vector<std::string> all = world.exchange(run);
      return all[0] + all[1];
    });
  }
  for (int i = 0; i < 4; ++i) EXPECT_EQ(ranks.said(i), i % 2 == 0 ? "aa" : "bb");
}

TEST(World, MissingRanksAreNamed) {
  const int port = free_ports();
  Processes ranks;
  const Stopwatch watch;
  for (int r : {0, 2}) ranks.start(rank_variables(r, 4, port), exchange_once, 1.5);
  for (int i : {0, 1}) {
    const std::string said = ranks.said(i);
    EXPECT_TRUE(has(said, "for all 4 ranks: missing ranks 1, 3")) << said;
  }
  EXPECT_LT(watch.seconds(), kAtOnce);
}

TEST(World, RankThatIsKilledAtTheStartIsMissingOrReplaced) {
  for (const bool replaced : {false, true}) {
    const int port = free_ports();
    Processes ranks;
    for (int r : {0, 1}) ranks.start(rank_variables(r, 3, port), exchange_once, 3);
    std::this_thread::sleep_for(milliseconds(700));
    ranks.kill_now(1);
    std::this_thread::sleep_for(milliseconds(300));
    if (replaced) ranks.start(rank_variables(1, 3, port), exchange_once);
    ranks.start(rank_variables(2, 3, port), exchange_once);
    const std::string said = ranks.said(0);
    EXPECT_TRUE(has(said, replaced ? "0 of 3;1 of 3;2 of 3;" : "for all 3 ranks: missing rank 1")) << said;
  }
}

// The other tasks of `srun -n 8 --pty bash` end at once.
TEST(World, ShellOfSrunHearsHowToTrainInOneProcess) {
  Variables variables = {{"SLURM_PROCID", "0"},         {"SLURM_STEP_NUM_TASKS", "8"},
                         {"SLURM_LOCALID", "0"},        {"SLURM_STEP_ID", "0"},
                         {"SLURM_STEP_NUM_NODES", "1"}, {"LADDER_RUN", "test"},
                         {"SLURM_PTY_PORT", "34889"},   {"MASTER_PORT", std::to_string(free_ports())}};
  for (const bool shell : {true, false}) {
    if (!shell) variables.erase("SLURM_PTY_PORT");
    Processes ranks;
    ranks.start(variables, exchange_once, 0.5);
    const std::string said = ranks.said(0);
    EXPECT_TRUE(has(said, "for all 8 ranks: missing ranks 1")) << said;
    EXPECT_EQ(has(said, "; a shell of `srun --pty` is one of 8 tasks: `unset SLURM_STEP_ID`"), shell) << said;
  }
}

TEST(World, NobodyAtTheAddress) {
  const int port = free_ports();
  Processes ranks;
  const Stopwatch watch;
  ranks.start(rank_variables(1, 2, port), exchange_once, 1);
  const std::string said = ranks.said(0);
  EXPECT_TRUE(has(said, fmt::format("found no rank 0 of this run at 127.0.0.1:{}-{}: no answer", port + 1, port + 16)))
      << said;
  EXPECT_LT(watch.seconds(), kAtOnce);
}

TEST(World, TwoRanksOfOneNumber) {
  const int port = free_ports();
  Processes ranks;
  for (int r : {0, 1, 1}) ranks.start(rank_variables(r, 3, port), exchange_once);
  for (int i : {0, 1, 2}) {
    const std::string said = ranks.said(i);
    EXPECT_TRUE(has(said, "two processes are rank 1: on host ")) << said;
  }
}

TEST(World, RanksThatDifferInTheirNumber) {
  const int port = free_ports();
  Processes ranks;
  ranks.start(rank_variables(0, 3, port), exchange_once);
  ranks.start(rank_variables(1, 2, port), exchange_once);
  for (int i : {0, 1}) {
    const std::string said = ranks.said(i);
    EXPECT_TRUE(has(said, "has 3 ranks and rank 1 (host ") && has(said, "has 2: start all")) << said;
  }
}

TEST(World, RankThatIsKilledIsNamed) {
  for (int killed = 0; killed < 3; ++killed) {
    const int port = free_ports();
    Processes ranks;
    for (int r = 0; r < 3; ++r) ranks.start(rank_variables(r, 3, port), exchange_for_ever);
    std::this_thread::sleep_for(milliseconds(700));
    const Stopwatch watch;
    ranks.kill_now(killed);
    for (int r = 0; r < 3; ++r) {
      const std::string said = ranks.said(r);
      const std::string start = fmt::format("RankEnded {}: rank {} (host ", killed, killed);
      EXPECT_TRUE(r == killed || (has(said, start) && has(said, ") ended: its connection closed")))
          << r << ": " << said;
    }
    EXPECT_LT(watch.seconds(), kAtOnce);
  }
}

TEST(World, RankThatIsKilledAfterItSentItsBytes) {
  const int port = free_ports();
  Processes ranks;
  ranks.start(rank_variables(0, 3, port), exchange_for_ever);
  ranks.start(rank_variables(1, 3, port), exchange_for_ever);
  ranks.start(rank_variables(2, 3, port), [](World& world) {
    std::this_thread::sleep_for(milliseconds(1500));  // the others wait in their exchange
    return exchange_once(world);
  });
  std::this_thread::sleep_for(milliseconds(700));
  ranks.kill_now(1);
  for (int r : {0, 2}) EXPECT_TRUE(has(ranks.said(r), "RankEnded 1: rank 1 ("));
}

TEST(World, LastWordsReachAll) {
  for (int failing = 0; failing < 3; ++failing) {
    for (const bool checks : {false, true}) {
      const int port = free_ports();
      Processes ranks;
      const Stopwatch watch;
      for (int r = 0; r < 3; ++r) {
        ranks.start(rank_variables(r, 3, port), [=](World& world) {
          exchange_once(world);
          if (world.rank() == failing) {
            world.send_last_words("out of memory\nat step 7");
            return std::string("gone");
          }
          if (!checks) return exchange_for_ever(world);
          for (;; std::this_thread::sleep_for(milliseconds(10))) world.check();
        });
      }
      for (int r = 0; r < 3; ++r) {
        const std::string said = ranks.said(r);
        const std::string start = fmt::format("RankEnded {}: rank {} (host ", failing, failing);
        const bool told = has(said, start) && has(said, ") ended: out of memory; at step 7");
        EXPECT_TRUE(r == failing ? said == "gone" : told) << r << ": " << said;
      }
      EXPECT_LT(watch.seconds(), kAtOnce);
    }
  }
}

// Returns the texts of three ranks whose greetings were changed.
std::vector<std::string> greet(const std::function<void(int rank, Greeting&)>& change, bool may_share_gpu = false) {
  const int port = free_ports();
  Processes ranks;
  for (int r = 0; r < 3; ++r) {
    ranks.start(rank_variables(r, 3, port), [=](World& world) {
      Greeting greeting{"abc", "3", "d1", "p1", "f1", "node7", fmt::format("GPU-{}", world.rank())};
      change(world.rank(), greeting);
      compare_greetings(world, greeting, may_share_gpu);
      return std::string("good");
    });
  }
  return {ranks.said(0), ranks.said(1), ranks.said(2)};
}

TEST(World, GreetingsAgree) {
  const std::vector<std::string> good(3, "good");
  EXPECT_EQ(greet([](int, Greeting&) {}), good);
  EXPECT_EQ(greet([](int, Greeting& greeting) { greeting.gpu_uuid = ""; }), good);
  EXPECT_EQ(greet([](int, Greeting& greeting) { greeting.gpu_uuid = "GPU-1"; }, true), good);
  EXPECT_EQ(greet([](int rank, Greeting& greeting) {
              greeting.host = std::to_string(rank);
              greeting.gpu_uuid = "GPU-1";
            }),
            good);
}

TEST(World, FirstDifferingFieldIsNamed) {
  const std::pair<const char*, std::string Greeting::*> fields[] = {{"commit", &Greeting::commit},
                                                                    {"size", &Greeting::size},
                                                                    {"data digest", &Greeting::data_digest},
                                                                    {"promotions", &Greeting::promotions},
                                                                    {"flags digest", &Greeting::flags_digest}};
  for (const auto& [name, field] : fields) {
    for (const std::string& said : greet([member = field](int rank, Greeting&greeting) {
           if (rank == 2) greeting.*member = greeting.flags_digest = "other";
         })) {
      EXPECT_TRUE(has(said, fmt::format("Failure: ranks differ in {}: rank 0 (host ", name))) << said;
      EXPECT_TRUE(has(said, "', rank 2 (host ") && has(said, "has 'other'")) << said;
    }
  }
  for (const std::string& said : greet([](int, Greeting& greeting) { greeting.gpu_uuid = "GPU-9"; })) {
    EXPECT_TRUE(has(said, "ranks 0 and 1 have one GPU, GPU-9 of host node7")) << said;
  }
}

TEST(World, OfOneNeedsNoPort) {
  World world(environment_of({{"MASTER_PORT", "tcp://172.17.0.5:80"}}), "flags");
  EXPECT_EQ(world.size(), 1);
  EXPECT_EQ(exchange_once(world), "0 of 1;");
  world.check();
  world.send_last_words("nobody hears");
  compare_greetings(world, {});
}

}  // namespace
}  // namespace ladder::train
