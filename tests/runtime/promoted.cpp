// Made-up tables of a made-up pass: which version is chosen, why, and what is refused. The tree's own tables must load.
#include "runtime/promoted.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "core/backend.h"
#include "core/error.h"
#include "core/paths.h"
#include "dev/conv3x3/conv3x3.h"

namespace ladder {
namespace {

namespace fs = std::filesystem;
using testing::IsSubstring;

// A convolution with versions of its own, which nobody launches.
struct Toy : conv3x3::Fprop {
  static constexpr const char* kLayer = "promotion";
  static constexpr const char* kName = "toy";
  static constexpr bool kDefault = false;
};

void launch(const conv3x3::Problem&, const Toy::Tensors&, void*, Stream) {}
const char* whole_words(const conv3x3::Problem& p) { return p.c % 8 == 0 ? nullptr : "c must be a multiple of 8"; }

const bool kRegistered =
    register_version<Toy>("a/v01_naive.cu", {.launch = launch, .dtypes = {Dtype::f32, Dtype::bf16}}) &&
    register_version<Toy>("a/v02_tile.cu", {.launch = launch, .dtypes = {Dtype::f32, Dtype::bf16}}) &&
    register_version<Toy>("a/v07_halo.cu",
                          {.launch = launch, .dtypes = {Dtype::f32, Dtype::bf16}, .supports = whole_words}) &&
    register_version<Toy>("a/v08_bf16.cu", {.launch = launch, .dtypes = {Dtype::bf16}, .supports = whole_words}) &&
    register_version<Toy>("a/v09_later.cu", {.launch = launch, .dtypes = {Dtype::f32, Dtype::bf16}, .min_arch = 990}) &&
    register_version<Toy>(
        "a/v10_only.cu",
        {.launch = launch, .dtypes = {Dtype::f32, Dtype::bf16}, .min_arch = 10, .arch_specific = true}) &&
    register_version<Toy>("a/v11_half.cu", {.launch = launch, .dtypes = {Dtype::f16}, .min_arch = 990});

std::string line(const std::string& problem, const std::string& version) {
  return "promotion/toy  " + problem + "   " + version + "   20.4 us warm  123 cold  cuDNN  28.8 warm  457b462\n";
}

Case toy(const std::string& problem) { return pass_of<Toy>().parse(problem); }

std::string message_of(const std::function<void()>& action, bool is_usage) {
  try {
    action();
  } catch (const UsageError& error) {
    EXPECT_TRUE(is_usage) << error.what();
    return error.what();
  } catch (const Failure& error) {
    EXPECT_FALSE(is_usage) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

class Promoted : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(kRegistered);
    if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
    folder_ = fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::create_directories(folder_);
  }
  void TearDown() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }

  Promotions load(const std::string& text) const {
    const fs::path file = folder_ / "table.txt";
    std::ofstream(file) << text;
    return Promotions::load(file);
  }

  // "v02_tile, recorded"
  static std::string chosen(const Promotions& promotions, const std::string& problem) {
    const VersionChoice choice = promotions.choose(toy(problem));
    return choice.version->label() + ", " + choice.reason;
  }

  std::string refused(const std::string& text) const {
    return message_of([&] { load(text); }, false);
  }

