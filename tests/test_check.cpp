// Verdicts of the checker: fill(), compare(), the null-answer gate and guarded buffers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "core/backend.h"
#include "core/check/check.h"
#include "core/error.h"
#include "core/paths.h"
#include "core/problem_line.h"
#include "core/shapes.h"
#include "dev/conv3x3/conv3x3.h"
#include "tests/support.h"

namespace ladder {
namespace {

using Outputs = std::vector<std::vector<float>>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

Case make(const std::string& line) { return pass_of<conv3x3::Fprop>().parse(line); }

const TensorSpec& output_of(const Case& c) { return c.tensors.back(); }

// The right answer, rounded once.
Outputs rounded(const Case& c, const ExpectedOutputs& refs) {
  Outputs y(1);
  for (const double value : refs[0].value) {
    y[0].push_back(round_to(output_of(c).dtype, static_cast<float>(value)));
  }
  return y;
}

float poison(Dtype dtype) {
  const std::uint32_t stored = 0xffffffffu;
  float value = 0;
  decode(dtype, &stored, 1, &value);
  return value;
}

class EveryDtype : public testing::TestWithParam<Dtype> {
 protected:
  const Case c_ = make("n1 h5 w7 c24 k16 bias").with_dtype(GetParam());
  const ExpectedOutputs refs_ = reference_run(c_, Pattern::normal, test::seed()).expected;
  const Outputs right_ = rounded(c_, refs_);

