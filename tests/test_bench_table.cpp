// The bench table: rates of a time, causes of failures, and baselines.
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "bench/causes.h"
#include "bench/roofline.h"
#include "bench/table.h"
#include "dev/conv3x3/conv3x3.h"
#include "dev/groupnorm/groupnorm.h"

namespace ladder {
namespace {

// Device properties that an H200 reports.
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
  EXPECT_EQ(norm.copy_percent, "83.9");
  EXPECT_EQ(norm.streaming_percent, "90.0");
  const Rates alone = rates(kDevice, kNorm, 10e-6, 0, 0);
  EXPECT_EQ(alone.copy_percent, "-") << "no copy was measured";
  EXPECT_EQ(alone.streaming_percent, "-") << "nor was moving the bytes";
  const Rates convolution = rates(kDevice, kConvolution, 100e-6, 4e12, 9e-6);
  EXPECT_EQ(convolution.tflops, "96.64");  // 2 * 9 * 64 * 64 * 32 * 64 * 64 operations
  EXPECT_EQ(convolution.copy_percent, "-");
  EXPECT_EQ(convolution.streaming_percent, "-");
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

// Returns a result, by default a failure.
Result result_of(const Version& v, const char* problem, const std::string& reason, Status status = Status::fail) {
  Result result;
  result.version = &v;
  result.problem = pass_of<groupnorm::Forward>().parse(problem);
  result.verdict = {.status = status, .reason = reason};
  return result;
}

constexpr const char* kSmall = "n1 h4 w4 c8 g2 fp32";
constexpr const char* kNarrow = "n1 h4 w4 c8 g2 bf16";

TEST(Causes, AreALineOfTheKernelOrAReasonWithoutItsNumbers) {
  const Version v{.pass = kNorm.pass, .number = 7, .idea = "one"};
  const Version w{.pass = kNorm.pass, .number = 8, .idea = "two"};
  Causes causes;
  std::vector<Result> results;
  const auto add = [&](const Version& version, const char* reason) {
    results.push_back(result_of(version, kSmall, reason));
    return causes.add(results.back());
  };
  EXPECT_EQ(add(v, "v07_one.cu:36: misaligned: x + 20 bytes"), 1);
  EXPECT_EQ(add(v, "v07_one.cu:36: a read out of bounds"), 1);
  EXPECT_EQ(add(v, "v07_one.cu:37: misaligned: x + 20 bytes"), 2);
  EXPECT_EQ(add(v, "y[n0 c1] = 2 where 3 +- 1e-07 is right; 1 of 9 elements are wrong"), 3);
  EXPECT_EQ(add(v, "y[n0 c2] = nan where 0 +- 1e-07 is right; 8 of 20 elements are wrong"), 3);
  EXPECT_EQ(add(v, "2 of 10 elements were never written"), 4);
  EXPECT_EQ(add(w, "2 of 10 elements were never written"), 5) << "another version's";
  results.push_back(result_of(v, kSmall, "", Status::pass));
  results.push_back(result_of(v, kSmall, "too narrow", Status::skip));
  EXPECT_EQ(causes.summary(results),
            "cause 1: 2 of 7 cases of v07_one, in fp32\n"
            "cause 2: 1 of 7 cases of v07_one, in fp32\n"
            "cause 3: 2 of 7 cases of v07_one, in fp32\n"
            "cause 4: 1 of 7 cases of v07_one, in fp32\n"
            "cause 5: 1 of 1 cases of v08_two, in fp32\n");
}

TEST(Causes, ARoundingIsSuspectedWhereOnlyTwoByteTypesAreWrong) {
  const Version v{.pass = kNorm.pass, .number = 7, .idea = "one"};
  const std::string wrong = "y[n0] = 2 where 3 +- 0.1 is right; 1 of 9 elements are wrong";
  const Result narrow = result_of(v, kNarrow, wrong);
  const Result passed = result_of(v, kSmall, "", Status::pass);
  EXPECT_NE(rounding_suspected({passed, narrow}, v), "");
  EXPECT_EQ(rounding_suspected({narrow}, v), "") << "nothing is known of fp32";
  EXPECT_EQ(rounding_suspected({passed}, v), "");
  EXPECT_EQ(rounding_suspected({passed, narrow, result_of(v, kSmall, wrong)}, v), "") << "fp32 is wrong too";
  EXPECT_EQ(rounding_suspected({passed, result_of(v, kNarrow, "v07_one.cu:3: misaligned")}, v), "");
  Causes causes;
  causes.add(narrow);
  EXPECT_NE(causes.summary({passed, narrow}).find("\n    only 2-byte types fail"), std::string::npos);
}

TEST(Causes, AreWrappedWithinEightyColumns) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "word" + std::to_string(i) + ' ';
  std::istringstream lines(wrapped(text));
  std::string all;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80u);
    EXPECT_TRUE(line.starts_with("    word")) << line;
    all += line.substr(4) + ' ';
  }
  EXPECT_EQ(all, text);
}

TEST(Table, ACauseIsToldInFullOnce) {
  const Version v{.pass = kNorm.pass, .number = 7, .idea = "one"};
  testing::internal::CaptureStdout();
  Table table({}, std::nullopt, " --seed 3");
  table.print(result_of(v, kSmall, "2 of 10 elements were never written"));
  table.print(result_of(v, kNarrow, "3 of 12 elements were never written"));
  const std::string out = testing::internal::GetCapturedStdout();
  EXPECT_NE(
      out.find("FAIL, cause 1\n    2 of 10 elements were never written\n    again: ./ladder bench groupnorm/forward "
               "--version 7 --problem 'n1 h4 w4 c8 g2 fp32' --seed 3\n"),
      std::string::npos)
      << out;
  EXPECT_EQ(out.find("3 of 12"), std::string::npos) << out;
  EXPECT_TRUE(out.ends_with("FAIL, cause 1\n")) << out;
}

TEST(Table, StandingsNameWhatRanFastestFirst) {
  EXPECT_EQ(standings({{.name = "eager", .seconds = 80.2e-6},
                       {.name = "ill", .reason = "no compiler"},
                       {.name = "compiled", .seconds = 40.125e-6}}),
            "compiled 40.12, eager 80.20 us");
  EXPECT_EQ(standings({}), "");
  const BaselinePlan algorithm{.name = "algo 66 tile 22 stages 35 split-K 1 reduction 0 swizzle 0", .seconds = 1e-6};
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
