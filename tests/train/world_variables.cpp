// Variables of launchers: rank and size, rank 0's address, the token of a run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "tests/files.h"
#include "tests/train/ranks.h"
#include "train/world.h"

namespace ladder::train {
namespace {

using ladder::test::has;
using ladder::test::message_of;
using test::environment_of;
using test::Variables;

std::string numbers(const Variables& variables) {
  const RankNumbers n = find_rank(environment_of(variables));
  return fmt::format("{}/{} local {}", n.rank, n.size, n.local_rank);
}

std::string usage(const Variables& variables) {
  return message_of<UsageError>([&] { find_rank(environment_of(variables)); });
}

TEST(WorldVariables, FirstCompleteSetCounts) {
  const Variables torchrun = {{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}};
  const Variables open_mpi = {
      {"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "2"}};
  const Variables mpich = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}};
  const Variables slurm = {
      {"SLURM_PROCID", "6"}, {"SLURM_NTASKS", "7"}, {"SLURM_LOCALID", "3"}, {"SLURM_STEP_ID", "0"}};
  EXPECT_EQ(numbers({}), "0/1 local 0");
  EXPECT_EQ(numbers(torchrun), "5/8 local 1");
  EXPECT_EQ(numbers(open_mpi), "3/4 local 2");
  EXPECT_EQ(numbers(mpich), "1/2 local 0");
  EXPECT_EQ(numbers(slurm), "6/7 local 3");
  Variables all = slurm;
  all.insert(mpich.begin(), mpich.end());
  EXPECT_EQ(numbers(all), "1/2 local 0");
  all.erase("MPI_LOCALRANKID");  // srun --mpi=pmi2
  EXPECT_EQ(numbers(all), "6/7 local 3");
  all.insert(open_mpi.begin(), open_mpi.end());
  all["WORLD_SIZE"] = "9";  // exported by a job script, without RANK
  EXPECT_EQ(numbers(all), "3/4 local 2");
  all["RANK"] = "5";
  all["LOCAL_RANK"] = "1";
  EXPECT_EQ(numbers(all), "5/9 local 1");
}

TEST(WorldVariables, BatchScriptOfSlurmIsAWorldOfOne) {
  Variables batch = {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "0"}, {"SLURM_JOB_ID", "7"}};
  EXPECT_EQ(numbers(batch), "0/1 local 0");
  for (const char* step : {"", "batch", "interactive", "-5", "4294967290", "4294967291", "4294967292", "4294967294"}) {
    batch["SLURM_STEP_ID"] = step;
    EXPECT_EQ(numbers(batch), "0/1 local 0") << step;
  }
  batch["SLURM_STEP_ID"] = "12";
  EXPECT_EQ(numbers(batch), "0/8 local 0");
}

TEST(WorldVariables, StepOfSlurmHasItsOwnNumberOfTasks) {
  Variables step = {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "0"}, {"SLURM_STEP_ID", "3"}};
  step["SLURM_STEP_NUM_TASKS"] = "1";  // srun --preserve-env --ntasks 1
  EXPECT_EQ(numbers(step), "0/1 local 0");
  step["SLURM_STEP_NUM_TASKS"] = "4";
  EXPECT_EQ(numbers(step), "0/4 local 0");
  step["SLURM_PROCID"] = "4";
  EXPECT_TRUE(has(usage(step), "SLURM_PROCID=4 with SLURM_STEP_NUM_TASKS=4"));
}

