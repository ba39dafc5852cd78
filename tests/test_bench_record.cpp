// Records: what is in them, that a result can be had again from its own command, and that none is lost in writing.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "bench/record.h"
#include "core/error.h"
#include "dev/conv3x3/conv3x3.h"
#include "tests/subprocess.h"

namespace ladder {
namespace {

using nlohmann::json;
using test::Ended;
namespace fs = std::filesystem;

class Record : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("ladder_record_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) names.push_back(entry.path().filename());
    return names;
  }
  void write(const std::string& name, const std::string& text) const { std::ofstream(path(name)) << text; }
  static std::string read(const std::string& file) {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
  }

  fs::path folder_;
};

Ended shell(const std::string& command) { return test::run_program({"bash", "-c", command}); }

std::string checking(const std::string& record) {
  return test::built_program("bench_conv3x3") + " --version 1 --set ci --dtype fp32 --check --seed 11 --record " +
         record;
}

#define SKIP_WITHOUT_DEVICE(ended) \
  if (ended.err.find("no CUDA device") != std::string::npos) GTEST_SKIP() << "no CUDA device"

void expect_keys(const json& object, const std::vector<std::string>& keys) {
  for (const std::string& key : keys) EXPECT_TRUE(object.contains(key)) << key << " is missing in " << object.dump(1);
  EXPECT_EQ(object.size(), keys.size()) << object.dump(1);
}

TEST_F(Record, HoldsWhatTheSchemaSays) {
  const Ended ended = shell(checking(path("a.json")));
  SKIP_WITHOUT_DEVICE(ended);
  ASSERT_EQ(ended.code, 0) << ended.err;
  const json record = json::parse(read(path("a.json")));
  expect_keys(record, {"schema", "created", "command", "seed", "environment", "calibration", "results"});
  EXPECT_EQ(record["schema"], kRecordSchema);
  EXPECT_EQ(record["environment"]["binary"].get<std::string>().size(), 40u) << "no SHA-1 build id";
  EXPECT_EQ(record["seed"], 11);
  EXPECT_TRUE(record["calibration"].is_null());
  expect_keys(record["environment"], {"device", "host", "commit", "dirty", "binary", "build", "compiler", "flags"});
  EXPECT_TRUE(record["environment"]["dirty"].is_boolean());
  ASSERT_FALSE(record["results"].empty());
  for (const json& result : record["results"]) {
    expect_keys(result, {"layer", "pass", "version", "idea", "problem", "dtype", "flops", "min_read_bytes",
                         "min_write_bytes", "roofline_seconds", "plan", "workspace_bytes", "verdict", "times",
                         "baseline", "streaming", "digest", "command", "seconds_spent"});
    expect_keys(result["verdict"], {"status", "reason", "error", "errors", "worst_over_bound", "unwritten"});
    EXPECT_EQ(result["verdict"]["status"], "PASS");
    EXPECT_GT(result["verdict"]["error"].get<double>(), 0);
    EXPECT_TRUE(result["times"].is_null());
    EXPECT_TRUE(result["streaming"].is_null());
  }
}

TEST_F(Record, ARowsCommandDoesTheRowAgain) {
  const Ended ended = shell(checking(path("a.json")));
  SKIP_WITHOUT_DEVICE(ended);
  const json first = json::parse(read(path("a.json")))["results"].back();
  const Ended again = shell(first["command"].get<std::string>() + " --record " + path("b.json"));
  ASSERT_EQ(again.code, 0) << again.err;
  const json second = json::parse(read(path("b.json")))["results"];
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0]["problem"], first["problem"]);
  EXPECT_EQ(second[0]["verdict"]["error"], first["verdict"]["error"]);
  EXPECT_EQ(second[0]["command"], first["command"]);
}

