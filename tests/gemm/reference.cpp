// The reference of gemm against hand-computed numbers, a formula that shares no code with it, and finite differences.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/check/check.h"
#include "core/error.h"
#include "core/shapes.h"
#include "dev/gemm/bf16_parts.h"
#include "dev/gemm/gemm.h"
#include "tests/support.h"

namespace ladder {
namespace {

using gemm::Problem;

template <class P>
Case make(const std::string& line) {
  return pass_of<P>().parse(line);
}

// Reference outputs for `values`, in the order of the case's tensors without the outputs.
ExpectedOutputs answer(const Case& c, std::vector<std::vector<float>> values) {
  values.resize(c.tensors.size());
  return reference_outputs(c, HostTensors(c.tensors, std::move(values)));
}

TEST(GemmReference, HandComputedProduct) {
  // x = 1 2    w = 5 6    bias 100 200 300    r = 1000 2000 3000
  //     3 4        7 8                            4000 5000 6000
  //                9 -1
  const ExpectedOutputs y =
      answer(make<gemm::Fprop>("m2 n3 k2 bias residual"),
             {{1, 2, 3, 4}, {5, 6, 7, 8, 9, -1}, {100, 200, 300}, {1000, 2000, 3000, 4000, 5000, 6000}});
  EXPECT_EQ(y.at(0).value, (std::vector<double>{1117, 2223, 3307, 4139, 5253, 6323}));
  EXPECT_EQ(y.at(0).magnitude, (std::vector<double>{1117, 2223, 3311, 4139, 5253, 6331})) << "absolute terms";
  const ExpectedOutputs parts = answer(make<gemm::Fprop>("m2 n3 k2 split1"), {{1, 3}, {2, 4}, {5, 6, 7, 8, 9, -1}});
  EXPECT_EQ(parts.at(0).value, (std::vector<double>{17, 23, 7, 39, 53, 23}));
}

TEST(GemmReference, HandComputedGradients) {
  // dy = 1 2    x = 10 20    w = 5 6
  //      3 4        30 40        7 -8
  const ExpectedOutputs dx = answer(make<gemm::Dgrad>("m2 n2 k2"), {{1, 2, 3, 4}, {5, 6, 7, -8}});
  EXPECT_EQ(dx.at(0).value, (std::vector<double>{19, -10, 43, -14}));
  EXPECT_EQ(dx.at(0).magnitude, (std::vector<double>{19, 22, 43, 50}));
  const ExpectedOutputs sum =
      answer(make<gemm::Dgrad>("m2 n2 k2 accumulate"), {{1, 2, 3, 4}, {5, 6, 7, -8}, {100, -200, 300, 400}});
  EXPECT_EQ(sum.at(0).value, (std::vector<double>{119, -210, 343, 386}));
  EXPECT_EQ(sum.at(0).magnitude, (std::vector<double>{119, 222, 343, 450}));
  const ExpectedOutputs parts = answer(make<gemm::Dgrad>("m2 n2 k2 split1"), {{1, 2, 3, 4}, {5, 6, 7, -8}});
  EXPECT_EQ(parts.at(0).value, (std::vector<double>{19, 43}));
  EXPECT_EQ(parts.at(1).value, (std::vector<double>{-10, -14}));
  EXPECT_EQ(parts.at(1).magnitude, (std::vector<double>{22, 50}));
  const ExpectedOutputs dw = answer(make<gemm::Wgrad>("m2 n2 k2 bias"), {{10, 20, 30, 40}, {1, 2, 3, 4}});
  EXPECT_EQ(dw.at(0).value, (std::vector<double>{100, 140, 140, 200}));
  EXPECT_EQ(dw.at(1).value, (std::vector<double>{4, 6}));
  const ExpectedOutputs of_parts = answer(make<gemm::Wgrad>("m2 n2 k2 split1"), {{10, 30}, {20, 40}, {1, 2, 3, 4}});
  EXPECT_EQ(of_parts.at(0).value, (std::vector<double>{100, 140, 140, 200}));
}

TEST(GemmReference, SiluAtKnownPoints) {
  // Known values, computed to 20 digits elsewhere.
  const std::pair<float, double> known[] = {
      {1, 0.7310585786300049}, {-1, -0.2689414213699951}, {-3, -0.14227761953270035}, {0, 0}, {40, 40}};
  for (const auto& [z, y] : known) {
    EXPECT_NEAR(answer(make<gemm::Fprop>("m1 n1 k1 silu"), {{z}, {1}}).at(0).value.at(0), y, 1e-14) << z;
  }
}

// z has three parts (product, bias, residual), and the activation must see their sum.
TEST(GemmReference, SiluComesLast) {
  const double y = answer(make<gemm::Fprop>("m1 n1 k1 bias residual silu"), {{2}, {3}, {-5}, {-2}}).at(0).value.at(0);
  EXPECT_NEAR(y, -0.2689414213699951, 1e-14);
}

// Products of all rows of a with all rows of b, [rows][cols], in long double; the outermost loop runs over the terms,
// backwards.
std::vector<double> outer_products(int rows, int cols, int terms, const auto& a, const auto& b) {
  std::vector<long double> sums(std::size_t(rows) * cols);
  for (int t = terms; t-- > 0;) {
    for (int row = 0; row < rows; ++row) {
      for (int col = 0; col < cols; ++col)
        sums[std::size_t(row) * cols + col] += static_cast<long double>(a(row, t)) * b(col, t);
    }
  }
  return {sums.begin(), sums.end()};
}

void expect_near(const Case& c, const Expected& checked, const std::vector<double>& expected) {
  ASSERT_EQ(checked.value.size(), expected.size());
  // Recursive summation in double (Higham 4.2): K roundings of at most 2^-53 of the magnitude each.
  const double bound = static_cast<double>(c.reduction_length() + 2) * 0x1p-53;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_LE(std::abs(checked.value[i] - expected[i]), bound * checked.magnitude[i]) << c.text << " at " << i;
  }
}

// Element [m][k] of x. With a split, columns from `split` on lie in x_rest.
float x_at(const Problem& p, const HostTensors& in, int m, int k) {
  if (p.split == 0) return in["x"][m * p.k + k];
  return k < p.split ? in["x"][m * p.split + k] : in["x_rest"][m * (p.k - p.split) + k - p.split];
}

void expect_agreement(Problem p, std::uint64_t seed) {
  p.silu = false;
  const Case fprop = make<gemm::Fprop>(p.str());
  const HostTensors in = fill(fprop, Pattern::normal, seed);
  const auto& w = in["w"];
  std::vector<double> y = outer_products(
      p.m, p.n, p.k, [&](int m, int k) { return x_at(p, in, m, k); }, [&](int n, int k) { return w[n * p.k + k]; });
  for (std::size_t i = 0; i < y.size(); ++i) {
    if (p.bias) y[i] += in["bias"][i % p.n];
    if (p.residual) y[i] += in["r"][i];
  }
  expect_near(fprop, reference_outputs(fprop, in).at(0), y);

  const Case dgrad = make<gemm::Dgrad>(p.str());
  const HostTensors to_x = fill(dgrad, Pattern::normal, seed);
  std::vector<double> dx = outer_products(
      p.m, p.k, p.n, [&](int m, int n) { return to_x["dy"][m * p.n + n]; },
      [&](int k, int n) { return to_x["w"][n * p.k + k]; });
  for (std::size_t i = 0; p.accumulate && i < dx.size(); ++i) dx[i] += to_x["r"][i];
  const ExpectedOutputs parts = reference_outputs(dgrad, to_x);
  const std::vector<int> edges = p.split > 0 ? std::vector<int>{0, p.split, p.k} : std::vector<int>{0, p.k};
  ASSERT_EQ(parts.size(), edges.size() - 1);
  for (std::size_t part = 0; part < parts.size(); ++part) {
    std::vector<double> of_part;
    for (int m = 0; m < p.m; ++m) {
      for (int k = edges[part]; k < edges[part + 1]; ++k) of_part.push_back(dx[std::size_t(m) * p.k + k]);
    }
    expect_near(dgrad, parts.at(part), of_part);
  }

  const Case wgrad = make<gemm::Wgrad>(p.str());
  const HostTensors to_w = fill(wgrad, Pattern::normal, seed);
  const ExpectedOutputs gradients = reference_outputs(wgrad, to_w);
  const auto dy = [&](int n, int m) { return to_w["dy"][m * p.n + n]; };
  expect_near(wgrad, gradients.at(0),
              outer_products(p.n, p.k, p.m, dy, [&](int k, int m) { return x_at(p, to_w, m, k); }));
  if (p.bias) expect_near(wgrad, gradients.at(1), outer_products(p.n, 1, p.m, dy, [](int, int) { return 1.0f; }));
}

TEST(GemmReference, AgreesWithOuterProductsOnNamedShapes) {
  for (const char* set : {"ci", "edge"}) {
    for (const NamedCase& named : named_cases(pass_of<gemm::Fprop>(), set)) {
      expect_agreement(problem_of<gemm::Fprop>(named.problem), test::seed());
    }
  }
}

TEST(GemmReference, AgreesWithOuterProductsOnRandomShapes) {
  std::mt19937_64 random(test::seed());
  for (int i = 0; i < 30; ++i) {
    expect_agreement(Problem::random(random()), random());
    if (HasFailure()) FAIL() << test::rerun_command();
  }
}

// Gradients of the loss <dy, z>. z is linear in x, w and bias, so the difference of two losses is a gradient to the
// last bits, for any step size.
TEST(GemmReference, GradientsAreThoseOfTheForwardFormula) {
  const Problem p{.m = 5, .n = 4, .k = 3, .bias = true};
  const Case fprop = make<gemm::Fprop>(p.str());
  HostTensors in = fill(fprop, Pattern::normal, test::seed());
  const Case wgrad = make<gemm::Wgrad>(p.str());
  HostTensors to_w = fill(wgrad, Pattern::normal, test::seed() + 1);
  to_w["x"] = in["x"];
  const std::vector<float> dy = to_w["dy"];
  const Case dgrad = make<gemm::Dgrad>(p.str());
  HostTensors to_x = fill(dgrad, Pattern::normal, test::seed());
  to_x["dy"] = dy;
  to_x["w"] = in["w"];

  const auto loss = [&] {
    double sum = 0;
    const Expected z = reference_outputs(fprop, in).at(0);
    for (std::size_t i = 0; i < dy.size(); ++i) sum += z.value[i] * dy[i];
    return sum;
  };
  const auto expect_gradient = [&](const char* input, const Expected& gradient) {
    std::vector<float>& values = in[input];
    ASSERT_EQ(values.size(), gradient.value.size()) << input;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float kept = values[i];
      values[i] = kept + 1;
      const double step = double(values[i]) - kept;
      const double above = loss();
      values[i] = kept;
      EXPECT_NEAR((above - loss()) / step, gradient.value[i], 1e-11)
          << input << " at " << i << "\n  " << test::rerun_command();
    }
  };
  const ExpectedOutputs of_weights = reference_outputs(wgrad, to_w);
  expect_gradient("x", reference_outputs(dgrad, to_x).at(0));
  expect_gradient("w", of_weights.at(0));
  expect_gradient("bias", of_weights.at(1));
}

