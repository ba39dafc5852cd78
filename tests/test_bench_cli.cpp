// bench_conv3x3 as a user meets it: what it prints, and how it ends.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "bench/bench.h"
#include "bench/cases.h"
#include "core/backend.h"
#include "core/paths.h"
#include "core/shapes.h"
#include "dev/conv3x3/conv3x3.h"
#include "runtime/promoted.h"
#include "tests/files.h"
#include "tests/subprocess.h"

namespace ladder {
namespace {

using test::Ended;

constexpr const char* kSmall = "n1 h8 w8 c16 k16 fp32";

Ended bench(std::vector<std::string> words) {
  words.insert(words.begin(), test::built_program("bench_conv3x3"));
  return test::run_program(words);
}

// A build for GPUs on a machine without one can be asked for nothing but wrong usage.
bool lacks_device(const Ended& ended) { return ended.err.find("no CUDA device") != std::string::npos; }

#define SKIP_WITHOUT_DEVICE(ended) \
  if (lacks_device(ended)) GTEST_SKIP() << "no CUDA device"

// One line on stderr that has all the words, and exit code 2.
void expect_usage_error(const std::vector<std::string>& command, const std::vector<std::string>& expected) {
  const Ended ended = bench(command);
  SCOPED_TRACE(testing::PrintToString(command));
  EXPECT_EQ(ended.code, 2) << ended.err;
  EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
  for (const std::string& word : expected) EXPECT_NE(ended.err.find(word), std::string::npos) << ended.err;
}

// Names of the cases that a command line asks for, without running them.
std::string cases_of(std::vector<std::string> command) {
  command.push_back("--benchmark_list_tests");
  const Ended ended = bench(command);
  EXPECT_EQ(ended.code, 0) << ended.err;
  std::string names;
  std::istringstream lines(ended.out);
  for (std::string line; std::getline(lines, line);) names += line.substr(0, line.find("/iterations")) + "\n";
  return names;
}

// A log that a full disk has lost is no success; a stream that the caller closed is nobody's file.
TEST(BenchCli, WhatStandardOutputDoesNotTakeIsAFailure) {
  const std::string program = test::built_program("bench_conv3x3");
  for (const char* words : {" --list", " --help"}) {
    const Ended full = test::run_program({"bash", "-c", program + words + " >/dev/full"});
    SKIP_WITHOUT_DEVICE(full);
    EXPECT_EQ(full.code, 1) << words;
    EXPECT_NE(full.err.find("standard output: No space left on device\n"), std::string::npos) << full.err;
    const Ended closed = test::run_program({"bash", "-c", program + words + " >&-"});
    EXPECT_EQ(closed.code, 0) << closed.err;
    const Ended wrong = test::run_program({"bash", "-c", program + words + " --version x >/dev/full"});
    EXPECT_NE(wrong.code, 0);
  }
}

TEST(BenchCli, AClosedStandardOutputIsNoFileOfTheProgram) {
  const test::Scratch scratch;
  const std::string record = (scratch / "r.json").string();
  const std::string words = fmt::format(" --version 1 --problem '{}' --check --record {} >&-", kSmall, record);
  const Ended ended = test::run_program({"bash", "-c", test::built_program("bench_conv3x3") + words});
  SKIP_WITHOUT_DEVICE(ended);
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(nlohmann::json::parse(test::contents(record))["results"].size(), 1u);
}

// An installed program has its shapes beside it; a build tree's are those of the source folder.
TEST(BenchCli, ShapesBesideTheProgramComeFirst) {
  SKIP_WITHOUT_DEVICE(bench({"--version", "1", "--benchmark_list_tests"}));
  const test::Scratch scratch;
  const std::filesystem::path program = scratch / "bench_conv3x3";
  std::filesystem::copy_file(test::built_program("bench_conv3x3"), program);
  std::filesystem::create_directories(scratch / "ladder_data" / "dev" / "conv3x3");
  test::put(scratch / "ladder_data" / "dev" / "conv3x3" / "shapes.txt", "[mine]\nodd: n1 h3 w5 c7 k2\n");
  const std::vector<std::string> command = {program.string(), "--version", "1",    "--set",
                                            "mine",           "--dtype",   "fp32", "--benchmark_list_tests"};
  const Ended ended = test::run_program(command);
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.out.find("/n1 h3 w5 c7 k2 fp32"), std::string::npos) << ended.out;
  expect_usage_error({"--set", "mine"}, {"has no set 'mine'", "unet"});
}

TEST(BenchCli, WhatToRunIsSaidInNumbersAndLines) {
  SKIP_WITHOUT_DEVICE(bench({"--version", "1", "--benchmark_list_tests"}));
  constexpr const char* square = "n1 h8 w8 c16 k16";
  const std::string first = cases_of({"--version", "1", "--problem", kSmall});
  EXPECT_EQ(first, "conv3x3/fprop/v01_naive/n1 h8 w8 c16 k16 fp32\n");
  for (const char* version : {"01", "1,1"}) {
    EXPECT_EQ(cases_of({"--version", version, "--problem", square, "--dtype", "fp32"}), first) << version;
  }
  const std::string both = cases_of({"--version", "3,1", "--problem", square, "--dtype", "fp32"});
  EXPECT_EQ(both.find(first), 0u) << both;
  EXPECT_NE(both.find("/v03_"), std::string::npos) << both;
  EXPECT_EQ(std::count(both.begin(), both.end(), '\n'), 2) << both;
  const std::string dtypes = cases_of({"--version", "all", "--problem", square, "--dtype", "fp16,bf16"});
  EXPECT_NE(dtypes.find("/v01_naive/n1 h8 w8 c16 k16 bf16\n"), std::string::npos) << dtypes;
  EXPECT_NE(dtypes.find("/v01_naive/n1 h8 w8 c16 k16 fp16\n"), std::string::npos) << dtypes;
  EXPECT_EQ(dtypes.find("/v03_"), std::string::npos) << dtypes;  // `all` leaves out what has no such dtype
}

// conv3x3/fprop v01 has bf16, fp16 and fp32, v03 fp32 alone.
ChosenCases cases_on_gpu(const RequestedCases& requested, const std::vector<int>& numbers = {1}) {
  const Pass& pass = pass_of<conv3x3::Fprop>();
  std::vector<const Version*> versions;
  for (const int number : numbers) versions.push_back(&find_version(pass, number));
  return choose_cases(pass, versions, requested, backend::Kind::gpu);
}

TEST(BenchCases, TheDefaultIsPerfInOneDtypeAndSaysTheRest) {
  const ChosenCases chosen = cases_on_gpu({});
  std::vector<std::string> lines;
  for (const Case& c : chosen.cases) lines.push_back(c.text);
  EXPECT_EQ(lines, (std::vector<std::string>{"n32 h64 w64 c64 k64 bf16", "n32 h32 w32 c128 k128 bf16",
                                             "n32 h8 w8 c256 k256 bf16"}));
  EXPECT_EQ(chosen.left_out, "fp16, fp32 (--dtype all), the 19 problems of unet (--set unet)");
  EXPECT_TRUE(chosen.one_dtype);
}

TEST(BenchCases, TheDefaultDtypeIsOneThatAVersionHas) {
  const ChosenCases chosen = cases_on_gpu({}, {3});
  for (const Case& c : chosen.cases) EXPECT_EQ(c.dtype, Dtype::f32);
  EXPECT_EQ(chosen.left_out, "the 19 problems of unet (--set unet)");
  for (const Case& c : cases_on_gpu({}, {1, 3}).cases) EXPECT_EQ(c.dtype, Dtype::bf16);
}

TEST(BenchCases, WordsMeanWhatTheySay) {
  EXPECT_EQ(cases_on_gpu({.dtype = "all"}).cases.size(), 3u * 4u);
  EXPECT_EQ(cases_on_gpu({.dtype = "all"}).left_out, "the 19 problems of unet (--set unet)");
  EXPECT_EQ(cases_on_gpu({.dtype = "fp16,fp32"}).cases.size(), 3u * 2u);
  EXPECT_EQ(cases_on_gpu({.set = "unet"}).cases.size(), 19u * 4u);
  EXPECT_EQ(cases_on_gpu({.set = "unet"}).left_out, "");
  EXPECT_EQ(cases_on_gpu({.set = "unet", .dtype = "bf16"}).cases.size(), 19u);
  EXPECT_EQ(cases_on_gpu({.problems = {"n1 h8 w8 c16 k16"}}).cases.size(), 4u);
  EXPECT_EQ(cases_on_gpu({.problems = {kSmall}, .dtype = "all"}).cases.size(), 1u);
  EXPECT_FALSE(cases_on_gpu({.problems = {kSmall}}).one_dtype);
}

TEST(BenchCases, TheEmulatorsDefaultIsCiInEveryDtype) {
  const Pass& pass = pass_of<conv3x3::Fprop>();
  const ChosenCases chosen = choose_cases(pass, {&find_version(pass, 1)}, {}, backend::Kind::emulator);
  EXPECT_EQ(chosen.cases.size(), 4 * named_cases(pass, "ci").size());
  EXPECT_EQ(chosen.left_out, "");
}

TEST(BenchCli, PromotedIsWhatTheTrainerTakes) {
  SKIP_WITHOUT_DEVICE(bench({"--version", "1", "--benchmark_list_tests"}));
  const auto table = Promotions::load(source_dir() + "/runtime/promoted/h200.txt");
  std::vector<std::string> command = {"--promoted"};
  std::string expected;
  for (const auto& [problem, version] : table.lines()) {
    if (!problem.pass->is_default) continue;
    command.insert(command.end(), {"--problem", problem.text});
    expected += fmt::format("{}/{}/{}\n", problem.pass->path(), version->label(), problem.text);
  }
  ASSERT_FALSE(expected.empty());
  EXPECT_EQ(cases_of(command), expected);

  const auto& [problem, version] = table.lines().front();
  const std::size_t batch_end = problem.text.find(' ');
  const std::string text = "n31" + problem.text.substr(batch_end);
  const Ended ended = bench({"--pass", problem.pass->name, "--promoted", "--problem", text, "--benchmark_list_tests"});
  const std::string why = fmt::format("promoted for '{}': {}, recorded for {}\n", text, version->label(),
                                      problem.text.substr(0, batch_end));
  EXPECT_NE(ended.err.find(why), std::string::npos) << ended.err;
}

TEST(BenchCli, WithoutAPromotedVersionNoneIsTaken) {
  SKIP_WITHOUT_DEVICE(bench({"--version", "1", "--benchmark_list_tests"}));
  const std::string says = "conv3x3/dgrad has no promoted version for 'n1 h8 w8 c16 k16 fp16'; --version N names one";
  std::vector<std::string> command = {"--pass", "dgrad", "--promoted", "--problem", "n1 h8 w8 c16 k16", "--dtype"};
  command.push_back("fp16");
  expect_usage_error(command, {says});
  command.back() = "fp16,bf16";
  command.push_back("--benchmark_list_tests");
  const Ended ended = bench(command);
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.err.find(says), std::string::npos) << ended.err;
  EXPECT_NE(ended.out.find("/n1 h8 w8 c16 k16 bf16"), std::string::npos) << ended.out;
  EXPECT_EQ(ended.out.find("fp16"), std::string::npos) << ended.out;
}

