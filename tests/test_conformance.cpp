// The conformance program: what it dumps agrees with itself, and a dump that is missing, cut short or changed is refused
// in one clear line.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "core/backend.h"

namespace ladder {
namespace {

namespace fs = std::filesystem;

struct Result {
  int status = 0;
  std::string output;
};

class Conformance : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
    folder_ = fs::temp_directory_path() / ("ladder_conformance_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    ASSERT_EQ(run("--out " + path("a.json")).status, 0);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  Result run(const std::string& arguments) const {
    const fs::path program = fs::read_symlink("/proc/self/exe").parent_path() / "conformance";
    FILE* pipe = popen((program.string() + " " + arguments + " 2>&1").c_str(), "r");
    Result result;
    char buffer[4096];
    for (std::size_t n; (n = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) result.output.append(buffer, n);
    const int status = pclose(pipe);
    result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return result;
  }

  nlohmann::json read() const { return nlohmann::json::parse(std::ifstream(path("a.json"))); }
  void write(const nlohmann::json& root) const { std::ofstream(path("b.json")) << root; }
  Result compare() const { return run("--compare " + path("a.json") + " " + path("b.json")); }

 private:
  fs::path folder_;
};

TEST_F(Conformance, two_runs_agree) {
  ASSERT_EQ(run("--out " + path("b.json")).status, 0);
  const Result result = compare();
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_EQ(result.output.find("FAIL"), std::string::npos) << result.output;
}

TEST_F(Conformance, one_changed_bit_of_a_data_movement_is_a_difference) {
  nlohmann::json root = read();
  auto& value = root["wrappers"]["ldmatrix_x4"]["values"][77];
  const auto word = static_cast<std::uint32_t>(std::stoul(value.get<std::string>(), nullptr, 16));
  char changed[9];
  std::snprintf(changed, sizeof(changed), "%08x", word ^ 1);
  value = changed;
  write(root);
  const Result result = compare();
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.output.find("1 differ, first [77]"), std::string::npos) << result.output;
}

TEST_F(Conformance, sums_may_differ_within_their_bound_and_no_further) {
  for (const bool far : {false, true}) {
    nlohmann::json root = read();
    auto& value = root["wrappers"]["mma_m16n8k16_bf16"]["values"][5];
    const auto word = static_cast<std::uint32_t>(std::stoul(value.get<std::string>(), nullptr, 16));
    char changed[9];
    std::snprintf(changed, sizeof(changed), "%08x", far ? word ^ 0x10000 : word ^ 1);
    value = changed;
    write(root);
    EXPECT_EQ(compare().status, far ? 1 : 0);
  }
}

TEST_F(Conformance, a_missing_wrapper_is_a_difference) {
  nlohmann::json root = read();
  root["wrappers"].erase("cp_async_8");
  write(root);
  const Result result = compare();
  EXPECT_EQ(result.status, 1);
  EXPECT_NE(result.output.find("missing in the second dump"), std::string::npos) << result.output;
}

TEST_F(Conformance, files_that_are_missing_cut_short_or_foreign_are_one_clear_line) {
  const auto lines = [](const std::string& text) { return std::count(text.begin(), text.end(), '\n'); };
  Result result = run("--compare " + path("a.json") + " " + path("none.json"));
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(lines(result.output), 1) << result.output;

  const std::string text = read().dump();
  std::ofstream(path("b.json")) << text.substr(0, text.size() / 2);
  result = compare();
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(lines(result.output), 1) << result.output;
  EXPECT_NE(result.output.find("cut short"), std::string::npos) << result.output;

  write({{"schema", 99}});
  result = compare();
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(lines(result.output), 1) << result.output;
}

TEST_F(Conformance, wrong_usage_is_exit_2) {
  EXPECT_EQ(run("").status, 2);
  EXPECT_EQ(run("--compare " + path("a.json")).status, 2);
  EXPECT_EQ(run("--out /no/such/folder/x.json").status, 2);
  EXPECT_EQ(run("--nonsense").status, 2);
}

}  // namespace
}  // namespace ladder
