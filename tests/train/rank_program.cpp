// The end of a rank's process: its status, and one line for all ranks that says why.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/backend.h"
#include "core/program.h"
#include "tests/files.h"
#include "tests/train/ranks.h"
#include "train/ranks.h"

namespace ladder::train::test {
namespace {

using ladder::test::contents;
using ladder::test::has;
using ladder::test::Scratch;
using Body = std::function<int(Ranks&)>;

constexpr double kAtOnce = 5;   // seconds within which all ranks end
constexpr double kTimeout = 1;  // --rank-timeout

struct Ending {
  int status = 0;  // 128 and a signal's number, if that ended the process
  std::string words;
};

[[noreturn]] void wait_for_ever() {
  for (;;) pause();
}

// Runs a program of `size` ranks. `meanwhile` runs here, with the processes' numbers, once all ranks have met.
std::vector<Ending> run_program(int size, const Body& body,
                                const std::function<void(std::vector<pid_t>)>& meanwhile = {}, Variables more = {}) {
  const Scratch scratch;
  const int port = free_ports();
  const auto file = [&](int rank, const char* what) { return scratch.path() / fmt::format("{} {}", what, rank); };
  std::vector<pid_t> pids;
  for (int rank = 0; rank < size; ++rank) {
    std::fflush(nullptr);
    const pid_t pid = fork();
    if (pid == 0) {
      alarm(kLimitSeconds);
      if (std::freopen(file(rank, "words").c_str(), "w", stderr) == nullptr) _exit(99);
      Variables variables = rank_variables(rank, size, port);
      variables.insert(more.begin(), more.end());
      _exit(program_status("train_unet", [&] {
        return run_ranks("train_unet", environment_of(variables), {.start_timeout_s = 5, .rank_timeout_s = kTimeout},
                         "flags", [&](Ranks& ranks) {
                           ranks.exchange(std::string("met"));
                           ladder::test::put(file(rank, "met"), "");
                           return body(ranks);
                         });
      }));
    }
    pids.push_back(pid);
  }
  if (meanwhile) {
    for (int rank = 0; rank < size; ++rank) {
      while (!std::filesystem::exists(file(rank, "met"))) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    meanwhile(pids);
  }
  std::vector<Ending> endings;
  for (int rank = 0; rank < size; ++rank) {
    int status = 0;
    waitpid(pids[rank], &status, 0);
    endings.push_back(
        {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), contents(file(rank, "words"))});
  }
  return endings;
}

// Expects words from one rank alone.
void expect_words(const std::vector<Ending>& endings, int from, const std::string& words) {
  for (int rank = 0; rank < static_cast<int>(endings.size()); ++rank) {
    if (rank == from) {
      EXPECT_TRUE(has(endings[rank].words, words)) << rank << ": " << endings[rank].words;
      EXPECT_EQ(std::ranges::count(endings[rank].words, '\n'), 1) << endings[rank].words;
    } else {
      EXPECT_EQ(endings[rank].words, "") << rank;
    }
  }
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class RankProgram : public testing::Test {
 protected:
  void SetUp() override {
    if (backend::kind() == backend::Kind::gpu) GTEST_SKIP() << "ranks are forked, which CUDA does not survive";
  }
};

TEST_F(RankProgram, AllEndInOrder) {
  const std::vector<Ending> endings = run_program(3, [](Ranks& ranks) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300 * ranks.rank()));  // at different times
    return 130;
  });
  for (const Ending& ending : endings) EXPECT_EQ(ending.status, 130);
  expect_words(endings, -1, "");
}

TEST_F(RankProgram, AFailureIsSaidOnce) {
  for (int failing : {0, 1, 2}) {
    const auto start = std::chrono::steady_clock::now();
    const std::vector<Ending> endings = run_program(3, [=](Ranks& ranks) -> int {
      ranks.set_step(7);
      if (ranks.rank() == failing) throw Failure("out of memory");
      wait_for_ever();
    });
    for (const Ending& ending : endings) EXPECT_EQ(ending.status, 1);
    expect_words(endings, 0, failing == 0 ? "train_unet: out of memory" : fmt::format("rank {} (host ", failing));
    EXPECT_TRUE(has(endings[0].words, failing == 0 ? "out of memory\n" : "ended: out of memory (step 7)\n"));
    EXPECT_LT(seconds_since(start), kAtOnce);
  }
}

TEST_F(RankProgram, OneUsageErrorOfAllIsSaidOnce) {
  const std::vector<Ending> endings = run_program(3, [](Ranks&) -> int { throw UsageError("--batch 30 of 4 ranks"); });
  for (const Ending& ending : endings) EXPECT_EQ(ending.status, 2);
  expect_words(endings, 0, "train_unet: --batch 30 of 4 ranks");
}