// An activated element's magnitude must bound the effect of an error in its sum.
TEST(GemmReference, MagnitudeOfSiluFollowsItsSlope) {
  for (const float z : {-60.0f, -20.0f, -5.0f, -1.28f, -0.1f, 0.5f, 3.0f, 30.0f}) {
    const Expected y = answer(make<gemm::Fprop>("m1 n1 k1 silu"), {{z}, {1}}).at(0);
    const float nearby = std::nextafter(z, 0.0f);
    const Expected other = answer(make<gemm::Fprop>("m1 n1 k1 silu"), {{nearby}, {1}}).at(0);
    EXPECT_LE(std::abs(y.value[0] - other.value[0]), 0x1p-22 * y.magnitude[0]) << z;
    EXPECT_LE(y.magnitude[0], 8 * std::max(1.0f, std::abs(z)) * std::max(std::abs(y.value[0]), 0x1p-60)) << z;
  }
}

TEST(GemmReference, TellsNullAnswersApart) {
  for (const char* line : {"m40 n24 k40 bias silu", "m40 n24 k200 residual silu fp16", "m300 n64 k96 bias bf16"}) {
    const Case c = make<gemm::Fprop>(line);
    for (const Pattern pattern : {Pattern::normal, Pattern::integer}) {
      EXPECT_EQ(accepted_null_answer(c, pattern, reference_run(c, pattern, test::seed())), "") << line;
    }
  }
  EXPECT_FALSE(make<gemm::Fprop>("m8 n8 k8 silu").integers_exact);
  EXPECT_TRUE(make<gemm::Fprop>("m8 n8 k8 bias residual").integers_exact);
  EXPECT_TRUE(make<gemm::Wgrad>("m8 n8 k8 silu").integers_exact);
}

