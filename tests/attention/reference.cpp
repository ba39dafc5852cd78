// The reference of attention against hand-computed numbers, a formula that shares no code with it, and finite differences.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/check/check.h"
#include "core/error.h"
#include "core/shapes.h"
#include "dev/attention/attention.h"
#include "tests/support.h"

namespace ladder {
namespace {

using attention::Problem;

Case forward(const std::string& line) { return pass_of<attention::Forward>().parse(line); }
Case backward(const std::string& line) { return pass_of<attention::Backward>().parse(line); }

TEST(AttentionProblem, ReadsWhatItPrints) {
  for (const char* line : {"n32 t256 heads6 d32 bf16", "n1 t1 heads1 d64 fp32", "n2 t1024 heads3 d32 tf32",
                           "n1 t8 heads2 d32 order-new fp16",
                           "n2 t8 heads2 d32 separate q_image0 q_head256 q_token32 d_o_token128 bf16"}) {
    EXPECT_EQ(Problem::parse(line).str(), line);
  }
  EXPECT_EQ(Problem::parse("n2 t8 heads2 d32 separate k_image512 k_head32 k_token64"),
            Problem::parse("n2 t8 heads2 d32 separate"));
  for (int seed = 0; seed < 200; ++seed) {
    const Problem p = Problem::random(seed);
    EXPECT_EQ(Problem::parse(p.str()), p);
    EXPECT_GE(p.t, 4);
  }
}

TEST(AttentionProblem, RefusesWhatNoKernelHas) {
  for (const char* line :
       {"n1 t1025 heads1 d32", "n1 t16 heads1 d48", "n1 t16 d32", "n1 t16 heads1 d32 causal",
        "n1048576 t1024 heads1 d32", "n1 t16 heads1 d32 order-new separate", "n1 t16 heads1 d32 q_head32",
        "n1 t16 heads1 d32 separate q_token0", "n2 t16 heads1 d32 separate v_image2147483647"}) {
    EXPECT_THROW(Problem::parse(line), UsageError) << line;
  }
}

// Two tokens of one head. Only channel 0 of q and k is not zero: q is 1 and 2, k is sqrt(32) times 0 and ln 3. Values are 5
// and 9, and 1 and -1.
TEST(AttentionReference, HandComputedTokens) {
  const Case c = forward("n1 t2 heads1 d32");
  std::vector<float> qkv(2 * 96);
  qkv[0] = 1, qkv[96] = 2;
  qkv[96 + 32] = std::sqrt(32.0f) * std::log(3.0f);
  qkv[64] = 5, qkv[96 + 64] = 9;
  qkv[65] = 1, qkv[96 + 65] = -1;
  const ExpectedOutputs r = reference_outputs(c, HostTensors(c.tensors, {qkv, {}, {}}));
  // Scores 0 and ln 3, so p = 1/4 and 3/4; then 0 and ln 9, so 1/10 and 9/10.
  EXPECT_NEAR(r[0].value[0], 5 * 0.25 + 9 * 0.75, 1e-6);
  EXPECT_NEAR(r[0].value[1], 0.25 - 0.75, 1e-6);
  EXPECT_NEAR(r[0].value[2], 0, 1e-12);
  EXPECT_NEAR(r[0].value[32], 0.5 + 8.1, 1e-6);
  EXPECT_NEAR(r[1].value[0], std::log(4.0), 1e-6);
  EXPECT_NEAR(r[1].value[1], std::log(10.0), 1e-6);
}

// Index by index from the shapes as the header writes them, q and k each scaled by 1 / sqrt(sqrt(d)), in long double.
TEST(AttentionReference, AgreesWithTheModelsOwnForm) {
  for (const NamedCase& named : named_cases(pass_of<attention::Forward>(), "ci")) {
    const Problem p = Problem::parse(named.problem.text);
    const Case c = forward(p.str());
    const HostTensors inputs = fill(c, Pattern::normal, test::seed());
    const ExpectedOutputs r = reference_outputs(c, inputs);
    const auto at = [&](int n, int t, int h, int part, int x) -> long double {
      const std::size_t token = std::size_t(n) * p.t + t;
      switch (p.layout) {
        case attention::QkvLayout::legacy:
          return inputs["qkv"][((token * p.heads + h) * 3 + part) * p.d + x];
        case attention::QkvLayout::order_new:
          return inputs["qkv"][((token * 3 + part) * p.heads + h) * p.d + x];
        case attention::QkvLayout::separate:
          break;
      }
      const attention::Strides strides[] = {p.q, p.k, p.v};
      const auto [image, head, pitch] = strides[part];
      const std::size_t row = pitch > 0 ? n * image + h * head + t * pitch : (token * p.heads + h) * p.d;
      return inputs[std::string(1, "qkv"[part])][row + x];
    };
    const long double root = 1 / std::sqrt(std::sqrt(static_cast<long double>(p.d)));
    for (int n = 0; n < p.n; ++n) {
      for (int h = 0; h < p.heads; ++h) {
        for (int i = 0; i < p.t; i += 1 + p.t / 7) {
          std::vector<long double> weights(p.t);
          long double sum = 0;
          for (int j = 0; j < p.t; ++j) {
            long double score = 0;
            for (int x = 0; x < p.d; ++x) score += at(n, i, h, 0, x) * root * at(n, j, h, 1, x) * root;
            sum += weights[j] = std::exp(score);
          }
          ASSERT_NEAR(r[1].value[(std::size_t(n) * p.heads + h) * p.t + i], std::log(sum), 1e-10) << c.text;
          for (int x = 0; x < p.d; ++x) {
            long double o = 0;
            for (int j = 0; j < p.t; ++j) o += weights[j] / sum * at(n, j, h, 2, x);
            ASSERT_NEAR(r[0].value[((std::size_t(n) * p.t + i) * p.heads + h) * p.d + x], o, 1e-10) << c.text;
          }
        }
      }
    }
  }
}

// The loss whose gradient with respect to o is d_o.
double loss(const Problem& p, const HostTensors& inputs) {
  const attention::Attended a = attention::attend(p, inputs);
  const std::vector<float>& d_o = inputs["d_o"];
  double sum = 0;
  for (std::size_t i = 0; i < a.o.size(); ++i) sum += d_o[i] * a.o[i];
  return sum;
}

TEST(AttentionReference, GradientsAreSlopes) {
  constexpr float kStep = 0x1p-7f;
  for (const char* line : {"n2 t5 heads2 d32", "n1 t9 heads1 d64", "n1 t2 heads1 d32", "n1 t3 heads2 d32 order-new",
                           "n1 t3 heads2 d32 separate"}) {
    const Case c = backward(line);
    const Problem p = Problem::parse(line);
    HostTensors inputs = fill(c, Pattern::normal, test::seed());
    const std::vector<std::string> names =
        p.packed() ? std::vector<std::string>{"qkv"} : std::vector<std::string>{"q", "k", "v"};
    for (const std::string& name : names) {  // a grid on which steps are exact
      for (float& value : inputs[name]) value = std::round(value / kStep) * kStep;
    }
    attention::Backward::derive(p, inputs);
    const ExpectedOutputs r = reference_outputs(c, inputs);
    for (std::size_t output = 0; output < names.size(); ++output) {
      std::vector<float>& input = inputs[names[output]];
      for (std::size_t i = 0; i < input.size(); i += 13) {
        const float middle = input[i];
        const auto difference = [&](float step) {
          input[i] = middle + step;
          const double above = loss(p, inputs);
          input[i] = middle - step;
          const double below = loss(p, inputs);
          input[i] = middle;
          return (above - below) / (2.0 * step);
        };
        // Two central differences, Richardson-extrapolated: the error is of order step^4. o and lse are rounded to fp32.
        const double slope = (4 * difference(kStep) - difference(2 * kStep)) / 3;
        ASSERT_NEAR(r[output].value[i], slope, 1e-5) << line << ' ' << names[output] << " at " << i;
      }
    }
  }
}

// p's rows sum to one: a constant added to all of q.k, or to all values, changes nothing of ds; so the sum of dk over the
// keys is zero wherever q is the same for all queries. Here: the sum of ds over the keys is zero, for each query.
TEST(AttentionReference, KeysGradientsCancel) {
  const Case c = backward("n1 t7 heads1 d32");
  const Problem p = Problem::parse("n1 t7 heads1 d32");
  HostTensors inputs = fill(c, Pattern::normal, test::seed());
  std::vector<float>& qkv = inputs["qkv"];
  for (int t = 1; t < p.t; ++t) std::copy_n(&qkv[0], 32, &qkv[t * 96]);
  attention::Backward::derive(p, inputs);
  const ExpectedOutputs r = reference_outputs(c, inputs);
  for (int x = 0; x < 32; ++x) {
    double sum = 0;
    for (int t = 0; t < p.t; ++t) sum += r[0].value[t * 96 + 32 + x];
    EXPECT_NEAR(sum, 0, 1e-5) << x;
  }
}

TEST(AttentionReference, NoNullAnswerPasses) {
  for (const Pass* pass : {&pass_of<attention::Forward>(), &pass_of<attention::Backward>()}) {
    for (const char* set : {"ci", "edge"}) {
      for (const NamedCase& named : named_cases(*pass, set)) {
        for (const Dtype dtype : kProblemDtypes) {
          const Case c = named.problem.with_dtype(dtype);
          for (const Pattern pattern : {Pattern::normal, Pattern::integer}) {
            EXPECT_EQ(accepted_null_answer(c, pattern, reference_run(c, pattern, test::seed())), "") << c.text;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace ladder