TEST_F(Record, TimesAndBaselineGoThroughJson) {
  Result result;
  const Case c = pass_of<conv3x3::Fprop>().parse("n1 h8 w8 c16 k16 bf16");
  const std::vector<const Version*> versions = versions_of(pass_of<conv3x3::Fprop>());
  ASSERT_FALSE(versions.empty());
  result.version = versions.front();
  result.problem = c;
  result.verdict = {.status = Status::untrusted, .reason = "because", .error = 0.25, .worst = 0.5, .unwritten = 3};
  Times times;
  times.cold = {{1e-6, 2e-6, 3e-6, 1e9}, {2e-6, 3e-6, 0, 2e9}};
  times.cold_seconds = median_interval({1e-6, 2e-6});
  times.throttled = 1;
  result.times = times;
  result.baseline.library = "cuDNN 9";
  result.baseline.searched = Searched::kept;
  result.baseline.best = {.name = "eng1 nhwc", .seconds = 1e-6};
  result.baseline.tried = {result.baseline.best, {.name = "eng2 nhwc", .reason = "not supported"}};
  times.cold = {{.seconds = 1e-6}, {.seconds = 2e-6}};  // of a timer that knows no more
  result.baseline.times = times;
  result.baseline.reason = "no PyTorch";
  result.baseline.empty_seconds = 3e-6;
  result.baseline.verdict.errors = {0.5, {}};
  result.streaming = {.seconds = 2.34e-6, .samples = {2.00004e-6, 9e-6, 2.34e-6}};

  const json out = json::parse(to_json(result).dump());
  EXPECT_EQ(out["verdict"]["status"], "UNTRUSTED");
  EXPECT_EQ(out["verdict"]["unwritten"], 3);
  expect_keys(out["times"], {"cold_seconds", "warm_seconds", "throttled_samples", "cold_samples", "warm_samples"});
  EXPECT_EQ(out["times"]["cold_samples"]["seconds"], (std::vector<double>{1e-6, 2e-6}));
  EXPECT_EQ(out["times"]["cold_samples"]["sm_clock_hz"], (std::vector<double>{1e9, 2e9}));
  EXPECT_DOUBLE_EQ(out["times"]["cold_seconds"]["median"], 1.5e-6);
  EXPECT_TRUE(out["times"]["warm_seconds"].is_null());
  expect_keys(out["baseline"],
              {"library", "reason", "search", "best_plan", "best_library", "heuristic_plan", "heuristic_library",
               "tried_plans", "workspace_bytes", "empty_seconds", "verdict", "times", "heuristic_times"});
  EXPECT_EQ(out["baseline"]["reason"], "no PyTorch");
  EXPECT_EQ(out["baseline"]["search"], "kept");
  EXPECT_EQ(out["baseline"]["empty_seconds"], 3e-6);
  EXPECT_EQ(out["baseline"]["verdict"]["errors"], json({0.5, nullptr}));
  EXPECT_EQ(out["baseline"]["times"]["cold_samples"]["seconds"], (std::vector<double>{1e-6, 2e-6}));
  EXPECT_EQ(out["baseline"]["times"]["cold_samples"]["sm_clock_hz"], json({nullptr, nullptr}));
  EXPECT_EQ(out["baseline"]["tried_plans"][1]["reason"], "not supported");
  EXPECT_TRUE(out["baseline"]["heuristic_times"].is_null());
  expect_keys(out["streaming"], {"seconds", "samples"});
  EXPECT_EQ(out["streaming"]["seconds"], 2.34e-6);
  EXPECT_EQ(out["streaming"]["samples"], (std::vector<double>{2e-6, 9e-6, 2.34e-6}));
}

TEST_F(Record, AnUnwritablePathIsRefusedBeforeAnyWork) {
  write("a_file", "");
  for (const std::string& bad :
       {path("no_such_folder/r.json"), path("a_file/r.json"), folder_.string(), std::string("/dev/full")}) {
    const Ended ended = shell(checking(bad));
    SKIP_WITHOUT_DEVICE(ended);
    EXPECT_EQ(ended.code, 2) << bad;
    EXPECT_EQ(ended.out, "") << "work was done before " << bad << " was refused";
    EXPECT_NE(ended.err.find(bad), std::string::npos) << ended.err;
  }
}