TEST_F(RankProgram, AKilledRankEndsAll) {
  for (int killed : {0, 1, 2}) {
    std::chrono::steady_clock::time_point start;
    const std::vector<Ending> endings = run_program(
        3, [](Ranks&) -> int { wait_for_ever(); },
        [&](const std::vector<pid_t>& pids) {
          start = std::chrono::steady_clock::now();
          kill(pids[killed], SIGKILL);
        });
    EXPECT_LT(seconds_since(start), kAtOnce);
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(endings[rank].status, rank == killed ? 128 + SIGKILL : 1);
    expect_words(endings, killed == 0 ? 1 : 0, fmt::format("train_unet: rank {} (host ", killed));
  }
}

// Steps of all ranks, in the order of a training: a collective each.
int train(Ranks& ranks, const std::function<void(std::int64_t step)>& before = {}) {
  for (std::int64_t step = 1; step < 1000; ++step) {
    ranks.set_step(step);
    if (before) before(step);
    ranks.exchange(std::string("gradient"));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return 0;
}

TEST_F(RankProgram, ARankThatIsStoppedEndsTheOthers) {
  for (int stopped : {0, 2}) {
    std::chrono::steady_clock::time_point start;
    const std::vector<Ending> endings = run_program(
        3, [](Ranks& ranks) { return train(ranks); },
        [&](const std::vector<pid_t>& pids) {
          start = std::chrono::steady_clock::now();
          kill(pids[stopped], SIGSTOP);
          for (int rank = 0; rank < 3; ++rank) {
            siginfo_t ended{};
            if (rank != stopped) waitid(P_PID, static_cast<id_t>(pids[rank]), &ended, WEXITED | WNOWAIT);
          }
          EXPECT_LT(seconds_since(start), kTimeout + 12 + kAtOnce);
          kill(pids[stopped], SIGKILL);
        });
    expect_words(endings, stopped == 0 ? 1 : 0, fmt::format("train_unet: rank {} (host ", stopped));
    EXPECT_TRUE(has(endings[stopped == 0 ? 1 : 0].words, "ended: no step for 1 s (step "));
  }
}

TEST_F(RankProgram, ARankThatIsBehindIsNamed) {
  for (int late : {0, 1}) {
    const std::vector<Ending> endings = run_program(3, [=](Ranks& ranks) {
      return train(ranks, [&](std::int64_t step) {
        if (ranks.rank() != late) ranks.set_step(step + 1);  // submitted ahead
        if (ranks.rank() == late && step == 3) wait_for_ever();
      });
    });
    for (const Ending& ending : endings) EXPECT_EQ(ending.status, 1);
    expect_words(endings, 0, late == 0 ? "train_unet: no step for 1 s" : "train_unet: rank 1 (host ");
  }
}

TEST_F(RankProgram, AStepThatNoRankEndsIsSaid) {
  const std::vector<Ending> endings = run_program(2, [](Ranks& ranks) {
    return train(ranks, [](std::int64_t step) {
      if (step == 3) wait_for_ever();
    });
  });
  for (const Ending& ending : endings) EXPECT_EQ(ending.status, 1);
  expect_words(endings, 0, "train_unet: no rank has made a step for 1 s");
}

TEST_F(RankProgram, APauseMayLast) {
  for (int slow : {0, 1}) {
    const std::vector<Ending> endings = run_program(2, [=](Ranks& ranks) {
      for (std::int64_t step = 1; step < 4; ++step) {
        ranks.set_step(step);
        ranks.exchange(std::string("gradient"));
        const Ranks::Pause pause(ranks);
        if (ranks.rank() == slow && step == 2) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
      }
      return 0;
    });
    for (const Ending& ending : endings) EXPECT_EQ(ending.status, 0) << ending.words;
  }
}

TEST_F(RankProgram, EndsWithTheProgramThatStartedIt) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const auto start = std::chrono::steady_clock::now();
  const std::vector<Ending> endings = run_program(
      2,
      [&](Ranks&) -> int {
        close(ends[1]);  // ./ladder keeps it to itself
        wait_for_ever();
      },
      [&](const std::vector<pid_t>&) {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        close(ends[1]);
      },
      {{"LADDER_PARENT_PIPE", std::to_string(ends[0])}});
  close(ends[0]);
  EXPECT_LT(seconds_since(start), kAtOnce);
  for (const Ending& ending : endings) EXPECT_EQ(ending.status, 1);
}

}  // namespace
}  // namespace ladder::train::test