  fs::path folder_;
};

TEST_F(Promoted, TheLineOfTheProblemDecides) {
  const Promotions p =
      load("# a comment\n\n" + line("n32 h8 w8 c64 k64 bf16", "v02_tile") + line("n32 h8 w8 c64 k64 fp32", "v07_halo") +
           line("n32 h8 w8 c64 k64 bias bf16", "v01_naive"));
  EXPECT_EQ(chosen(p, "n32 h8 w8 c64 k64 bf16"), "v02_tile, recorded");
  EXPECT_EQ(chosen(p, "n32 h8 w8 c64 k64 fp32"), "v07_halo, recorded");
  EXPECT_EQ(chosen(p, "bf16 k64 n32 h8 w8 c64 bias"), "v01_naive, recorded");  // in any order of words
  EXPECT_EQ(p.lines().size(), 3U);
  EXPECT_EQ(p.note(), "");
}

TEST_F(Promoted, ThenThatOfTheNearestBatch) {
  const Promotions p = load(line("n8 h8 w8 c64 k64 bf16", "v01_naive") + line("n64 h8 w8 c64 k64 bf16", "v02_tile") +
                            line("n32 h8 w8 c64 k64 fp32", "v07_halo") + line("n32 h8 w8 c64 k65 bf16", "v07_halo"));
  EXPECT_EQ(chosen(p, "n32 h8 w8 c64 k64 bf16"), "v02_tile, recorded for n64");  // by ratio: 2 against 4
  EXPECT_EQ(chosen(p, "n20 h8 w8 c64 k64 bf16"), "v01_naive, recorded for n8");  // 2.5 against 3.2; n20 is nearer to 8
  EXPECT_EQ(chosen(p, "n24 h8 w8 c64 k64 bf16"), "v02_tile, recorded for n64");  // though 24 is nearer to 8
}

TEST_F(Promoted, ThenTheNearestByFlopsAndWordsInCommon) {
  const Promotions p =
      load(line("n32 h8 w8 c64 k128 bf16", "v01_naive") + line("n32 h16 w16 c64 k32 bf16", "v02_tile") +
           line("n32 h64 w64 c64 k64 bf16", "v07_halo") + line("n32 h16 w16 c64 k33 fp32", "v07_halo"));
  EXPECT_EQ(chosen(p, "n32 h16 w16 c64 k33 bf16"), "v02_tile, nearest: n32 h16 w16 c64 k32 bf16");
  EXPECT_EQ(chosen(p, "n32 h8 w8 c64 k128 bias bf16"), "v01_naive, nearest: n32 h8 w8 c64 k128 bf16");
  EXPECT_EQ(chosen(p, "n32 h16 w16 c64 k32 bias bf16"), "v02_tile, nearest: n32 h16 w16 c64 k32 bf16");
  EXPECT_EQ(chosen(p, "n32 h64 w64 c128 k128 bf16"), "v07_halo, nearest: n32 h64 w64 c64 k64 bf16");
}

TEST_F(Promoted, ThenTheHighestThatRunsHere) {
  const Promotions p = load(line("n32 h8 w8 c64 k64 bf16", "v01_naive"));
  // v09 and v10 are for other architectures, v08 has no fp32, v07 does not support c3.
  EXPECT_EQ(chosen(p, "n32 h8 w8 c64 k64 fp32"), "v07_halo, no record: highest version");
  EXPECT_EQ(chosen(p, "n32 h8 w8 c3 k64 fp32"), "v02_tile, no record: highest version");
  EXPECT_EQ(chosen(load(""), "n32 h8 w8 c64 k64 bf16"), "v08_bf16, no record: highest version");
}

TEST_F(Promoted, AVersionThatCannotIsPassedOver) {
  const Promotions p = load(line("n32 h8 w8 c3 k64 bf16", "v07_halo") + line("n32 h8 w8 c64 k64 bf16", "v09_later") +
                            line("n2 h8 w8 c64 k64 bf16", "v10_only"));
  EXPECT_EQ(chosen(p, "n32 h8 w8 c64 k64 bf16"), "v07_halo, nearest: n32 h8 w8 c3 k64 bf16");
  EXPECT_EQ(chosen(p, "n32 h8 w8 c3 k64 bf16"), "v02_tile, no recorded version can: highest version");
}

TEST_F(Promoted, UseComesFirst) {
  Promotions p = load(line("n32 h8 w8 c64 k64 bf16", "v02_tile"));
  p.use("promotion/toy=v01");
  EXPECT_EQ(chosen(p, "n32 h8 w8 c64 k64 bf16"), "v01_naive, --use");
  p.use("promotion/toy=7,conv3x3/fprop=v01_naive");
  EXPECT_EQ(chosen(p, "n32 h8 w8 c64 k64 bf16"), "v07_halo, --use");
  EXPECT_EQ(p.choose(find_pass("conv3x3", "fprop").parse("n1 h8 w8 c8 k8 fp32")).reason, "--use");
  p.use("promotion/toy=v08_bf16");
  EXPECT_EQ(chosen(p, "n32 h8 w8 c64 k64 bf16"), "v08_bf16, --use");
  EXPECT_EQ(chosen(p, "n64 h8 w8 c3 k64 bf16"),
            "v02_tile, nearest: n32 h8 w8 c64 k64 bf16; --use v08_bf16 cannot: c must be a multiple of 8");
  EXPECT_EQ(chosen(p, "n1 h8 w8 c3 k64 fp32"),
            "v02_tile, no record: highest version; --use v08_bf16 cannot: v08_bf16 has no fp32; it has bf16");
  EXPECT_TRUE(p.use_can(toy("n32 h8 w8 c64 k64 bf16")));
  EXPECT_FALSE(p.use_can(toy("n64 h8 w8 c3 k64 bf16")));
  EXPECT_TRUE(load("").use_can(toy("n64 h8 w8 c3 k64 bf16")));
}

TEST_F(Promoted, WhatTheTableCanRunIsServed) {
  Promotions p = load(line("n32 h8 w8 c64 k64 bf16", "v07_halo") + line("n2 h8 w8 c64 k64 bf16", "v09_later") +
                      line("n32 h8 w8 c64 k64 fp32", "v02_tile"));
  EXPECT_TRUE(p.serves(toy("n1 h1 w1 c8 k8 bf16")));
  EXPECT_FALSE(p.serves(toy("n1 h1 w1 c3 k8 bf16")));  // though v01 and v02 could
  EXPECT_TRUE(p.serves(toy("n1 h1 w1 c3 k8 fp32")));
  p.use("promotion/toy=v01");
  EXPECT_TRUE(p.serves(toy("n1 h1 w1 c3 k8 bf16")));
  p.use("promotion/toy=v08");
  EXPECT_FALSE(p.serves(toy("n1 h1 w1 c3 k8 fp32")));  // though the table's could
}

TEST_F(Promoted, APassIsTurnedOff) {
  Promotions p = load(line("n32 h8 w8 c64 k64 bf16", "v02_tile"));
  const Case c = toy("n32 h8 w8 c64 k64 bf16");
  EXPECT_TRUE(p.serves(c));
  p.use("promotion/toy=v01,promotion/toy=off");
  EXPECT_TRUE(p.is_off(*c.pass));
  EXPECT_TRUE(p.used().empty());
  EXPECT_FALSE(p.serves(c));
  EXPECT_FALSE(p.use_can(c));
  EXPECT_EQ(message_of([&] { p.choose(c); }, false),
            "--use promotion/toy=off: nothing else runs 'n32 h8 w8 c64 k64 bf16'");
  EXPECT_PRED_FORMAT2(IsSubstring, "--use promotion/toy=off\n", p.str());
  p.use("promotion/toy=v07");
  EXPECT_EQ(chosen(p, "n32 h8 w8 c64 k64 bf16"), "v07_halo, --use");
}

TEST_F(Promoted, AWrongUseSaysWhatThereIsAndChangesNothing) {
  Promotions p = load(line("n32 h8 w8 c64 k64 bf16", "v02_tile"));
  const auto wrong = [&](const std::string& text) { return message_of([&] { p.use(text); }, true); };
  EXPECT_PRED_FORMAT2(IsSubstring,
                      "--use 'promotion/toys=v01': no pass 'promotion/toys'; there are: ", wrong("promotion/toys=v01"));
  EXPECT_PRED_FORMAT2(IsSubstring, "promotion/toy", wrong("promotion/toys=v01"));
  EXPECT_PRED_FORMAT2(IsSubstring, "promotion/toy has no version 'v03'; it has: v01_naive, v02_tile",
                      wrong("promotion/toy=v03"));
  for (const char* text : {"promotion/toy=v01_tile", "promotion/toy=", "promotion/toy=v", "promotion/toy=best"}) {
    EXPECT_PRED_FORMAT2(IsSubstring, "it has: v01_naive, ", wrong(text));
  }
  for (const char* text : {"", "promotion/toy", "promotion/toy=v01,", "promotion/toy=v01,v02"}) {
    EXPECT_PRED_FORMAT2(IsSubstring, "as in conv3x3/fprop=v07", wrong(text));
  }
  EXPECT_EQ(chosen(p, "n32 h8 w8 c64 k64 bf16"), "v02_tile, recorded");
}

TEST_F(Promoted, WhatNoVersionRunsIsAFailure) {
  const Promotions p = load("");
  EXPECT_EQ(message_of([&] { p.choose(toy("n1 h8 w8 c8 k8 tf32")); }, false), "no version of promotion/toy has tf32");
  EXPECT_PRED_FORMAT2(IsSubstring,
                      "no version of promotion/toy runs 'n1 h8 w8 c8 k8 fp16' here; v11_half: v11_half needs sm_990",
                      message_of([&] { p.choose(toy("n1 h8 w8 c8 k8 fp16")); }, false));
}

TEST_F(Promoted, ABrokenLineIsNamed) {
  const std::string good = line("n32 h8 w8 c64 k64 bf16", "v02_tile");
  EXPECT_PRED_FORMAT2(IsSubstring, "table.txt:2: promotion/toy n32 h8 w8 c64 k64 bf16 is there twice",
                      refused(good + good));
  EXPECT_PRED_FORMAT2(IsSubstring, ":3: 3 columns",
                      refused("# head\n\npromotion/toy  n32 h8 w8 c64 k64 bf16  v02_tile\n"));
  EXPECT_PRED_FORMAT2(IsSubstring, ":1: 6 columns",
                      refused("promotion/toy n32 h8 w8 c64 k64 bf16 v02_tile a  b  c  d  e  f"));
  EXPECT_PRED_FORMAT2(IsSubstring, ":1: ", refused(line("n32 h8 w8 c64 bf16", "v02_tile")));
  EXPECT_PRED_FORMAT2(IsSubstring, "lacks 'k'", refused(line("n32 h8 w8 c64 bf16", "v02_tile")));
  EXPECT_PRED_FORMAT2(IsSubstring, ":1: the problem 'n32 h8 w8 c64 k64' names no dtype",
                      refused(line("n32 h8 w8 c64 k64", "v02_tile")));
  for (const char* version : {"v03_gone", "v02_tiles", "v02", "2"}) {
    EXPECT_PRED_FORMAT2(IsSubstring,
                        std::string(":2: promotion/toy has no version ") + version + "; it has: v01_naive, v02_tile",
                        refused(good + line("n1 h8 w8 c64 k64 bf16", version)));
  }
  std::string other = good;
  other.replace(other.find("toy"), 3, "play");
  EXPECT_PRED_FORMAT2(IsSubstring, ":1: no pass 'promotion/play'; there are: ", refused(other));
  EXPECT_TRUE(load("elsewhere" + good.substr(good.find('/'))).lines().empty());  // a layer without versions here
  EXPECT_PRED_FORMAT2(IsSubstring, "none.txt", message_of([&] { Promotions::load(folder_ / "none.txt"); }, false));
}

TEST_F(Promoted, TheTextHoldsWhatDecides) {
  const std::string times = line("n32 h8 w8 c64 k64 bf16", "v02_tile");
  Promotions p = load(times);
  EXPECT_EQ(p.str(), "promotion/toy  n32 h8 w8 c64 k64 bf16  v02_tile\n");
  std::string other_times = times;
  other_times.replace(other_times.find("20.4"), 4, "20.9");
  EXPECT_EQ(load(other_times).str(), p.str());
  p.use("promotion/toy=1,conv3x3/fprop=1");
  EXPECT_EQ(p.str(),
            "--use conv3x3/fprop=v01_naive\n--use promotion/toy=v01_naive\n"
            "promotion/toy  n32 h8 w8 c64 k64 bf16  v02_tile\n");
}

TEST_F(Promoted, WhatADeviceHasNoLineOfIsOfH200) {
  const char* before = std::getenv("LADDER_SOURCE_DIR");
  const std::string kept = before ? before : "";
  setenv("LADDER_SOURCE_DIR", folder_.c_str(), 1);
  const std::string none = message_of([] { Promotions::for_device("toycard"); }, false);
  fs::create_directories(folder_ / "runtime" / "promoted");
  std::ofstream(folder_ / "runtime" / "promoted" / "h200.txt")
      << line("n32 h8 w8 c64 k64 bf16", "v02_tile") << line("n32 h8 w8 c128 k64 bf16", "v02_tile");
  const Promotions others = Promotions::for_device("toycard");
  std::ofstream(folder_ / "runtime" / "promoted" / "toycard.txt") << line("n32 h8 w8 c64 k64 bf16", "v01_naive");
  const Promotions toycard = Promotions::for_device("toycard");
  const Promotions h200 = Promotions::for_device("h200");
  const Promotions emulator = Promotions::for_device("emulator");
  std::ofstream(folder_ / "runtime" / "promoted" / "acard.txt")
      << line("n32 h8 w8 c64 k64 bf16", "v01_naive") << line("n32 h8 w8 c64 k32 bf16", "v01_naive");
  const Promotions of_three = Promotions::for_device("toycard");
  const Promotions of_other = Promotions::for_device("h200");
  const Promotions of_two = Promotions::for_device("newcard");
  if (before) {
    setenv("LADDER_SOURCE_DIR", kept.c_str(), 1);
  } else {
    unsetenv("LADDER_SOURCE_DIR");
  }
  EXPECT_PRED_FORMAT2(IsSubstring, "h200.txt: `./ladder promote` makes it", none);
  EXPECT_EQ(others.note(), "no table for 'toycard': taking that of h200");
  EXPECT_EQ(chosen(others, "n32 h8 w8 c64 k64 bf16"), "v02_tile, recorded");
  EXPECT_EQ(toycard.note(), "1 problems of the table of 'toycard', others of that of h200");
  EXPECT_EQ(chosen(toycard, "n32 h8 w8 c64 k64 bf16"), "v01_naive, recorded");
  EXPECT_EQ(chosen(toycard, "n32 h8 w8 c128 k64 bf16"), "v02_tile, recorded");
  EXPECT_EQ(h200.note(), "");
  EXPECT_EQ(emulator.note(), "no table for 'emulator': taking that of h200");
  EXPECT_EQ(of_three.note(), "1 problems of the table of 'toycard', others of those of h200, acard");
  EXPECT_EQ(chosen(of_three, "n32 h8 w8 c64 k32 bf16"), "v01_naive, recorded");
  EXPECT_EQ(of_other.note(), "2 problems of the table of 'h200', others of that of acard");
  EXPECT_EQ(chosen(of_other, "n32 h8 w8 c64 k64 bf16"), "v02_tile, recorded");
  EXPECT_EQ(of_two.note(), "no table for 'newcard': taking those of h200, acard");
}

// Every version of the tree's tables supports the problem that it is promoted for.
TEST(PromotedTables, LoadAndFit) {
  int num_lines = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(fs::path(source_dir()) / "runtime" / "promoted")) {
    if (entry.path().extension() != ".txt") continue;
    const Promotions promotions = Promotions::load(entry.path());
    for (const auto& [problem, version] : promotions.lines()) {
      ++num_lines;
      EXPECT_TRUE(version->has(problem.dtype)) << entry.path() << ": " << version->label() << ' ' << problem.text;
      const char* reason = version->supports(problem);
      EXPECT_EQ(reason, nullptr) << entry.path() << ": " << version->label() << ' ' << problem.text;
    }
  }
  EXPECT_GT(num_lines, 0);
}

}  // namespace
}  // namespace ladder
