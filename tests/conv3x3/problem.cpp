// Problem lines: what they parse to, print as, and say when they are wrong.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "core/error.h"
#include "core/problem_line.h"
#include "core/shapes.h"
#include "dev/conv3x3/conv3x3.h"
#include "tests/support.h"

namespace ladder {
namespace {

using conv3x3::Problem;

// The message of the UsageError that parsing throws, or "" where it throws none.
std::string complaint(const std::string& line) {
  try {
    Problem::parse(line);
  } catch (const UsageError& error) {
    return error.what();
  }
  return {};
}

TEST(Problem, ReadsEveryWord) {
  const Problem p = Problem::parse("n1 h2 w3 c4 k5 bias bf16");
  EXPECT_EQ(p, (Problem{.n = 1, .h = 2, .w = 3, .c = 4, .k = 5, .bias = true, .dtype = Dtype::bf16}));
}

TEST(Problem, OrderAndSpaceDoNotMatter) {
  EXPECT_EQ(Problem::parse("\t fp16  k5 c4 w3 bias h2   n1 "), Problem::parse("n1 h2 w3 c4 k5 bias fp16"));
}

TEST(Problem, IsFp32WithoutADtype) { EXPECT_EQ(Problem::parse("n1 h1 w1 c1 k1").dtype, Dtype::f32); }

TEST(Problem, EveryNamedShapeRoundTripsInEveryDtype) {
  int count = 0;
  for (const ShapeSet& set : shape_sets("conv3x3")) {
    for (const NamedLine& named : set.lines) {
      for (const Dtype dtype : kProblemDtypes) {
        Problem p = Problem::parse(named.problem);
        p.dtype = dtype;
        EXPECT_EQ(Problem::parse(p.str()), p) << p.str();
        ++count;
      }
    }
  }
  EXPECT_GT(count, 0);
}

TEST(Problem, ErrorsNameTheWordAndWhatIsRight) {
  const struct {
    const char* line;
    const char* says;
  } cases[] = {
      {"", "it is empty"},
      {"   ", "it is empty"},
      {"n0 h1 w1 c1 k1", "'n0' should be n and a whole number from 1 to 1048576"},
      {"n1 h-1 w1 c1 k1", "'h-1' should be h and a whole number"},
      {"n1 h1 w+2 c1 k1", "'w+2' should be w and a whole number"},
      {"n1 h1 w1.5 c1 k1", "'w1.5' should be w and a whole number"},
      {"n1 h1 w1 c2x k1", "'c2x' should be c and a whole number"},
      {"n1 h1 w1 c1 k99999999999999999999", "should be k and a whole number"},
      {"n1 h1 w1 c1 k1048577", "should be k and a whole number"},
      {"n1 h1 w1 c1", "it lacks 'k'"},
      {"n1 h1 w1 c1 k1 k1", "'k1' stands in it twice"},
      {"n1 h1 w1 c1 k1 k2", "'k' stands in it twice"},
      {"n1 h1 w1 c1 k1 bias bias", "'bias' stands in it twice"},
      {"n1 h1 w1 c1 k1 fp32 bf16", "it names two dtypes"},
      {"n1 h1 w1 c1 k1 fp64", "unknown word 'fp64'"},
      {"n1 h1 w1 c1 k1 g8", "unknown word 'g8'"},
      {"n1 h1 w1 c1 k1 Bias", "unknown word 'Bias'"},
      {"n1 h1 w1 c1 k8 embedding8 first1", "k columns from `first` on are more than `embedding` has"},
      {"n1 h1 w1 c1 k8 first1", "k columns from `first` on are more than `embedding` has"},
      {"n1024 h1024 w1024 c2 k1", "a tensor of more than 2^31 - 1 elements"},
      {"n1 h1 w1 c16384 k16384", "a tensor of more than 2^31 - 1 elements"},
  };
  for (const auto& c : cases) {
    const std::string message = complaint(c.line);
    EXPECT_NE(message.find(c.says), std::string::npos) << "'" << c.line << "' says '" << message << "'";
    EXPECT_NE(message.find("a problem reads 'n32 h64 w64 c64 k64"), std::string::npos) << message;
  }
}

TEST(Problem, ErrorsAreOneLineWhateverTheInput) {
  const std::string message = complaint(std::string(5000, 'x') + "\n\r\x1b[31m");
  EXPECT_FALSE(message.empty());
  EXPECT_LT(message.size(), 500u);
  for (const unsigned char c : message) EXPECT_GE(c, ' ');
}

TEST(Problem, LinesMayNameADtype) {
  EXPECT_EQ(dtype_of("n1 fp16 bias"), Dtype::f16);
  EXPECT_EQ(dtype_of("n1 bias"), std::nullopt);
}

TEST(Problem, RandomProblemsRoundTrip) {
  std::mt19937_64 random(test::seed());
  const auto draw = [&](int most) { return static_cast<int>(1 + random() % most); };
  for (int i = 0; i < 2000; ++i) {
    Problem p{.n = draw(64),
              .h = draw(128),
              .w = draw(128),
              .c = draw(512),
              .k = draw(512),
              .bias = random() % 2 == 0,
              .params16 = random() % 2 == 0,
              .residual = random() % 2 == 0,
              .dtype = kProblemDtypes[random() % std::size(kProblemDtypes)]};
    if (random() % 2 == 0) {
      p.first = draw(3) - 1;
      p.embedding = p.first + p.k + draw(3) - 1;
    }
    ASSERT_EQ(Problem::parse(p.str()), p) << p.str() << "\n  " << test::rerun_command();
  }
}

// Lines made of valid words, damaged by a few edits: each must parse to something that prints back, or throw UsageError
// in one line. Anything else (another exception, a crash, undefined behaviour under UBSan) fails.
TEST(Problem, ParserSurvivesDamagedLines) {
  std::mt19937_64 random(test::seed());
  const std::string alphabet = "nhwck0123456789 bias-+.fptx\t\n\xff";
  int accepted = 0;
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string line = "n1 h2 w3 c4 k5 bias bf16";
    for (std::uint64_t edits = random() % 4; edits > 0 && !line.empty(); --edits) {
      const std::size_t at = random() % line.size();
      const char letter = alphabet[random() % alphabet.size()];
      switch (random() % 3) {
        case 0:
          line[at] = letter;
          break;
        case 1:
          line.insert(at, 1, letter);
          break;
        default:
          line.erase(at, 1 + random() % 3);
          break;
      }
    }
    try {
      const Problem p = Problem::parse(line);
      ASSERT_EQ(Problem::parse(p.str()), p) << line;
      ++accepted;
    } catch (const UsageError& error) {
      ASSERT_EQ(std::string(error.what()).find('\n'), std::string::npos) << line;
      ++refused;
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(refused, 0);
}

TEST(Messages, AreOneLineOfBoundedLength) {
  EXPECT_EQ(one_line("a line"), "a line");
  EXPECT_EQ(one_line(""), "");
  EXPECT_EQ(one_line("\n\t\n"), "");
  EXPECT_EQ(one_line("refused\nfor a reason\n"), "refused; for a reason");
  EXPECT_EQ(one_line("\none\r\n\n\ttwo"), "one; two") << "however many newlines there are";
  EXPECT_EQ(one_line("10 %\r20 %\x1b[0m\x7f\x01."), "10 % 20 % [0m .");
  EXPECT_EQ(one_line("\xc3\xa9\xff"), "\xc3\xa9\xff") << "what is above ASCII stays";
  EXPECT_EQ(one_line("12345", 5), "12345");
  EXPECT_EQ(one_line("123456", 5), "12345...");
  EXPECT_EQ(one_line("1234\n\n", 5), "1234") << "what goes does not count";
}

}  // namespace
}  // namespace ladder