// Hand-computed: 0x1.921fb6p1 has 24 bits; each bf16 part takes 8 of them, rounded to nearest.
TEST(GemmBf16Parts, KnownValues) {
  float parts[3];
  gemm::bf16_parts(0x1.921fb6p1f, parts);
  EXPECT_EQ(parts[0], 0x1.92p1f);
  EXPECT_EQ(parts[1], 0x1.fcp-11f);
  EXPECT_EQ(parts[2], -0x1.4p-20f);
  gemm::bf16_parts(-(1 + 0x1p-23f), parts);
  EXPECT_EQ(parts[0], -1);
  EXPECT_EQ(parts[1], -0x1p-23f);
  EXPECT_EQ(parts[2], 0);
}

TEST(GemmBf16Parts, ThreeAreExactAndTwoHaveSixteenBits) {
  std::mt19937_64 random(test::seed());
  std::normal_distribution<float> normal;
  for (int i = 0; i < 10000; ++i) {
    // The last of value's 24 bits is far above bf16's smallest subnormal number, 2^-133.
    const float value = std::ldexp(normal(random), static_cast<int>(random() % 180) - 80);
    float three[3], two[2];
    gemm::bf16_parts(value, three);
    gemm::bf16_parts(value, two);
    ASSERT_EQ(double(three[0]) + three[1] + three[2], value) << test::rerun_command();
    ASSERT_LE(std::abs(double(two[0]) + two[1] - value), 0x1p-17 * std::abs(value)) << test::rerun_command();
    for (const float part : three) ASSERT_EQ(round_to(Dtype::bf16, part), part);
  }
}

