// Files of kept plans: found by their key alone, and never believed where they are broken.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/kept_plans.h"
#include "core/backend.h"
#include "dev/conv3x3/conv3x3.h"
#include "tests/files.h"

namespace ladder {
namespace {

namespace fs = std::filesystem;

// Finds the plan `best`, of which its heuristic knows nothing. A kept plan that it has is run beside the heuristic's.
class Searching final : public Baseline {
 public:
  explicit Searching(const std::string& best, const Search& search = {}) {
    kept = search.kept_plan(library());
    const bool searched = search.extent == Search::all && kept.empty();
    if (searched) tried_.push_back({.name = "ill", .reason = "no kernel"});
    tried_.push_back({.name = "heuristic's", .seconds = 3e-6});
    if (searched || kept == best) tried_.push_back({.name = best, .seconds = 2e-6});
  }
  std::string library() const override { return "cuDNN 9.1.0"; }
  const std::vector<BaselinePlan>& tried() const override { return tried_; }
  const BaselinePlan& plan(Choice choice) const override {
    const bool first = choice == Choice::heuristic;
    return first ? *std::ranges::find(tried_, "heuristic's", &BaselinePlan::name) : tried_.back();
  }
  std::size_t workspace_bytes() const override { return 0; }
  std::function<void(Stream)> work(Choice) override { return {}; }
  void answer() override {}

  std::string kept;

 private:
  std::vector<BaselinePlan> tried_;
};

class KeptPlansTest : public testing::Test {
 protected:
  void SetUp() override {
    if (backend::unavailable()) GTEST_SKIP() << backend::unavailable();
  }

  const test::Scratch scratch_;
  const fs::path folder_ = scratch_ / "cache" / "plans";  // made when the first plan is kept
  const Case c_ = pass_of<conv3x3::Fprop>().parse("n1 h8 w8 c16 k16 bf16");

  fs::path only_file() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder_)) files.push_back(entry.path());
    EXPECT_EQ(files.size(), 1u);
    return files.at(0);
  }
};

TEST_F(KeptPlansTest, AreFoundByPassProblemDtypeAndRelease) {
  EXPECT_EQ(kept_plan(folder_, c_, "cuDNN 9.1.0"), "");
  keep_plans(folder_, c_, Searching("eng7 nhwc"));
  EXPECT_EQ(kept_plan(folder_, c_, "cuDNN 9.1.0"), "eng7 nhwc");
  EXPECT_EQ(kept_plan(folder_, c_, "cuDNN 9.2.0"), "");
  EXPECT_EQ(kept_plan(folder_, c_.with_dtype(Dtype::f16), "cuDNN 9.1.0"), "");
  EXPECT_EQ(kept_plan(folder_, pass_of<conv3x3::Dgrad>().parse(c_.text), "cuDNN 9.1.0"), "");
  keep_plans(folder_, c_, Searching("eng8 nhwc"));
  EXPECT_EQ(kept_plan(folder_, c_, "cuDNN 9.1.0"), "eng8 nhwc");
}

TEST_F(KeptPlansTest, AFileHasItsKeyAndEveryPlan) {
  keep_plans(folder_, c_, Searching("eng7 nhwc"));
  const auto kept = nlohmann::json::parse(std::ifstream(only_file()));
  EXPECT_EQ(kept["pass"], "conv3x3/fprop");
  EXPECT_EQ(kept["problem"], "n1 h8 w8 c16 k16 bf16");
  EXPECT_EQ(kept["device"], backend::device().name);
  EXPECT_EQ(kept["library"], "cuDNN 9.1.0");
  EXPECT_EQ(kept["best"], "eng7 nhwc");
  EXPECT_EQ(kept["tried"][0]["reason"], "no kernel");
  EXPECT_EQ(kept["tried"][2]["seconds"], 2e-6);
}

TEST_F(KeptPlansTest, ABrokenFileIsNoPlan) {
  keep_plans(folder_, c_, Searching("eng7 nhwc"));
  const fs::path file = only_file();
  auto kept = nlohmann::json::parse(std::ifstream(file));
  for (const char* text : {"", "{", "[1]", "{}"}) {
    test::put(file, text);
    EXPECT_EQ(kept_plan(folder_, c_, "cuDNN 9.1.0"), "") << text;
  }
  kept["best"] = 7;
  test::put(file, kept.dump());
  EXPECT_EQ(kept_plan(folder_, c_, "cuDNN 9.1.0"), "");
  kept["best"] = "eng7 nhwc";
  test::put(file, kept.dump());
  EXPECT_EQ(kept_plan(folder_, c_, "cuDNN 9.1.0"), "eng7 nhwc");
  kept["device"] = "another";
  test::put(file, kept.dump());
  EXPECT_EQ(kept_plan(folder_, c_, "cuDNN 9.1.0"), "");
}

TEST_F(KeptPlansTest, AFolderThatCannotBeMadeKeepsNothing) {
  test::put(scratch_ / "cache", "a file where the folder should be");
  keep_plans(folder_, c_, Searching("eng7 nhwc"));
  EXPECT_EQ(kept_plan(folder_, c_, "cuDNN 9.1.0"), "");
}