TEST(BenchCli, WrongUsageIsOneLineThatNamesWhatWouldBeRight) {
  expect_usage_error({"--version", "99"}, {"99", "1, 2, 3"});
  expect_usage_error({"--version", "1,"}, {"--version ''"});
  for (const char* word : {"wmma", "5-9", "v07", "v01_naive", "best"}) {
    expect_usage_error({"--version", word},
                       {fmt::format("--version '{}'", word), "7 or 5,6,9", "./ladder bench conv3x3 --version", word});
  }
  for (const char* name : {"square", "ci/square", "nowhere"}) {
    expect_usage_error({"--problem", name}, {name, "shapes.txt", "./ladder bench", "n32 h64 w64"});
  }
  expect_usage_error({"--promoted", "--version", "7"}, {"--promoted", "--version"});
  for (const char* seed : {"-1", "18446744073709551616", "1.5"}) expect_usage_error({"--seed", seed}, {"--seed", seed});
  for (const char* flag : {"--version", "--seed", "--set", "--dtype", "--schedule", "--device"}) {
    expect_usage_error({flag, ""}, {flag, "empty"});
  }
  expect_usage_error({"--benchmark_format=yaml"}, {"--benchmark_format", "yaml", "json"});
  expect_usage_error({"--dtype", "bf16,int8"}, {"int8", "fp32", "tf32", "all"});
  expect_usage_error({"--dtype", "bf16,all"}, {"--dtype bf16,all", "or all"});
  expect_usage_error({"--problem", "n0 h-1"}, {"n0", "n32 h64 w64"});
  expect_usage_error({"--problem", "n\uff18 h8 w8 c16 k16 fp32"}, {"'n\uff18' should be n and a whole number from 1"});
  expect_usage_error({"--problem", ""}, {"n32 h64 w64"});
  expect_usage_error({"--set", "nowhere"}, {"nowhere", "unet", "edge", "ci", "perf"});
  expect_usage_error({"--pass", "sideways"}, {"sideways", "conv3x3/fprop"});
  expect_usage_error({"--dtype", "int8"}, {"int8", "fp32", "tf32", "bf16", "fp16"});
  expect_usage_error({"--version", "3", "--dtype", "bf16"}, {"v03", "bf16", "fp32"});
  expect_usage_error({"--version", "3", "--problem", "n1 h1 w1 c1 k1 bf16"}, {"v03", "bf16", "fp32"});
  expect_usage_error({"--schedule", "sideways"}, {"--schedule", "sideways", "greedy"});
  expect_usage_error({"--dtype", "fp16", "--problem", "n1 h1 w1 c1 k1 bf16"}, {"fp16", "contradicts"});
  expect_usage_error({"--set", "ci", "--problem", kSmall}, {"--problem", "--set"});
  expect_usage_error({"--check", "--once"}, {"--check", "--once"});
  expect_usage_error({"--inject-slowdown", "2", "--version", "1"}, {"--inject-slowdown", "--unchecked"});
  expect_usage_error({"--unchecked", "--once"}, {"--unchecked", "--once"});
  expect_usage_error({"--device", "tpu"}, {"tpu", "gpu", "emulator"});
  expect_usage_error({"--baseline", "nobody"}, {"nobody", "heuristic", "kept", "search"});
  expect_usage_error({"--baseline", "nowhere/mine.py"}, {"nowhere/mine.py", "no such file"});
  expect_usage_error({"--samples", "0", "--version", "1"}, {"samples"});
  expect_usage_error({"--velocity", "1"}, {"--velocity", "--help"});
  expect_usage_error({"stray"}, {"stray", "--help"});
}

