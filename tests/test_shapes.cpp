// Shape files and the registry's look-ups by name.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/error.h"
#include "core/shapes.h"
#include "dev/conv3x3/conv3x3.h"
#include "tests/coverage.h"

namespace ladder {
namespace {

const Pass& fprop() { return pass_of<conv3x3::Fprop>(); }

std::string complaint(const std::string& text) {
  try {
    parse_shapes(text, "shapes.txt");
  } catch (const Failure& error) {
    return error.what();
  }
  return {};
}

TEST(Shapes, ReadsSetsNamesAndComments) {
  const auto sets = parse_shapes("# all\n[a]\none: n1 h1   # tiny\n\n[b_2]\r\nx: n2\r\ny: n3", "f");
  ASSERT_EQ(sets.size(), 2u);
  EXPECT_EQ(sets[0].name, "a");
  ASSERT_EQ(sets[0].lines.size(), 1u);
  EXPECT_EQ(sets[0].lines[0].name, "one");
  EXPECT_EQ(sets[0].lines[0].problem, "n1 h1");
  EXPECT_EQ(sets[1].name, "b_2");
  ASSERT_EQ(sets[1].lines.size(), 2u);
  EXPECT_EQ(sets[1].lines[1].problem, "n3");
}

TEST(Shapes, ErrorsCarryFileAndLine) {
  EXPECT_EQ(complaint("x: n1"), "shapes.txt:1: an entry stands above the first '[set]' heading");
  EXPECT_EQ(complaint("[a]\nx n1"), "shapes.txt:2: an entry reads 'name: problem'");
  EXPECT_EQ(complaint("[a]\n: n1"), "shapes.txt:2: an entry reads 'name: problem'");
  EXPECT_EQ(complaint("[a]\nx:"), "shapes.txt:2: an entry reads 'name: problem'");
  EXPECT_EQ(complaint("[a]\nX: n1"), "shapes.txt:2: an entry reads 'name: problem'");
  EXPECT_EQ(complaint("[a]\nx: n1\n\nx: n2"), "shapes.txt:4: the name 'x' is in this set twice");
  EXPECT_EQ(complaint("[a]\nx: n1\n[a]\nx: n1"), "shapes.txt:3: the set 'a' is there twice");
  EXPECT_EQ(complaint("[a]\n[b]\nx: n1"), "shapes.txt:2: the set 'a' above is empty");
  EXPECT_EQ(complaint("[a]\nx: n1\n[b]\n"), "shapes.txt:3: the set 'b' above is empty");
  for (const char* heading : {"[", "[]", "[a", "[A]", "[a b]"}) {
    EXPECT_EQ(complaint(heading), "shapes.txt:1: a heading reads '[set]', in lower-case letters, digits and _");
  }
}

TEST(Shapes, UnknownSetListsTheSets) {
  try {
    named_cases(fprop(), "none_such");
    FAIL() << "no error";
  } catch (const UsageError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("conv3x3 has no set 'none_such'"), std::string::npos) << message;
    for (const char* set : {"ci", "edge", "unet", "perf"}) EXPECT_NE(message.find(set), std::string::npos) << message;
  }
}

TEST(Shapes, Conv3x3HasTheCasesItPromises) {
  EXPECT_EQ(named_cases(fprop(), "unet").size(), 19u);
  const auto ci = named_cases(fprop(), "ci");
  const auto edge = named_cases(fprop(), "edge");
  EXPECT_GE(ci.size() + edge.size(), 60u);

  std::vector<conv3x3::Problem> problems;
  for (const auto* set : {&ci, &edge}) {
    for (const NamedCase& c : *set) problems.push_back(problem_of<conv3x3::Fprop>(c.problem));
  }
  const auto any = [&](auto predicate) { return std::any_of(problems.begin(), problems.end(), predicate); };
  using P = const conv3x3::Problem&;
  EXPECT_TRUE(any([](P p) { return p.h == 1 && p.w > 1; }));
  EXPECT_TRUE(any([](P p) { return p.w == 1 && p.h > 1; }));
  EXPECT_TRUE(any([](P p) { return p.h % 2 == 1 && p.w % 2 == 1 && p.h > 1; }));
  EXPECT_TRUE(any([](P p) { return p.c == 3; }));
  EXPECT_TRUE(any([](P p) { return p.k == 3; }));
  EXPECT_TRUE(any([](P p) { return p.c % 8 != 0 && p.k % 8 != 0 && p.bias; }));
  for (std::size_t i = 0; i < problems.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(problems[i], problems[j]) << problems[i].str() << " is there twice";
  }
}

TEST(Shapes, RowsThatAreNoWholeVectorsAreMissed) {
  const std::vector<Case> all = test::tested_problems(fprop());
  EXPECT_EQ(test::untested_rows(fprop(), all), "");
  EXPECT_NE(test::untested_rows(fprop(), {}), "");
  for (const auto& [k, size] : {std::pair{8, 16}, {4, 8}}) {
    std::vector<Case> aligned;
    std::ranges::copy_if(all, std::back_inserter(aligned), [k](const Case& c) {
      const auto& p = problem_of<conv3x3::Fprop>(c);
      return p.c % k == 0 && p.k % k == 0;
    });
    EXPECT_NE(test::untested_rows(fprop(), aligned), "") << "rows of whole " << size << " bytes alone";
  }
}

TEST(Registry, UnknownPassAndVersionNameWhatThereIs) {
  try {
    find_pass("conv5x5", "fprop");
    FAIL() << "no error";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("no pass 'conv5x5/fprop'; there are: "), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("conv3x3/fprop"), std::string::npos);
  }
  const int beyond = versions_of(fprop()).back()->number + 1;
  try {
    find_version(fprop(), beyond);
    FAIL() << "no error";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("has no version " + std::to_string(beyond) + "; it has: 1"),
              std::string::npos)
        << error.what();
  }
}

TEST(Registry, VersionsAreInOrderAndKnowTheirNames) {
  const auto versions = versions_of(fprop());
  ASSERT_FALSE(versions.empty());
  for (std::size_t i = 0; i < versions.size(); ++i) {
    if (i > 0) {
      EXPECT_LT(versions[i - 1]->number, versions[i]->number);
    }
    EXPECT_EQ(&find_version(fprop(), versions[i]->number), versions[i]);
    EXPECT_TRUE(versions[i]->file.ends_with("/" + versions[i]->label() + ".cu")) << versions[i]->file;
  }
}

TEST(Registry, FileNamesFollowTheRule) {
  const auto good = detail::parse_file_name("some/where/v07_wmma_double_buffer.cu");
  ASSERT_TRUE(good);
  EXPECT_EQ(good->letter, 'v');
  EXPECT_EQ(good->number, 7);
  EXPECT_EQ(good->idea, "wmma_double_buffer");
  EXPECT_EQ(detail::parse_file_name("w12_x.cu")->letter, 'w');
  EXPECT_EQ((Version{.letter = 'x', .number = 101, .idea = "keeps_dy2"}.label()), "x101_keeps_dy2");
  EXPECT_EQ((Version{.letter = 'w', .number = 7, .idea = "bf16_sum"}.label()), "w07_bf16_sum");
  for (const char* bad : {"", "naive.cu", "v7_naive.cu", "v007_naive.cu", "v07naive.cu", "v07_.cu", "v07_Naive.cu",
                          "v07_a-b.cu", "v07_1st.cu", "V07_naive.cu", "v07_naive.cpp", "v07_naive.cu.bak"}) {
    EXPECT_FALSE(detail::parse_file_name(bad)) << bad;
  }
}

}  // namespace
}  // namespace ladder