TEST_F(KeptPlansTest, TheEnvironmentNamesTheFolder) {
  const auto set = [](const char* name, const char* value) {
    if (value) setenv(name, value, 1);
    if (!value) unsetenv(name);
  };
  const auto folder = [&](const char* cache, const char* caches, const char* home) {
    set("LADDER_CACHE", cache);
    set("XDG_CACHE_HOME", caches);
    set("HOME", home);
    return kept_plans_folder().string();
  };
  EXPECT_EQ(folder("/a", "/b", "/c"), "/a/plans");
  EXPECT_EQ(folder(nullptr, "/b", "/c"), "/b/ladder/plans");
  EXPECT_EQ(folder(nullptr, "", "/c"), "/c/.cache/ladder/plans");
  EXPECT_EQ(folder(nullptr, nullptr, nullptr), "");
}

TEST_F(KeptPlansTest, ASearchTakesAndKeepsWhatItsFlagSays) {
  setenv("LADDER_CACHE", (scratch_ / "cache").c_str(), 1);
  const BaselineSearch all{.takes_kept = true, .keeps = true};
  all.of(c_).keep(Searching("eng7 nhwc"));
  EXPECT_EQ(all.of(c_).kept_plan("cuDNN 9.1.0"), "eng7 nhwc");
  const BaselineSearch again{.keeps = true};
  EXPECT_EQ(again.of(c_).kept_plan("cuDNN 9.1.0"), "");
  EXPECT_TRUE(again.of(c_).keep);
  const BaselineSearch kept{.extent = Search::heuristic, .takes_kept = true};
  EXPECT_EQ(kept.of(c_).kept_plan("cuDNN 9.1.0"), "eng7 nhwc");
  EXPECT_FALSE(kept.of(c_).keep);
}

TEST_F(KeptPlansTest, StandInTheirSearchsPlace) {
  setenv("LADDER_CACHE", (scratch_ / "cache").c_str(), 1);
  std::string best = "eng7 nhwc";
  std::vector<std::string> kept;  // as each baseline that was made heard of it
  replace_baselines(*c_.pass, "cuDNN", [&](const Case&, const Pointers&, const Search& search, const Measure&) {
    auto baseline = std::make_unique<Searching>(best, search);
    kept.push_back(baseline->kept);
    return std::unique_ptr<Baseline>(std::move(baseline));
  });
  const auto made = [&](const BaselineSearch& search) {
    kept.clear();
    return make_baseline(c_, Pointers(c_.tensors, nullptr), search.of(c_), [](const auto&) { return 1.0; });
  };
  const BaselineSearch by_default{.extent = Search::heuristic, .takes_kept = true};
  const BaselineSearch all{.takes_kept = true, .keeps = true};
  EXPECT_EQ(made(by_default)->searched(), Searched::heuristic);
  EXPECT_EQ(made({.extent = Search::listed})->searched(), Searched::listed);
  EXPECT_EQ(made(all)->searched(), Searched::all);
  for (const BaselineSearch& search : {by_default, all}) {
    const auto again = made(search);
    EXPECT_EQ(again->searched(), Searched::kept);
    EXPECT_EQ(again->plan(Choice::best).name, "eng7 nhwc");
    EXPECT_EQ(again->plan(Choice::heuristic).name, "heuristic's");
    EXPECT_EQ(again->tried().size(), 2u);
    EXPECT_EQ(kept, std::vector<std::string>{"eng7 nhwc"});
  }
  EXPECT_EQ(made({.keeps = true})->searched(), Searched::all);

  best = "eng8 nhwc";  // the library has lost the kept one
  EXPECT_EQ(made(by_default)->searched(), Searched::heuristic);
  EXPECT_EQ(kept.size(), 1u);
  const auto anew = made(all);
  EXPECT_EQ(anew->searched(), Searched::all);
  EXPECT_EQ(kept, (std::vector<std::string>{"eng7 nhwc", ""}));
  EXPECT_EQ(made(by_default)->plan(Choice::best).name, "eng8 nhwc");
}

TEST_F(KeptPlansTest, SeveralLibrariesAreAsGoodAsTheWeakestSearch) {
  setenv("LADDER_CACHE", (scratch_ / "cache").c_str(), 1);
  keep_plans(folder_, c_, Searching("eng7 nhwc"));
  const auto factory = [](const Case&, const Pointers&, const Search& search, const Measure&) {
    return std::unique_ptr<Baseline>(std::make_unique<Searching>("eng7 nhwc", search));
  };
  replace_baselines(*c_.pass, "cuDNN", factory);
  register_baseline(*c_.pass, "Unkept", 1,
                    [=](const Case& c, const Pointers& at, const Search& search, const Measure& m) {
                      return factory(c, at, search.extent, m);
                    });
  const BaselineSearch by_default{.extent = Search::heuristic, .takes_kept = true};
  const auto made =
      make_baseline(c_, Pointers(c_.tensors, nullptr), by_default.of(c_), [](const auto&) { return 1.0; });
  EXPECT_EQ(made->searched(), Searched::heuristic);
  EXPECT_EQ(made->plan(Choice::best).name, "eng7 nhwc");
}

}  // namespace
}  // namespace ladder