  Verdict compare_with(std::size_t at, float value, Pattern pattern = Pattern::normal) const {
    Outputs y = right_;
    y[0][at] = value;
    return compare(c_, pattern, y, refs_);
  }
  double bound(std::size_t at) const { return error_bound(output_of(c_), refs_[0].value[at], refs_[0].magnitude[at]); }
};

INSTANTIATE_TEST_SUITE_P(Compare, EveryDtype, testing::ValuesIn(kProblemDtypes),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST_P(EveryDtype, AcceptsTheRoundedAnswer) {
  const Verdict v = compare(c_, Pattern::normal, right_, refs_);
  EXPECT_EQ(v.status, Status::pass) << v.reason;
  EXPECT_LE(v.worst, 1);
  EXPECT_LE(v.error, unit_roundoff(output_of(c_).dtype));
  EXPECT_EQ(v.unwritten, 0);
}

TEST_P(EveryDtype, BoundIsWhereAnElementFails) {
  for (const std::size_t at : {std::size_t{0}, right_[0].size() / 2, right_[0].size() - 1}) {
    for (const double sign : {-1.0, 1.0}) {
      const auto off_by = [&](double bounds) {
        return static_cast<float>(refs_[0].value[at] + sign * bounds * bound(at));
      };
      EXPECT_EQ(compare_with(at, off_by(0.9)).status, Status::pass);
      const Verdict v = compare_with(at, off_by(2));
      EXPECT_EQ(v.status, Status::fail);
      EXPECT_NEAR(v.worst, 2, 0.1);
      EXPECT_NE(v.reason.find("1 of"), std::string::npos) << v.reason;
    }
  }
}

TEST_P(EveryDtype, RejectsWhatIsNotANumber) {
  for (const float value : {kNan, kInf, -kInf}) {
    const Verdict v = compare_with(3, value);
    EXPECT_EQ(v.status, Status::fail);
    EXPECT_EQ(v.unwritten, 0);
    EXPECT_FALSE(v.error < 1) << "an error that is not a number must not look small";
  }
}

TEST_P(EveryDtype, NamesTheElementThatWasNotWritten) {
  // Row 1, column 2, channel 5 of [1, 5, 7, 16].
  const Verdict v = compare_with((1 * 7 + 2) * 16 + 5, poison(output_of(c_).dtype));
  EXPECT_EQ(v.status, Status::fail);
  EXPECT_EQ(v.unwritten, 1);
  EXPECT_NE(v.reason.find("y[n0 h1 w2 k5]"), std::string::npos) << v.reason;
}

TEST_P(EveryDtype, RejectsSwappedElements) {
  Outputs y = right_;
  std::swap(y[0][10], y[0][11]);
  EXPECT_EQ(compare(c_, Pattern::normal, y, refs_).status, Status::fail);
}

TEST_P(EveryDtype, IntegersMustBeExact) {
  const ReferenceRun run = reference_run(c_, Pattern::integer, test::seed());
  const Outputs right = rounded(c_, run.expected);
  EXPECT_EQ(compare(c_, Pattern::integer, right, run.expected).status, Status::pass);
  for (const float direction : {-kInf, kInf}) {
    Outputs y = right;
    y[0][7] = std::nextafter(y[0][7], direction);
    EXPECT_EQ(compare(c_, Pattern::integer, y, run.expected).status, Status::fail);
  }
  Outputs y = right;
  y[0][7] = kNan;
  EXPECT_EQ(compare(c_, Pattern::integer, y, run.expected).status, Status::fail);
}

TEST_P(EveryDtype, ErrorIsTheNormalisedDistance) {
  Outputs y(1);
  for (const double value : refs_[0].value) y[0].push_back(static_cast<float>(1.125 * value));
  const Verdict v = compare(c_, Pattern::normal, y, refs_);
  EXPECT_EQ(v.status, Status::fail);
  EXPECT_NEAR(v.error, 0.125, 1e-6);
}

// Large enough for several threads: the verdict must find one element among many, and say which.
TEST(Compare, FindsOneElementOfALargeTensor) {
  const Case c = make("n4 h32 w32 c1 k64");
  const ReferenceRun run = reference_run(c, Pattern::normal, test::seed());
  Outputs y = rounded(c, run.expected);
  ASSERT_EQ(compare(c, Pattern::normal, y, run.expected).status, Status::pass);
  y[0].back() += 1;
  const Verdict v = compare(c, Pattern::normal, y, run.expected);
  EXPECT_EQ(v.status, Status::fail);
  EXPECT_NE(v.reason.find("y[n3 h31 w31 k63]"), std::string::npos) << v.reason;
  EXPECT_NE(v.reason.find("1 of 262144"), std::string::npos) << v.reason;
}

TEST(Compare, JudgesEveryOutput) {
  const TensorSpec dx{.name = "dx", .role = Role::output, .dtype = Dtype::f32, .shape = {2}, .layout = "c"};
  TensorSpec dw = dx;
  dw.name = "dw";
  const Case c{.pass = &pass_of<conv3x3::Fprop>(), .text = "two outputs", .tensors = {dx, dw}};
  const ExpectedOutputs refs = {{{1, 2}, {1, 2}}, {{3, 4}, {3, 4}}};
  EXPECT_EQ(compare(c, Pattern::normal, {{1, 2}, {3, 4}}, refs).status, Status::pass);
  const Verdict first = compare(c, Pattern::normal, {{1, 9}, {3, 4}}, refs);
  EXPECT_EQ(first.status, Status::fail);
  EXPECT_NE(first.reason.find("dx[c1] = 9"), std::string::npos) << first.reason;
  const Verdict second = compare(c, Pattern::normal, {{1, 2}, {9, 4}}, refs);
  EXPECT_EQ(second.status, Status::fail);
  EXPECT_NE(second.reason.find("dw[c0] = 9"), std::string::npos) << second.reason;
}

// An inexact version mixes elements with their neighbours: each may be as wrong as the largest magnitude allows.
TEST(Compare, AnInexactVersionIsHeldToTheLargestMagnitude) {
  const TensorSpec dw{.name = "dw", .role = Role::output, .dtype = Dtype::f32, .shape = {3}, .layout = "c"};
  Case c{.pass = &pass_of<conv3x3::Fprop>(), .text = "three elements", .tensors = {dw}};
  const ExpectedOutputs refs = {{{0, 0, 0}, {0, 1, 3}}};  // values, magnitudes
  const auto most = static_cast<float>(error_bound(dw, 0, 3));
  EXPECT_EQ(compare(c, Pattern::normal, {{0, most, 0}}, refs).status, Status::fail) << "its own magnitude is 1";
  const AnyVersionDef inexact{.exact = false};
  EXPECT_EQ(compare(c, Pattern::normal, {{most, most, most}}, refs, inexact).status, Status::pass);
  EXPECT_EQ(compare(c, Pattern::normal, {{1.01f * most, 0, 0}}, refs, inexact).status, Status::fail);
}

// A dot product of K terms for each element: expected in double; y in fp32 from inputs rounded to `inputs`, added one
// by one.
struct DotProducts {
  DotProducts(std::int64_t terms, Dtype inputs, std::uint64_t seed) {
    constexpr int kElements = 128;
    expected.resize(1);
    y.resize(1);
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    for (int i = 0; i < kElements; ++i) {
      double value = 0;
      double magnitude = 0;
      float sum = 0;
      for (std::int64_t k = 0; k < terms; ++k) {
        const float a = normal(random);
        const float b = normal(random);
        value += double(a) * b;
        magnitude += std::abs(double(a) * b);
        sum += round_to(inputs, a) * round_to(inputs, b);
      }
      expected[0].value.push_back(value);
      expected[0].magnitude.push_back(magnitude);
      y[0].push_back(sum);
    }
    c = {.pass = &pass_of<conv3x3::Fprop>(),
         .text = "dot products",
         .tensors = {
             {.name = "y", .role = Role::output, .shape = {kElements}, .layout = "n", .reduction_length = terms}}};
  }

  Verdict verdict() const { return within_limit(compare(c, Pattern::normal, y, expected), c, expected, {}); }

  Case c;
  ExpectedOutputs expected;
  Outputs y;
};

// The limit alone must tell fp32 arithmetic from products of rounded inputs, if there is no baseline.
TEST(ErrorLimit, SequentialSumsPassAndRoundedInputsDoNot) {
  for (const std::int64_t terms : {1, 2, 9, 27, 576, 4608, 8192, 32768, 131072}) {
    const Verdict fp32 = DotProducts(terms, Dtype::f32, test::seed()).verdict();
    EXPECT_EQ(fp32.status, Status::pass) << terms << " terms: " << fp32.reason;
    for (const Dtype rounded : {Dtype::tf32, Dtype::bf16, Dtype::f16}) {
      const Verdict verdict = DotProducts(terms, rounded, test::seed()).verdict();
      EXPECT_EQ(verdict.status, Status::fail) << terms << " terms of inputs rounded to " << name(rounded);
    }
  }
}

TEST(ErrorLimit, TellsTf32FromBf16WhereTf32IsAllowed) {
  for (const std::int64_t terms : {1, 9, 576, 8192}) {
    for (const Dtype rounded : {Dtype::tf32, Dtype::f16, Dtype::bf16}) {
      DotProducts dots(terms, rounded, test::seed());
      dots.c.tensors[0].intermediate = Dtype::tf32;
      const Status right = rounded == Dtype::bf16 ? Status::fail : Status::pass;
      EXPECT_EQ(dots.verdict().status, right) << terms << " terms of inputs rounded to " << name(rounded);
    }
  }
}

TEST(ErrorLimit, IsForFp32AloneAndGrowsWithWhatAVersionDeclares) {
  const DotProducts dots(64, Dtype::f32, 1);
  const TensorSpec& y = dots.c.tensors[0];
  const double limit = error_limit(dots.c, y, dots.expected[0]);
  EXPECT_DOUBLE_EQ(limit, (16 + 8) * 0x1p-24);
  EXPECT_DOUBLE_EQ(error_limit(dots.c, y, dots.expected[0], {.error_growth = 4}), 4 * limit);
  Case half = dots.c;
  half.dtype = Dtype::bf16;
  EXPECT_EQ(error_limit(half, y, dots.expected[0]), kInf);
  TensorSpec rounded = y;
  rounded.intermediate = Dtype::bf16;
  EXPECT_EQ(error_limit(dots.c, rounded, dots.expected[0]), kInf);
}

TEST(ErrorLimit, AllowsRoundedTermsWhereTheFormulaDoes) {
  TensorSpec y{.name = "y", .role = Role::output, .dtype = Dtype::f32};
  const double plain = error_bound(y, 1, 8);
  y.intermediate = Dtype::bf16;
  EXPECT_DOUBLE_EQ(error_bound(y, 1, 8), plain + 8 * 0x1p-8);
  EXPECT_DOUBLE_EQ(error_bound(y, 1, 8, {}, 4), plain + 4 * 8 * 0x1p-8) << "two factors, both truncated";
}

// Returns a passing verdict with these errors of its outputs.
Verdict with_errors(std::vector<std::optional<double>> errors) { return {.errors = std::move(errors)}; }

TEST(Compare, BaselineMayBeHalfAsWrongAndNoLess) {
  const double u = unit_roundoff(Dtype::f32);
  const Verdict pass = with_errors({1e-4});
  const Case c = pass_of<conv3x3::Fprop>().parse("n1 h4 w4 c4 k4 fp32");
  EXPECT_EQ(against_baseline(pass, with_errors({0.5e-4}), c).status, Status::pass);
  EXPECT_EQ(against_baseline(pass, with_errors({0.49e-4}), c).status, Status::fail);
  EXPECT_EQ(against_baseline(with_errors({u}), with_errors({0}), c).status, Status::pass) << "one rounding is granted";
  EXPECT_EQ(against_baseline(with_errors({1.1 * u}), with_errors({0}), c).status, Status::fail);
  const AnyVersionDef def{.error_growth = 3};
  EXPECT_EQ(against_baseline(with_errors({u + 2 * 6 * u}), with_errors({0}), c, def).status, Status::pass) << "K is 36";
  EXPECT_EQ(against_baseline(with_errors({u + 2.1 * 6 * u}), with_errors({0}), c, def).status, Status::fail);
  EXPECT_EQ(against_baseline(with_errors({kNan}), with_errors({1}), c).status, Status::fail);
  Case tf32 = c;
  for (TensorSpec& spec : tf32.tensors) spec.intermediate = Dtype::tf32;
  EXPECT_EQ(against_baseline(pass, with_errors({0}), tf32).status, Status::pass) << "a library may do without TF32";
  const Case cut = c.with_dtype(Dtype::tf32);
  const double truncated = u + 36.0 / 4 * u;  // K is 36
  EXPECT_EQ(against_baseline(with_errors({truncated}), with_errors({0}), cut).status, Status::pass);
  EXPECT_EQ(against_baseline(with_errors({1.1 * truncated}), with_errors({0}), cut).status, Status::fail);
  const Verdict failed{.status = Status::fail, .reason = "earlier"};
  EXPECT_EQ(against_baseline(failed, with_errors({1}), c).reason, "earlier");
}

// Two outputs of two elements each: dx in bf16, dw in fp32.
struct TwoOutputs {
  TensorSpec dx{.name = "dx", .role = Role::output, .dtype = Dtype::bf16, .shape = {2}, .layout = "c"};
  TensorSpec dw{.name = "dw", .role = Role::output, .dtype = Dtype::f32, .shape = {2}, .layout = "c"};
  Case c{.pass = &pass_of<conv3x3::Fprop>(), .text = "two outputs", .tensors = {dx, dw}};
  ExpectedOutputs refs = {{{1, 2}, {1, 2}}, {{3, 4}, {3, 4}}};
};

TEST(Compare, EveryOutputHasItsError) {
  const TwoOutputs two;
  const Verdict v = compare(two.c, Pattern::normal, {{1, 2}, {6, 8}}, two.refs);
  ASSERT_EQ(v.errors.size(), 2u);
  EXPECT_EQ(v.errors[0], 0.0);
  EXPECT_EQ(v.errors[1], 1.0);
  EXPECT_EQ(v.error, 1);
}

TEST(Compare, HalfOfAnFp32OutputIsLikelyTwoByteStores) {
  TwoOutputs two;
  const Outputs y = {{1, 2}, {3, poison(Dtype::f32)}};
  EXPECT_EQ(compare(two.c, Pattern::normal, y, two.refs).reason.find("stored as 2 bytes"), std::string::npos)
      << "the problem is fp32";
  two.c.dtype = Dtype::bf16;
  EXPECT_NE(compare(two.c, Pattern::normal, y, two.refs).reason.find("stored as 2 bytes"), std::string::npos);
  const Outputs none = {{1, 2}, {poison(Dtype::f32), poison(Dtype::f32)}};
  EXPECT_EQ(compare(two.c, Pattern::normal, none, two.refs).reason.find("stored as 2 bytes"), std::string::npos);
}

TEST(Compare, AnInfiniteAnswerIsThatInfinityAlone) {
  TwoOutputs two;
  two.refs[1] = {{kInf, 4}, {kInf, 4}};
  const auto status = [&](float value) {
    return compare(two.c, Pattern::outliers, {{1, 2}, {value, 4}}, two.refs).status;
  };
  EXPECT_EQ(status(kInf), Status::pass);
  for (const float wrong : {-kInf, kNan, 3e38f}) EXPECT_EQ(status(wrong), Status::fail) << wrong;
  EXPECT_EQ(compare(two.c, Pattern::outliers, {{1, 2}, {kInf, 5}}, two.refs).status, Status::fail);
}

TEST(Compare, WhatIsNotToBeJudgedIsNotLookedAt) {
  const TwoOutputs two;
  const Outputs y = {{1, 2}, {kNan, poison(Dtype::f32)}};
  EXPECT_EQ(compare(two.c, Pattern::normal, y, two.refs).status, Status::fail);
  const Verdict v = compare(two.c, Pattern::normal, y, two.refs, {}, {true, false});
  EXPECT_EQ(v.status, Status::pass) << v.reason;
  EXPECT_EQ(v.unwritten, 0);
  ASSERT_EQ(v.errors.size(), 2u);
  EXPECT_TRUE(v.errors[0].has_value());
  EXPECT_FALSE(v.errors[1].has_value());
}

TEST(Compare, EachOutputMeetsTheBaselinesOwn) {
  const Case c = TwoOutputs().c;
  const Verdict ours = with_errors({1e-3, 1e-4});
  EXPECT_EQ(against_baseline(ours, with_errors({1e-3, 1e-4}), c).status, Status::pass);
  const Verdict second = against_baseline(ours, with_errors({1e-3, 1e-5}), c);
  EXPECT_EQ(second.status, Status::fail) << "the first output's rounding must not excuse the second's error";
  EXPECT_NE(second.reason.find("of dw"), std::string::npos) << second.reason;
  EXPECT_EQ(against_baseline(ours, with_errors({1e-3, {}}), c).status, Status::pass) << "nothing to compare dw with";
  EXPECT_EQ(against_baseline(ours, with_errors({{}, 1e-5}), c).status, Status::fail) << "dw it does make";
}

TEST(NullAnswers, NoNamedCaseAcceptsOne) {
  for (const char* set : {"ci", "edge"}) {
    for (const NamedCase& named : named_cases(pass_of<conv3x3::Fprop>(), set)) {
      for (const Dtype dtype : kProblemDtypes) {
        for (const Pattern pattern : {Pattern::normal, Pattern::integer}) {
          const Case c = named.problem.with_dtype(dtype);
          EXPECT_EQ(accepted_null_answer(c, pattern, reference_run(c, pattern, 1)), "") << c.text;
        }
      }
    }
  }
}

TEST(NullAnswers, AreNamedWhereTheyWouldPass) {
  const Case c = make("n1 h2 w2 c3 k3");
  HostTensors inputs = fill(c, Pattern::normal, 1);
  const std::vector<double> magnitude(12, 1.0);
  const auto accepted = [&](std::vector<double> value) {
    return accepted_null_answer(c, Pattern::normal, {inputs, {{std::move(value), magnitude}}});
  };
  EXPECT_NE(accepted(std::vector<double>(12, 0.0)).find("all zeros would pass as y"), std::string::npos);
  EXPECT_NE(accepted(std::vector<double>(12, 1e-9)).find("all zeros"), std::string::npos) << "far below the bound";
  EXPECT_NE(accepted(std::vector<double>(12, 0.5)).find("the constant mean"), std::string::npos);
  const std::vector<float>& x = inputs.values[0];
  EXPECT_NE(accepted({x.begin(), x.end()}).find("a copy of x"), std::string::npos);
  EXPECT_EQ(accepted({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}), "");
  // A single nonzero element among twelve is too few to tell.
  std::vector<double> nearly_zero(12, 0.0);
  nearly_zero[5] = 1;
  EXPECT_NE(accepted(nearly_zero).find("all zeros"), std::string::npos);
  // Three of twelve nonzero elements are enough: SiLU leaves fewer than half of some sums.
  nearly_zero[0] = 2;
  EXPECT_NE(accepted(nearly_zero).find("all zeros"), std::string::npos);
  nearly_zero[1] = 3;
  EXPECT_EQ(accepted(nearly_zero), "");
}

TEST(NullAnswers, ElementsWithoutTermsDoNotCount) {
  const Case c = make("n1 h2 w2 c3 k3");
  const HostTensors inputs = fill(c, Pattern::normal, 1);
  std::vector<double> value(12, 0.0);
  std::vector<double> magnitude(12, 0.0);
  value[2] = magnitude[2] = 1;
  value[7] = magnitude[7] = 2;
  const auto accepted = [&] { return accepted_null_answer(c, Pattern::normal, {inputs, {{value, magnitude}}}); };
  EXPECT_EQ(accepted(), "") << "two elements have terms, and zero is wrong for both";
  value[2] = value[7] = 0;
  EXPECT_NE(accepted().find("all zeros"), std::string::npos);
  magnitude[2] = magnitude[7] = 0;
  EXPECT_NE(accepted().find("Expected::magnitude is to be"), std::string::npos) << "no element has terms";
}

TEST(NullAnswers, OneOrTwoElementsMayEqualAnInputByChance) {
  const Case c = make("n1 h2 w2 c3 k3");
  const HostTensors inputs = fill(c, Pattern::normal, 1);
  const std::vector<float>& x = inputs.values[0];
  const auto accepted = [&](std::size_t count) {
    std::vector<double> value(12, 0.0);
    std::vector<double> magnitude(12, 0.0);
    std::copy_n(x.begin(), count, value.begin());
    std::fill_n(magnitude.begin(), count, 1.0);
    return accepted_null_answer(c, Pattern::normal, {inputs, {{value, magnitude}}});
  };
  EXPECT_EQ(accepted(1), "");
  EXPECT_EQ(accepted(2), "");
  EXPECT_NE(accepted(3).find("a copy of x"), std::string::npos);
}

// Long tensors, encoded in parts by several threads, must equal those encoded at once.
TEST(HostTensors, LongOnesAreEncodedAsShortOnes) {
  constexpr std::size_t kElements = 200'001;
  std::vector<float> values(kElements);
  for (std::size_t i = 0; i < kElements; ++i) values[i] = static_cast<float>(i) / 3;
  for (const Dtype dtype : kProblemDtypes) {
    const TensorSpec spec{.name = "x", .dtype = dtype, .shape = {kElements}, .layout = "n"};
    const std::vector<unsigned char> stored = encoded(spec, values);
    std::vector<unsigned char> at_once(spec.bytes());
    encode(dtype, values.data(), kElements, at_once.data());
    EXPECT_EQ(stored, at_once) << name(dtype);
    std::vector<float> kept = values;
    for (float& value : kept) value = round_to(dtype, value);
    EXPECT_EQ(decoded(spec, stored), kept) << name(dtype);
  }
}

TEST(Fill, IsReproducibleAndDependsOnTheSeed) {
  const Case c = make("n2 h16 w16 c64 k64 bias bf16");
  for (const Pattern pattern : {Pattern::normal, Pattern::integer}) {
    EXPECT_EQ(fill(c, pattern, 1).values, fill(c, pattern, 1).values);
    EXPECT_NE(fill(c, pattern, 1).values, fill(c, pattern, 2).values);
  }
}

// Element i is a function of the seed and i, whatever the size and so the number of threads.
TEST(Fill, ValuesDoNotDependOnTheSize) {
  const auto small = fill(make("n1 h4 w4 c8 k8"), Pattern::normal, 3).values[0];
  const auto large = fill(make("n64 h32 w32 c8 k8"), Pattern::normal, 3).values[0];
  EXPECT_TRUE(std::equal(small.begin(), small.end(), large.begin()));
}

TEST(Fill, NormalHasTheMomentsAndTheDtype) {
  for (const Dtype dtype : kProblemDtypes) {
    const Case c = make("n4 h32 w32 c64 k64 bias").with_dtype(dtype);
    const HostTensors tensors = fill(c, Pattern::normal, test::seed());
    ASSERT_EQ(tensors.values.size(), c.tensors.size());
    EXPECT_TRUE(tensors.values.back().empty()) << "an output has no values";
    for (std::size_t t : {0, 1}) {
      double sum = 0;
      double squares = 0;
      for (const float value : tensors.values[t]) {
        ASSERT_EQ(value, round_to(dtype, value));
        sum += value;
        squares += double(value) * value;
      }
      const double count = static_cast<double>(tensors.values[t].size());
      const double stddev = c.tensors[t].stddev;
      // Six standard errors of mean and variance; one seed in 10^8 fails.
      EXPECT_LT(std::abs(sum / count), 6 * stddev / std::sqrt(count)) << name(dtype);
      EXPECT_NEAR(squares / count / (stddev * stddev), 1, 6 * std::sqrt(2 / count) + 2 * unit_roundoff(dtype));
    }
  }
}

TEST(Fill, NormalStaysFiniteInFp16) {
  const TensorSpec x{.name = "x", .dtype = Dtype::f16, .shape = {10000}, .layout = "c", .stddev = 60000};
  const Case c{.pass = &pass_of<conv3x3::Fprop>(), .tensors = {x}};
  const HostTensors tensors = fill(c, Pattern::normal, test::seed());
  for (const float value : tensors.values[0]) ASSERT_TRUE(std::isfinite(value));
}

TEST(Fill, OutliersAreFewAndLargeBesideZerosAndSubnormals) {
  for (const Dtype dtype : kProblemDtypes) {
    const Case c = make("n4 h32 w32 c64 k64").with_dtype(dtype);
    const std::vector<float> x = fill(c, Pattern::outliers, test::seed()).values[0];
    const auto fraction = [&](const auto& is) {
      return static_cast<double>(std::ranges::count_if(x, is)) / static_cast<double>(x.size());
    };
    const double least = kLeastOutlier * c.tensors[0].stddev;
    EXPECT_NEAR(fraction([&](float v) { return std::abs(v) >= 0.99 * least; }), 1.0 / 16, 1.0 / 64) << name(dtype);
    EXPECT_GT(fraction([&](float v) { return std::abs(v) > 100 * least; }), 1.0 / 256) << name(dtype);
    EXPECT_LE(*std::ranges::max_element(x), 1.01 * kLargestOutlier * c.tensors[0].stddev);
    EXPECT_GT(fraction([](float v) { return v == 0 && std::signbit(v); }), 1.0 / 512) << name(dtype);
    EXPECT_GT(fraction([&](float v) { return v != 0 && std::abs(v) < (dtype == Dtype::f16 ? 0x1p-14 : 0x1p-126); }),
              1.0 / 256)
        << name(dtype);
  }
  const Case c = make("n1 h8 w8 c8 k8");
  EXPECT_LT(std::ranges::max(fill(c, Pattern::outliers, 1, {.tame = {"x"}}).values[0]), 10);
  EXPECT_GT(std::ranges::max(fill(c, Pattern::outliers, 1).values[0]), 10);
}

TEST(Reference, OutliersAreLoweredUntilAnswersFitTheirDtype) {
  const Case c = make("n1 h8 w8 c64 k8 fp16");
  const ReferenceRun run = reference_run(c, Pattern::outliers, test::seed());
  for (const double value : run.expected[0].value) ASSERT_LT(std::abs(value), 65504.0 / 2);
  const auto largest = [](const Case& of) {
    return std::ranges::max(reference_run(of, Pattern::outliers, test::seed()).inputs.values[0]);
  };
  EXPECT_GT(largest(c), kLeastOutlier) << "some are left";
  EXPECT_GT(largest(c.with_dtype(Dtype::bf16)), largest(c)) << "bf16 has fp32's range";
}

TEST(Fill, IntegersAreSmallNonzeroAndAllThere) {
  for (const char* line : {"n1 h8 w8 c64 k64 bias fp16", "n1 h1 w1 c1000000 k1"}) {
    const Case c = make(line);
    const HostTensors tensors = fill(c, Pattern::integer, test::seed());
    const std::set<float> seen(tensors.values[0].begin(), tensors.values[0].end());
    EXPECT_FALSE(seen.contains(0));
    EXPECT_TRUE(seen.contains(1));
    EXPECT_TRUE(seen.contains(-1));
    const double most = *seen.rbegin();
    EXPECT_EQ(*seen.begin(), -most);
    EXPECT_EQ(static_cast<double>(seen.size()), 2 * most);
    EXPECT_LE(most * most * static_cast<double>(c.reduction_length()), 0x1p24) << "sums must be exact in fp32";
  }
}

class Device : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
    inputs_ = fill(c_, Pattern::normal, 1);
    tensors_ = std::make_unique<DeviceTensors>(c_, inputs_, 100);
  }
  // Overwrite the byte at `offset` from the start of a buffer.
  static void scribble(void* start, std::ptrdiff_t offset) {
    unsigned char byte = 0;
    unsigned char* at = static_cast<unsigned char*>(start) + offset;
    backend::copy_out(&byte, at, 1);
    byte = static_cast<unsigned char>(~byte);
    backend::copy_in(at, &byte, 1);
  }