TEST(BenchCli, TheOtherBackendIsRefused) {
  const Ended gpu = bench({"--device", "gpu", "--version", "1", "--problem", kSmall, "--check"});
  const Ended emulator = bench({"--device", "emulator", "--version", "1", "--problem", kSmall, "--check"});
  EXPECT_TRUE(gpu.code == 2 || emulator.code == 2);
  const Ended& refused = emulator.code == 2 ? emulator : gpu;
  EXPECT_NE(refused.err.find("cmake --preset"), std::string::npos) << refused.err;
}

TEST(BenchCli, HelpAndListNeedNoDevice) {
  const Ended help = bench({"--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_NE(help.out.find("Examples"), std::string::npos);
  EXPECT_NE(help.out.find("--benchmark_filter"), std::string::npos);

  const Ended list = bench({"--list"});
  EXPECT_EQ(list.code, 0) << list.err;
  for (const Version* v : all_versions()) {
    if (v->pass == &pass_of<conv3x3::Fprop>() && v->number < 90) {
      EXPECT_NE(list.out.find(v->label()), std::string::npos) << list.out;
    }
  }
}

// ./ladder makes its flags of the file. Made by: bench_conv3x3 --describe > bench/flags.json
TEST(BenchCli, TheDescriptionOfItsFlagsIsFresh) {
  std::ifstream file(source_dir() + "/bench/flags.json");
  std::stringstream text;
  text << file.rdbuf();
  const Ended described = bench({"--describe"});
  EXPECT_EQ(described.code, 0) << described.err;
  EXPECT_EQ(described.out, text.str());
}

TEST(BenchCli, ACheckPrintsDeviceSeedRowAndTally) {
  const Ended ended = bench({"--version", "1", "--problem", kSmall, "--check", "--seed", "7"});
  SKIP_WITHOUT_DEVICE(ended);
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.out.find("device: "), 0u) << ended.out;
  EXPECT_NE(ended.out.find("seed: 7\n"), std::string::npos) << ended.out;
  EXPECT_NE(ended.out.find("PASS"), std::string::npos) << ended.out;
  EXPECT_NE(ended.out.find("1 passed, 0 failed, 0 skipped, 0 untrusted"), std::string::npos) << ended.out;
}

TEST(BenchCli, TheSeedIsDrawnAnewAndPrinted) {
  const auto seed_of = [](const Ended& ended) {
    const std::size_t at = ended.out.find("seed: ");
    return at == std::string::npos ? std::string() : ended.out.substr(at, ended.out.find('\n', at) - at);
  };
  const std::vector<std::string> command = {"--version", "1", "--problem", kSmall, "--check"};
  const Ended first = bench(command);
  SKIP_WITHOUT_DEVICE(first);
  const Ended second = bench(command);
  EXPECT_FALSE(seed_of(first).empty());
  EXPECT_NE(seed_of(first), seed_of(second));
}

TEST(BenchCli, RandomProblemsComeBesideTheOthersAndFromTheSeed) {
  const auto with_random = [](const char* seed) {
    return bench({"--version", "1", "--problem", kSmall, "--random", "3", "--check", "--seed", seed});
  };
  const Ended ended = with_random("7");
  SKIP_WITHOUT_DEVICE(ended);
  EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
  EXPECT_NE(ended.out.find("4 passed, 0 failed, 0 skipped, 0 untrusted"), std::string::npos) << ended.out;
  EXPECT_EQ(with_random("7").out, ended.out);
  EXPECT_NE(with_random("8").out, ended.out);
  expect_usage_error({"--version", "1", "--check", "--random=-1"}, {"--random"});
}

TEST(BenchCli, OnceLaunchesEveryJobOnce) {
  const Ended ended = bench({"--version", "1", "--problem", kSmall, "--once"});
  SKIP_WITHOUT_DEVICE(ended);
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.out.find("conv3x3/fprop/v01/n1 h8 w8 c16 k16 fp32  launched once"), std::string::npos) << ended.out;
}

