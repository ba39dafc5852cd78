// A kernel that loops for ever is ended, and its line named.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "core/device.h"
#include "core/error.h"
#include "tests/support.h"

#if !defined(__CUDACC__)

namespace ladder {
namespace {

const bool limited = test::at_start([] { setenv("LADDER_WATCHDOG_SECONDS", "2", 1); });

constexpr int kLoopLine = __LINE__ + 5;

__global__ void loops_for_ever(volatile int* flag) {
  if (threadIdx.x == 3) {
    flag[1] = 1;
    while (flag[0] == 0) flag[2] = flag[2] ^ 1;
  }
  __syncthreads();
}

TEST(Watchdog, EndsAKernelThatLoopsForEverAndNamesItsLine) {
  volatile int flag[3] = {};
  try {
    launch(loops_for_ever, {.grid = 1, .block = 32}, nullptr, &flag[0]);
    FAIL() << "it ended";
  } catch (const Failure& fault) {
    const std::string what = fault.what();
    EXPECT_NE(what.find("loops for ever"), std::string::npos) << what;
    EXPECT_NE(what.find("watchdog.cpp:" + std::to_string(kLoopLine)), std::string::npos) << what;
    EXPECT_NE(what.find("thread (3,0,0) of block (0,0,0)"), std::string::npos) << what;
  }
  EXPECT_EQ(flag[1], 1);
}

__global__ void ends(int* flag) {
  __syncthreads();
  if (threadIdx.x == 0) *flag = 7;
}

TEST(Watchdog, LeavesTheEmulatorFitForTheNextKernel) {
  int flag = 0;
  launch(ends, {.grid = 1, .block = 32}, nullptr, &flag);
  EXPECT_EQ(flag, 7);
}

}  // namespace
}  // namespace ladder

#endif