TEST(WorldVariables, WrongOnesAreNamed) {
  EXPECT_TRUE(has(usage({{"RANK", "1"}}), "RANK=1 without WORLD_SIZE"));
  EXPECT_TRUE(has(usage({{"RANK", "1"}, {"WORLD_SIZE", "2"}}), "RANK=1 without LOCAL_RANK"));
  const auto of = [](const char* rank, const char* size, const char* local) {
    return usage({{"RANK", rank}, {"WORLD_SIZE", size}, {"LOCAL_RANK", local}});
  };
  EXPECT_TRUE(has(of("4", "4", "0"), "RANK=4 with WORLD_SIZE=4: the first must be smaller, from 0 to 3"));
  EXPECT_TRUE(has(of("0", "2", "2"), "LOCAL_RANK=2 with WORLD_SIZE=2"));
  for (const char* wrong : {"", "x", "1x", " 1", "-1", "1.5", "99999999999", "99999999999999999999"}) {
    EXPECT_TRUE(has(of(wrong, "4", "0"), fmt::format("RANK={}: a whole number from 0", wrong))) << wrong;
    EXPECT_TRUE(has(of("0", wrong, "0"), fmt::format("WORLD_SIZE={}: a whole number from 1", wrong))) << wrong;
    EXPECT_TRUE(has(of("0", "4", wrong), fmt::format("LOCAL_RANK={}: a whole number", wrong))) << wrong;
  }
  EXPECT_TRUE(has(of("0", "0", "0"), "WORLD_SIZE=0: a whole number from 1"));
}

TEST(WorldVariables, Address) {
  const auto address = [](const Variables& variables, std::optional<int> local_size = {}) {
    const RendezvousAddress a = find_address(environment_of(variables), {.size = 4, .local_size = local_size});
    return a.str() + (a.loopback ? " loopback" : "");
  };
  EXPECT_EQ(address({}), "127.0.0.1:29501-29516 loopback");
  EXPECT_EQ(address({{"MASTER_PORT", "1000"}, {"MASTER_ADDR", "localhost"}}), "localhost:1001-1016 loopback");
  EXPECT_EQ(address({{"MASTER_ADDR", "node7"}}), "node7:29501-29516");
  EXPECT_EQ(address({{"MASTER_ADDR", "node7"}}, 2), "node7:29501-29516");
  EXPECT_EQ(address({{"MASTER_ADDR", "node7"}}, 4), "127.0.0.1:29501-29516 loopback");
  EXPECT_EQ(address({{"LADDER_RENDEZVOUS", "node7:80"}, {"MASTER_ADDR", "node8"}}, 4), "node7:80");
  EXPECT_EQ(address({{"LADDER_RENDEZVOUS", "[::1]:80"}}), "::1:80 loopback");
  const auto wrong = [&](const Variables& variables, std::optional<int> local_size = {}) {
    return message_of<UsageError>([&] { address(variables, local_size); });
  };
  EXPECT_TRUE(has(wrong({}, 2), "several hosts without MASTER_ADDR: export MASTER_ADDR=$(scontrol show hostnames"));
  EXPECT_TRUE(has(wrong({{"MASTER_PORT", "65530"}}), "MASTER_PORT=65530: a whole number from 1 to 65519"));
  for (const char* text : {"node7", "node7:", ":80", "node7:0", "node7:65536", "node7:http"}) {
    EXPECT_TRUE(has(wrong({{"LADDER_RENDEZVOUS", text}}), "host:port is right")) << text;
  }
}

TEST(WorldVariables, TokenKeepsRunsApart) {
  const auto token = [](const Variables& variables, const char* flags = "flags") {
    return find_token(environment_of(variables), {.size = 2}, flags);
  };
  EXPECT_EQ(token({}).size(), 32u);
  EXPECT_NE(token({}), token({}, "others"));
  EXPECT_NE(token({}), token({{"MASTER_PORT", "1000"}}));
  EXPECT_EQ(token({{"LADDER_RUN", "a"}}), token({{"LADDER_RUN", "a"}, {"SLURM_JOB_ID", "1"}}, "others"));
  EXPECT_NE(token({{"LADDER_RUN", "a"}}), token({{"LADDER_RUN", "b"}}));
  for (const auto& [id, count] : {std::pair("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"),
                                  std::pair("SLURM_JOB_ID", "SLURM_RESTART_COUNT")}) {
    EXPECT_EQ(token({{id, "7"}, {count, "1"}}), token({{id, "7"}, {count, "1"}}, "others"));
    EXPECT_NE(token({{id, "7"}, {count, "1"}}), token({{id, "7"}, {count, "2"}}));
    EXPECT_NE(token({{id, "7"}}), token({{id, "8"}}));
  }
  EXPECT_EQ(token({{"TORCHELASTIC_RUN_ID", "none"}}), token({}));
}

}  // namespace
}  // namespace ladder::train