TEST_F(Record, ALinkStaysAndItsFileIsReplaced) {
  write("old.json", "the old one");
  fs::create_symlink("old.json", path("link.json"));
  const Ended ended = shell(checking(path("link.json")));
  SKIP_WITHOUT_DEVICE(ended);
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_TRUE(fs::is_symlink(path("link.json")));
  EXPECT_TRUE(json::parse(read(path("old.json"))).contains("results"));
  EXPECT_EQ(files().size(), 2u);
}

TEST_F(Record, AFullDiskLeavesTheOldRecordWhole) {
  write("r.json", "the old one");
  // The kernel refuses every byte of a file beyond the first 1024, as a full disk would.
  const Ended ended = shell("trap '' XFSZ; ulimit -f 1; " + checking(path("r.json")));
  SKIP_WITHOUT_DEVICE(ended);
  EXPECT_EQ(ended.code, 1) << ended.out << ended.err;
  EXPECT_NE(ended.err.find("was not written"), std::string::npos) << ended.err;
  EXPECT_EQ(read(path("r.json")), "the old one");
  EXPECT_TRUE(fs::exists(path("r.json.partial"))) << "what was measured is lost";
  EXPECT_EQ(files().size(), 2u) << "something else was left behind";
}

// A partial record as an interruption would leave it: the first results of `complete`, and the next one cut off.
std::string interrupted(const json& complete, std::size_t results) {
  std::string text = json{{"schema", kRecordSchema}, {"environment", complete["environment"]}}.dump() + "\n";
  for (std::size_t i = 0; i < results; ++i) text += complete["results"][i].dump() + "\n";
  return text + complete["results"][results].dump().substr(0, 40);
}

TEST_F(Record, AnInterruptedRunGoesOnWhereItWas) {
  const Ended first = shell(checking(path("a.json")));
  SKIP_WITHOUT_DEVICE(first);
  const json complete = json::parse(read(path("a.json")));
  ASSERT_GE(complete["results"].size(), 4u);
  json marked = complete;
  marked["results"][0]["digest"] = "kept";
  write("b.json.partial", interrupted(marked, 2));

  const Ended refused = shell(checking(path("b.json")));
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("--resume"), std::string::npos) << refused.err;

  const Ended resumed = shell(checking(path("b.json")) + " --resume");
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_NE(resumed.out.find("resumed: 2 results kept"), std::string::npos) << resumed.out;
  EXPECT_FALSE(fs::exists(path("b.json.partial")));
  const json record = json::parse(read(path("b.json")));
  ASSERT_EQ(record["results"].size(), complete["results"].size());
  EXPECT_EQ(record["results"][0]["digest"], "kept") << "what was there was measured again";
  for (std::size_t i = 0; i < record["results"].size(); ++i) {
    EXPECT_EQ(record["results"][i]["problem"], complete["results"][i]["problem"]);
    EXPECT_EQ(record["results"][i]["verdict"]["status"], "PASS");
  }
}

TEST_F(Record, ARunThatEndedBeforeItsFirstLineCountsAsNone) {
  const Ended first = shell(checking(path("a.json")));
  SKIP_WITHOUT_DEVICE(first);
  const json complete = json::parse(read(path("a.json")));
  const std::string line = json{{"schema", kRecordSchema}, {"environment", complete["environment"]}}.dump() + "\n";
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, line.size() / 2, line.size() - 1}) {
    for (const char* resume : {"", " --resume"}) {
      write("b.json.partial", line.substr(0, bytes));
      const Ended ended = shell(checking(path("b.json")) + resume);
      EXPECT_EQ(ended.code, 0) << bytes << resume << ended.err;
      EXPECT_EQ(json::parse(read(path("b.json")))["results"].size(), complete["results"].size());
      fs::remove(path("b.json"));
    }
  }
}