TEST(BenchCli, GoogleBenchmarksFlagsWork) {
  const std::filesystem::path out = std::filesystem::temp_directory_path() / ("ladder_gb_" + std::to_string(getpid()));
  const Ended ended = bench({"--version", "1", "--set", "ci", "--dtype", "fp32", "--check",
                             "--benchmark_filter=c24 k40", "--benchmark_out=" + out.string()});
  SKIP_WITHOUT_DEVICE(ended);
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.out.find("1 passed, 0 failed"), std::string::npos) << ended.out;
  std::ifstream file(out);
  const nlohmann::json json = nlohmann::json::parse(file);
  EXPECT_EQ(json.at("benchmarks").size(), 1u);
  for (const char* key : {"commit", "dirty", "compiler", "flags", "device_name"}) {
    EXPECT_TRUE(json.at("context").contains(key)) << key;
  }
  std::filesystem::remove(out);

  const Ended none = bench({"--version", "1", "--set", "ci", "--check", "--benchmark_filter=no such thing"});
  EXPECT_EQ(none.code, 2);
  EXPECT_NE(none.err.find("nothing matched"), std::string::npos) << none.err;
  expect_usage_error({"--version", "1", "--check", "--benchmark_velocity=1"}, {"--benchmark_velocity"});
}

TEST(BenchCli, AnUntrustedCheckIsNoSuccessAndASkippedOneIsNoFailure) {
  // A row of one element has the softmax 1: any version that writes ones would pass.
  const Ended untrusted = test::run_program({test::built_program("bench_softmax"), "--version", "1", "--problem",
                                             "m4 n1 fp32", "--problem", "m9 n7 fp32", "--check"});
  SKIP_WITHOUT_DEVICE(untrusted);
  EXPECT_EQ(untrusted.code, 1) << untrusted.out;
  EXPECT_NE(untrusted.out.find("UNTRUSTED, cause 1\n    every output is a constant"), std::string::npos)
      << untrusted.out;
  EXPECT_NE(untrusted.out.find("1 passed, 0 failed, 0 skipped, 1 untrusted"), std::string::npos) << untrusted.out;
  const Ended skipped = bench({"--version", "9", "--problem", "n1 h8 w8 c3 k5 bf16", "--check"});
  EXPECT_EQ(skipped.code, 0) << skipped.err;
  EXPECT_NE(skipped.out.find("1 skipped"), std::string::npos) << skipped.out;
}