  const Case c_ = make("n1 h3 w3 c5 k7 bias bf16");  // x 90 bytes, w 630, bias 28, y 126
  HostTensors inputs_;
  std::unique_ptr<DeviceTensors> tensors_;
};

TEST_F(Device, StartsPoisonedAndUndamaged) {
  EXPECT_EQ(tensors_->damage(), "");
  EXPECT_TRUE(tensors_->untouched());
  const Outputs y = tensors_->outputs();
  ASSERT_EQ(y.size(), 1u);
  ASSERT_EQ(y[0].size(), 63u);
  for (const float value : y[0]) EXPECT_TRUE(std::isnan(value));
  unsigned char byte = 0;
  for (std::size_t i = 0; i < 100; ++i) {
    backend::copy_out(&byte, static_cast<unsigned char*>(tensors_->workspace()) + i, 1);
    EXPECT_EQ(byte, 0xff);
  }
}

TEST_F(Device, InputsArriveAndCanBeReplaced) {
  for (const std::uint64_t seed : {1, 2}) {
    const HostTensors inputs = fill(c_, Pattern::integer, seed);
    tensors_->refill(inputs);
    for (std::size_t t = 0; t < 3; ++t) {
      std::vector<unsigned char> stored(c_.tensors[t].bytes());
      backend::copy_out(stored.data(), tensors_->data()[t], stored.size());
      EXPECT_EQ(decoded(c_.tensors[t], stored), inputs.values[t]) << c_.tensors[t].name;
    }
    EXPECT_EQ(tensors_->damage(), "");
  }
}

TEST_F(Device, EveryGuardIsWatchedToItsEnds) {
  const struct {
    const char* name;
    void* start;
    std::ptrdiff_t bytes;
  } buffers[] = {{"x", tensors_->data()[0], 90},
                 {"w", tensors_->data()[1], 630},
                 {"bias", tensors_->data()[2], 28},
                 {"y", tensors_->data()[3], 126},
                 {"workspace", tensors_->workspace(), 100}};
#if defined(LADDER_ASAN)
  GTEST_SKIP() << "AddressSanitizer watches what surrounds a buffer";
#endif
  for (const auto& b : buffers) {
    // The emulator has an inaccessible page after the buffer's size, rounded up to 16 bytes.
    const std::ptrdiff_t guarded = backend::kind() == backend::Kind::gpu ? b.bytes + 4096 : (b.bytes + 15) / 16 * 16;
    for (const std::ptrdiff_t offset : {std::ptrdiff_t{-1}, std::ptrdiff_t{-4096}, b.bytes, guarded - 1}) {
      scribble(b.start, offset);
      const std::string where = offset < 0 ? fmt::format("{} bytes before its start", -offset)
                                           : fmt::format("{} bytes past its end", offset - b.bytes);
      EXPECT_EQ(tensors_->damage(), fmt::format("{}: overwritten {}", b.name, where));
      scribble(b.start, offset);
      EXPECT_EQ(tensors_->damage(), "");
    }
  }
}

TEST_F(Device, EveryInputIsWatched) {
  for (std::size_t t = 0; t < 3; ++t) {
    const TensorSpec& spec = c_.tensors[t];
    const auto last = static_cast<std::ptrdiff_t>(spec.bytes()) - 1;
    scribble(tensors_->data()[t], last);
    EXPECT_EQ(tensors_->damage(), fmt::format("input {}: changed at element {}", spec.name, spec.elements() - 1));
    scribble(tensors_->data()[t], last);
  }
}

TEST_F(Device, WritingAnOutputIsNoDamageAndPoisonUndoesIt) {
  scribble(tensors_->data()[3], 125);
  scribble(tensors_->workspace(), 99);
  EXPECT_EQ(tensors_->damage(), "");
  EXPECT_FALSE(tensors_->untouched());
  tensors_->reset();
  EXPECT_TRUE(tensors_->untouched());
}

TEST_F(Device, WorkspaceOfNoBytesIsNull) { EXPECT_EQ(DeviceTensors(c_, inputs_, 0).workspace(), nullptr); }

// Two references of a pass register in an unknown order, so neither counts.
TEST(Check, APassWithTwoReferencesHasNone) {
  static const Pass pass{.layer = "toy", .name = "two_references"};
  const auto zeros = [](const Case&, const HostTensors&) { return NamedOutputs(); };
  const Case c{.pass = &pass};
  EXPECT_TRUE(register_reference(pass, zeros));
  EXPECT_NO_THROW(reference_outputs(c, {}));
  EXPECT_FALSE(register_reference(pass, zeros));
  EXPECT_THROW(reference_outputs(c, {}), Failure);
}

TEST(Check, SkipsWithTheReason) {
  const Version& v = find_version(pass_of<conv3x3::Fprop>(), 1);
  Version picky = v;
  picky.def.dtypes = {Dtype::f32};
  picky.def.supports = [](const Case&) { return "too small"; };
  const Verdict dtype = check(picky, make("n1 h1 w1 c1 k1 bf16"), 1);
  EXPECT_EQ(dtype.status, Status::skip);
  EXPECT_EQ(dtype.reason, v.label() + " has no bf16; it has fp32");
  EXPECT_EQ(check(picky, make("n1 h1 w1 c1 k1"), 1).reason, "too small");
}

TEST(Check, NeedsTheArchitecture) {
  if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
  Version newer = find_version(pass_of<conv3x3::Fprop>(), 1);
  newer.def.min_arch = backend::device().arch + 10;
  const Verdict v = check(newer, make("n1 h1 w1 c1 k1"), 1);
  EXPECT_EQ(v.status, Status::skip);
  EXPECT_NE(v.reason.find(fmt::format("needs sm_{}", newer.def.min_arch)), std::string::npos) << v.reason;
}

// Inputs and answers are the same for all versions of a case, but each version's bound decides which null answers would
// pass.
TEST(Check, NullAnswersAreJudgedByTheVersionsOwnBound) {
  if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
  const Version& plain = find_version(pass_of<conv3x3::Fprop>(), 1);
  Version loose = plain;
  loose.def.error_growth = 1e9;
  const Case c = make("n1 h3 w3 c4 k4");
  EXPECT_EQ(check(plain, c, 1).status, Status::pass);
  EXPECT_EQ(check(loose, c, 1).status, Status::untrusted);
  EXPECT_EQ(check(loose, c, 2).status, Status::untrusted);
  EXPECT_EQ(check(plain, c, 2).status, Status::pass);
}

TEST(Check, AnExceptionOfTheLaunchIsAFailure) {
  if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
  Version throws = find_version(pass_of<conv3x3::Fprop>(), 1);
  throws.def.plans = [](const Case&) -> std::vector<KernelPlan<AnyPass>> {
    const BoundLaunch refuse = [](Stream) { throw std::runtime_error("refused\nfor a reason\n"); };
    return {{.bind = [refuse](const Pointers&, void*) { return refuse; }}};
  };
  const Verdict v = check(throws, make("n1 h2 w2 c2 k2"), 1);
  EXPECT_EQ(v.status, Status::fail);
  EXPECT_EQ(v.reason, "refused; for a reason");
}

TEST(SourceExcerpt, ShowsTheLineThatAReportBeginsWith) {
  const int line = __LINE__;
  const std::string report = fmt::format("tests/test_check.cpp:{}:3: it is wrong", line);
  EXPECT_EQ(source_excerpt(report), fmt::format("{:5} |   const int line = __LINE__;\n      |   ^\n", line));
  EXPECT_EQ(source_excerpt("tests/test_check.cpp:1: a b"),
            "    1 | // Verdicts of the checker: fill(), compare(), the null-answer gate and guarded buffers.\n");
  for (const char* other : {"", "y: 3 of 4 wrong", "tests/no_such.cpp:1: x", "tests/test_check.cpp:999999: x"}) {
    EXPECT_EQ(source_excerpt(other), "") << other;
  }
}

// Returns a copy of a version with another launch. A test keeps the copy static: a version that ran for ever is known
// by its address.
Version launching(const Version& v, const std::function<void(const BoundLaunch& right, Stream)>& launch) {
  Version other = v;
  other.def.plans = [&v, launch](const Case& c) -> std::vector<KernelPlan<AnyPass>> {
    const Kernel kernel = plan(v, c);
    return {{.bind = [kernel, launch](const Pointers& pointers, void* workspace) -> BoundLaunch {
      return [right = kernel.bind(pointers, workspace), launch](Stream stream) { launch(right, stream); };
    }}};
  };
  return other;
}

TEST(Check, AVersionThatRanForEverRunsNoMore) {
  if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
  static const Version endless = launching(find_version(pass_of<conv3x3::Fprop>(), 1), [](const BoundLaunch&, Stream) {
    throw Endless("v01.cu:12: it loops for ever");
  });
  EXPECT_EQ(check(endless, make("n1 h2 w2 c2 k2"), 1).status, Status::fail);
  const Verdict second = check(endless, make("n1 h3 w3 c2 k2"), 1);
  EXPECT_EQ(second.status, Status::skip);
  EXPECT_EQ(second.reason, "it loops for ever on 'n1 h2 w2 c2 k2 fp32'");
}

TEST(Check, WhatDependsOnTheScheduleIsCalledALikelyRace) {
  if (backend::kind() == backend::Kind::gpu) GTEST_SKIP() << "a GPU has one schedule";
  const Version& right = find_version(pass_of<conv3x3::Fprop>(), 1);
  static const Version racy = launching(right, [](const BoundLaunch& launch, Stream stream) {
    if (backend::schedule() != "greedy:1") launch(stream);
  });
  CheckedCase c(make("n1 h2 w2 c2 k2"), 1);
  const std::string said = difference_between_schedules(racy, c);
  EXPECT_NE(said.find("likely a race"), std::string::npos) << said;
  EXPECT_NE(said.find("it passes under asc, and is wrong under greedy:1"), std::string::npos) << said;
  static const Version wrong = launching(right, [](const BoundLaunch&, Stream) {});
  EXPECT_EQ(difference_between_schedules(wrong, c), "") << "wrong in the same way under each";
}

TEST(Check, InfinitiesThatNoScheduleChangesAreNoRace) {
  if (backend::kind() == backend::Kind::gpu) GTEST_SKIP() << "a GPU has one schedule";
  static Version infinite = find_version(pass_of<conv3x3::Fprop>(), 1);
  infinite.def.plans = [](const Case& c) -> std::vector<KernelPlan<AnyPass>> {
    return {{.bind = [count = c.tensor("y").elements()](const Pointers& pointers, void*) -> BoundLaunch {
      return [y = pointers.get<float>("y"), count](Stream) { std::fill_n(y, count, INFINITY); };
    }}};
  };
  CheckedCase c(make("n1 h2 w2 c2 k2"), 1);
  EXPECT_EQ(difference_between_schedules(infinite, c), "");
}

}  // namespace
}  // namespace ladder