TEST_F(Record, NothingLeftToDoIsStillARecord) {
  const Ended first = shell(checking(path("a.json")));
  SKIP_WITHOUT_DEVICE(first);
  json complete = json::parse(read(path("a.json")));
  complete["results"].push_back(complete["results"][0]);
  write("b.json.partial", interrupted(complete, complete["results"].size() - 1));
  EXPECT_EQ(shell(checking(path("b.json")) + " --resume").code, 0);
  EXPECT_EQ(json::parse(read(path("b.json")))["results"].size(), complete["results"].size() - 1);
}

TEST_F(Record, AFailureBeforeTheInterruptionStillCounts) {
  const Ended first = shell(checking(path("a.json")));
  SKIP_WITHOUT_DEVICE(first);
  json complete = json::parse(read(path("a.json")));
  complete["results"][0]["verdict"]["status"] = "FAIL";
  write("b.json.partial", interrupted(complete, 1));
  EXPECT_EQ(shell(checking(path("b.json")) + " --resume").code, 1);
}

TEST_F(Record, AnotherBuildsResultsAreNotMixedIn) {
  const Ended first = shell(checking(path("a.json")));
  SKIP_WITHOUT_DEVICE(first);
  json complete = json::parse(read(path("a.json")));
  complete["environment"]["binary"] = "another";
  write("b.json.partial", interrupted(complete, 1));
  const std::string before = read(path("b.json.partial"));
  const Ended refused = shell(checking(path("b.json")) + " --resume");
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("binary \"another\", now"), std::string::npos) << refused.err;
  EXPECT_EQ(read(path("b.json.partial")), before);

  write("b.json.partial", "not a record\n");
  EXPECT_EQ(shell(checking(path("b.json")) + " --resume").code, 2);
  EXPECT_EQ(shell(test::built_program("bench_conv3x3") + " --check --resume").code, 2);
}

TEST_F(Record, WhatNobodyJudgedIsMarkedAndItsDigestRepeats) {
  const auto unchecked = [&](int seed, const std::string& record) {
    return shell(test::built_program("bench_conv3x3") +
                 " --version 1 --problem 'n1 h8 w8 c16 k16 fp32' --unchecked --samples 3 --seed " +
                 std::to_string(seed) + " --record " + path(record));
  };
  const Ended ended = unchecked(11, "a.json");
  SKIP_WITHOUT_DEVICE(ended);
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_NE(ended.out.find("0 passed, 0 failed, 0 skipped, 0 untrusted, 1 not checked"), std::string::npos);
  unchecked(11, "b.json");
  unchecked(12, "c.json");
  const auto result = [&](const std::string& name) { return json::parse(read(path(name)))["results"][0]; };
  EXPECT_EQ(result("a.json")["verdict"]["status"], "UNCHECKED");
  EXPECT_EQ(result("a.json")["digest"].get<std::string>().size(), 16u);
  EXPECT_EQ(result("a.json")["digest"], result("b.json")["digest"]);
  EXPECT_NE(result("a.json")["digest"], result("c.json")["digest"]);
}

TEST_F(Record, ALaunchForAProfilerLeavesWhereItRanAndTheLowerBound) {
  const Ended ended = shell(test::built_program("bench_conv3x3") +
                            " --version 1 --problem 'n1 h8 w8 c16 k16 fp32' --once --record " + path("a.json"));
  SKIP_WITHOUT_DEVICE(ended);
  ASSERT_EQ(ended.code, 0) << ended.err;
  const json record = json::parse(read(path("a.json")));
  ASSERT_EQ(record["results"].size(), 1u);
  EXPECT_EQ(record["results"][0]["verdict"]["status"], "UNCHECKED");
  EXPECT_TRUE(record["results"][0]["times"].is_null());
  EXPECT_TRUE(record["results"][0].contains("roofline_seconds"));
}

}  // namespace
}  // namespace ladder