// A version that leaves its output as it found it.
void write_nothing(const conv3x3::Problem&, const conv3x3::Fprop::Tensors&, void*, Stream) {}

TEST(BenchCli, AFailedCheckEndsWithOneAndTheCommandThatShowsItAgain) {
  const Ended ended = test::run_function([] {
    register_version<conv3x3::Fprop>("v90_writes_nothing.cu", {.launch = write_nothing, .dtypes = {Dtype::f32}});
    std::vector<std::string> words = {"bench", "--version", "90", "--problem", kSmall, "--seed", "3"};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    return bench_main("conv3x3", static_cast<int>(argv.size()), argv.data());
  });
  SKIP_WITHOUT_DEVICE(ended);
  EXPECT_EQ(ended.code, 1) << ended.err;
  EXPECT_NE(ended.out.find("FAIL"), std::string::npos) << ended.out;
  constexpr const char* kAgain =
      "again: ./ladder bench conv3x3/fprop --version 90 --problem 'n1 h8 w8 c16 k16 fp32' --seed 3";
  EXPECT_NE(ended.out.find(kAgain), std::string::npos) << ended.out;
  EXPECT_NE(ended.out.find("\ncause 1: 1 of 1 cases of v90_writes_nothing, in fp32\n"), std::string::npos) << ended.out;
  // No time for it: where microseconds would be a dash follows the problem or, where nothing is timed, the error.
  std::istringstream after(ended.out.substr(ended.out.find(std::string("v90_writes_nothing  ") + kSmall)));
  std::string word;
  for (int i = 0; i < 8; ++i) after >> word;
  EXPECT_EQ(word, backend::kind() == backend::Kind::gpu ? "-" : "inf") << ended.out;
}

}  // namespace
}  // namespace ladder