// allow_tf32 permits TF32 products of fp32 tensors and changes nothing for other dtypes.
TEST(GemmProblem, AllowTf32IsOfFp32Alone) {
  const auto rounded = [](const Case& c) { return written(c.tensors).front()->intermediate; };
  EXPECT_EQ(rounded(make<gemm::Fprop>("m8 n8 k8 allow_tf32")), Dtype::tf32);
  EXPECT_EQ(rounded(make<gemm::Dgrad>("m8 n8 k8 allow_tf32")), Dtype::tf32);
  EXPECT_EQ(rounded(make<gemm::Wgrad>("m8 n8 k8 allow_tf32")), Dtype::tf32);
  EXPECT_EQ(rounded(make<gemm::Fprop>("m8 n8 k8")), std::nullopt);
  EXPECT_EQ(rounded(make<gemm::Fprop>("m8 n8 k8 allow_tf32 bf16")), std::nullopt);
}

TEST(GemmProblem, ReadsWhatItPrints) {
  for (const char* line : {"m131072 n64 k192 bias bf16", "m1 n1 k1 fp32", "m32 n256 k64 bias residual silu tf32",
                           "m8 n8 k8 accumulate split3 bf16", "m8 n8 k8 split7 fp16", "m8 n8 k8 allow_tf32 fp32"}) {
    EXPECT_EQ(Problem::parse(line).str(), line);
  }
  std::mt19937_64 random(test::seed());
  for (int i = 0; i < 100; ++i) {
    const Problem p = Problem::random(random());
    EXPECT_EQ(Problem::parse(p.str()), p);
  }
  EXPECT_THROW(Problem::parse("m1048576 n4096 k16"), UsageError) << "2^32 elements of y";
  EXPECT_THROW(Problem::parse("m1 n2"), UsageError);
  EXPECT_THROW(Problem::parse("m8 n8 k8 split8"), UsageError) << "nothing is left for the second part";
  EXPECT_THROW(Problem::parse("m8 n8 k8 split0"), UsageError);
}

}  // namespace
}  // namespace ladder
