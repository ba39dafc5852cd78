// What the table says of a time, and of the baselines.
#include <gtest/gtest.h>

#include "bench/roofline.h"
#include "bench/table.h"
#include "dev/conv3x3/conv3x3.h"
#include "dev/groupnorm/groupnorm.h"

namespace ladder {
namespace {

// As an H200 says of itself.
const backend::DeviceInfo kDevice{.arch = 90, .num_sms = 132, .sm_clock_khz = 1'980'000, .dram_bytes_per_s = 4.8e12};

const Case kNorm = pass_of<groupnorm::Forward>().parse("n32 h64 w64 c64 g32 silu bf16");
const Case kConvolution = pass_of<conv3x3::Fprop>().parse("n32 h64 w64 c64 k64 bf16");

TEST(Table, MemoryBoundIsWhatNeedsItsBytesLongerThanItsArithmetic) {
  EXPECT_TRUE(memory_bound(kDevice, kNorm));
  EXPECT_FALSE(memory_bound(kDevice, kConvolution));
  Case more = kNorm;
  more.flops = 1000 * kNorm.flops;
  EXPECT_FALSE(memory_bound(kDevice, more)) << "it is the intensity that counts, not the layer";
  backend::DeviceInfo unknown = kDevice;
  unknown.arch = 91;
  EXPECT_FALSE(memory_bound(unknown, kNorm));
}

TEST(Table, RatesAreInTheUnitOfTheLimit) {
  // x and y are 16 MiB each; gamma, beta, mean and rstd add 8.7 KB.
  const Rates norm = rates(kDevice, kNorm, 10e-6, 4e12, 9e-6);
  EXPECT_EQ(norm.tflops, "-");
  EXPECT_EQ(norm.gbs, "3356");
  EXPECT_EQ(norm.share_of_copy, "83.9");
  EXPECT_EQ(norm.share_of_streaming, "90.0");
  const Rates alone = rates(kDevice, kNorm, 10e-6, 0, 0);
  EXPECT_EQ(alone.share_of_copy, "-") << "no copy was measured";
  EXPECT_EQ(alone.share_of_streaming, "-") << "nor was moving the bytes";
  const Rates convolution = rates(kDevice, kConvolution, 100e-6, 4e12, 9e-6);
  EXPECT_EQ(convolution.tflops, "96.64");  // 2 * 9 * 64 * 64 * 32 * 64 * 64 operations
  EXPECT_EQ(convolution.share_of_copy, "-");
  EXPECT_EQ(convolution.share_of_streaming, "-");
}

TEST(Table, NothingTimedHasNoColumnsOfTimes) {
  const auto head = [](std::optional<double> copy_bytes_per_s) {
    testing::internal::CaptureStdout();
    const Table table({}, copy_bytes_per_s);
    return testing::internal::GetCapturedStdout();
  };
  EXPECT_EQ(head(std::nullopt), "version  problem      error  status\n");
  EXPECT_NE(head(4e12).find("us cold"), std::string::npos);
}

TEST(Table, StandingsNameWhatRanFastestFirst) {
  EXPECT_EQ(standings({{.name = "eager", .seconds = 80.2e-6},
                       {.name = "ill", .reason = "no compiler"},
                       {.name = "compiled", .seconds = 40.125e-6}}),
            "compiled 40.12, eager 80.20 us");
  EXPECT_EQ(standings({}), "");
  const Plan algorithm{.name = "algo 66 tile 22 stages 35 split-K 1 reduction 0 swizzle 0", .seconds = 1e-6};
  EXPECT_EQ(standings({algorithm, algorithm}), "") << "too long for a line";
}

TEST(Table, ABaselineSaysHowItsPlanWasFound) {
  BaselineResult baseline{
      .library = "cuDNN 9",
      .tried = {{.name = "a", .seconds = 1e-6}, {.name = "b", .reason = "ill"}, {.name = "c", .seconds = 2e-6}}};
  EXPECT_EQ(origin_of_best(baseline), "best of 2");
  baseline.searched = Searched::kept;
  EXPECT_EQ(origin_of_best(baseline), "best of an earlier search");
  baseline.searched = Searched::heuristic;
  EXPECT_EQ(origin_of_best(baseline), "heuristic; --baseline all searches");
}

TEST(Table, ProgressCountsProblemsAndEstimatesByThoseDone) {
  const Version version{.pass = &pass_of<conv3x3::Fprop>(), .number = 1, .idea = "naive"};
  Case other = kConvolution;
  other.text = "n1 h8 w8 c16 k16 bf16";
  const std::vector<Job> jobs = {{&version, kConvolution}, {&version, kConvolution}, {&version, other}};
  const std::string name = "conv3x3/fprop/v01_naive/n32 h64 w64 c64 k64 bf16";
  EXPECT_EQ(progress_line(jobs, 0, 3), "1 of 2 problems: " + name);
  EXPECT_EQ(progress_line(jobs, 1, 3), "1 of 2 problems, about 9 s left: " + name);
  EXPECT_EQ(progress_line(jobs, 2, 7), "2 of 2 problems, about 7 s left: conv3x3/fprop/v01_naive/" + other.text);
  EXPECT_EQ(progress_line({jobs[2]}, 0, 1), "1 of 1 problem: conv3x3/fprop/v01_naive/" + other.text);
}

TEST(Table, TheTallyCountsProblemsThatTheBaselineFails) {
  const Result passed{.problem = kNorm};
  Result beside_a_fault = passed;
  beside_a_fault.baseline.verdict.status = Status::fail;
  EXPECT_EQ(tally({passed}), "1 passed, 0 failed, 0 skipped, 0 untrusted");
  EXPECT_EQ(tally({beside_a_fault, beside_a_fault}), "2 passed, 0 failed, 0 skipped, 0 untrusted; baseline: 1 failed");
}

}  // namespace
}  // namespace ladder
