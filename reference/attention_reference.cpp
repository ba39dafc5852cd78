// The reference of attention: the formulas of dev/attention/attention.h in double precision.
//
// Magnitudes. An output is a sum of terms (p v in the forward pass). compare() allows `unit` = error_bound(output, 0,
// 1) times the sum of their absolute values: this covers the additions in fp32 and, where the problem allows it, the
// rounding of p and ds to 16 bits. The terms themselves carry fp32 errors that are not proportional to the output's
// terms:
//
//     score s         e_s = 2^-24 (sqrt(d) a + 2 |s| + 2 |m| + 8),   a = scale * sum of |q k|
//
// e_s adds up a dot product of d terms, its scaling, the subtraction of m (the row's maximum, or lse) and a few units
// in the last place of the exponential. e_s is the relative error of p. Normalising by p's row sum, o moves by sum of p
// e_s (v - o). ds = p (dp - delta) has cancelling terms:
//
//     ds              e_ds = |ds| e_s + p 2^-24 (sqrt(d) (sum of |d_o v| + sum of |d_o o|) + |dp| + |delta|)
//
// A p or ds below fp16's smallest normal number 2^-14 also has an absolute rounding error of up to 2^-25, half of the
// spacing of fp16's subnormal numbers. bf16 and tf32 have fp32's range. Each such error is added to its term's
// magnitude with the weight 1 / unit, so that compare() allows it. In 16 bits the addition is next to nothing. In fp32,
// error_limit() also allows 2^-24 (16 + sqrt(K)) / sqrt(K) of the magnitudes over all elements: there the weight lets a
// quarter of the errors pass, since they are bounds and seldom all reached. Large scores, as integer inputs have, need
// it.
#include <algorithm>
#include <cmath>

#include "core/check/check.h"
#include "core/parallel.h"
#include "dev/attention/attention.h"

namespace ladder::attention {
namespace {

constexpr double kUnitRoundoff = 0x1p-24;  // fp32

Expected of_size(std::int64_t count) {
  return {.value = std::vector<double>(count), .magnitude = std::vector<double>(count)};
}

// Gather one head of one image into a contiguous [t, d] matrix.
std::vector<double> gathered(const Problem& p, const std::vector<float>& from, const HeadView& head) {
  std::vector<double> rows(std::int64_t{p.t} * p.d);
  for (std::int64_t i = 0; i < p.t; ++i) {
    for (int x = 0; x < p.d; ++x) rows[i * p.d + x] = from[head.first + i * head.pitch + x];
  }
  return rows;
}

void scatter(const Problem& p, const std::vector<double>& rows, const HeadView& head, std::vector<double>& to) {
  for (std::int64_t i = 0; i < p.t; ++i) {
    for (int x = 0; x < p.d; ++x) to[head.first + i * head.pitch + x] = rows[i * p.d + x];
  }
}

struct Dot {
  double value = 0;
  double magnitude = 0;
};

Dot dot(const double* a, const double* b, int d) {
  Dot sum;
  for (int x = 0; x < d; ++x) {
    sum.value += a[x] * b[x];
    sum.magnitude += std::abs(a[x] * b[x]);
  }
  return sum;
}

// Error bound e_s of the scaled score s, from which `most` is subtracted.
double score_error(const Problem& p, const Dot& s, double most) {
  return kUnitRoundoff * (std::sqrt(p.d) * s.magnitude + 2 * std::abs(s.value) + 2 * std::abs(most) + 8);
}

// Absolute error of rounding p and ds to fp16 below its normal range; 0 where the problem keeps another dtype. See
// above.
double underflow_error(const TensorSpec& output) { return output.intermediate == Dtype::f16 ? 0x1p-25 : 0; }

// Weight of a term's error in the term's magnitude. See above.
double error_weight(const TensorSpec& output) {
  const double least = 1 / error_bound(output, 0, 1);
  if (output.intermediate || output.dtype != Dtype::f32) return least;
  const double root = std::sqrt(static_cast<double>(output.reduction_length));
  return std::max(least, root / (4 * (16 + root) * kUnitRoundoff));
}

// to += factor * row, to_magnitude += factor_magnitude * |row|.
void add(double factor, double factor_magnitude, const double* row, int d, double* to, double* to_magnitude) {
  for (int x = 0; x < d; ++x) {
    to[x] += factor * row[x];
    to_magnitude[x] += factor_magnitude * std::abs(row[x]);
  }
}

// Call body(image, head) for all images and heads, from several threads.
void for_each_head(const Problem& p, const auto& body) {
  parallel_for(std::int64_t{p.n} * p.heads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) body(i / p.heads, static_cast<int>(i % p.heads));
  });
}

NamedOutputs forward(const Case& c, const HostTensors& in) {
  const auto& p = problem_of<Forward>(c);
  const double scale = 1 / std::sqrt(static_cast<double>(p.d));
  const double o_weight = error_weight(c.tensor("o"));
  const double o_underflow = o_weight * underflow_error(c.tensor("o"));
  const double lse_weight = error_weight(c.tensor("lse"));
  const Attended a = attend(p, in);
  Expected o{.value = a.o, .magnitude = std::vector<double>(a.o.size())};
  Expected lse{.value = a.lse, .magnitude = std::vector<double>(a.lse.size())};

  for_each_head(p, [&](std::int64_t image, int head) {
    const std::vector<double> q = gathered(p, in[tensor_of_part(p, 0)], heads_of_part(p, 0).head_view(image, head));
    const std::vector<double> k = gathered(p, in[tensor_of_part(p, 1)], heads_of_part(p, 1).head_view(image, head));
    const std::vector<double> v = gathered(p, in[tensor_of_part(p, 2)], heads_of_part(p, 2).head_view(image, head));
    const HeadView out = heads_of_o(p).head_view(image, head);
    std::vector<Dot> s(p.t);
    for (std::int64_t i = 0; i < p.t; ++i) {
      double most = 0;
      for (int j = 0; j < p.t; ++j) {
        s[j] = dot(&q[i * p.d], &k[std::int64_t{j} * p.d], p.d);
        s[j].value *= scale;
        s[j].magnitude *= scale;
        most = std::max(most, std::abs(s[j].value));
      }
      const std::int64_t row = (image * p.heads + head) * p.t + i;
      const double* o_row = &o.value[out.first + i * out.pitch];
      double* o_magnitude = &o.magnitude[out.first + i * out.pitch];
      double row_error = 0;  // error of lse from the scores' errors
      for (int j = 0; j < p.t; ++j) {
        const double probability = std::exp(s[j].value - lse.value[row]);
        const double error = score_error(p, s[j], most);
        row_error += probability * error;
        for (int x = 0; x < p.d; ++x) {
          const double term = std::abs(v[std::int64_t{j} * p.d + x]);
          o_magnitude[x] += probability * (term + o_weight * error * (term + std::abs(o_row[x]))) + o_underflow * term;
        }
      }
      // Terms: the logarithm of a sum of exponentials, the largest of which is 1, and the addition of the maximum.
      lse.magnitude[row] = 1 + std::abs(lse.value[row]) + lse_weight * row_error;
    }
  });
  NamedOutputs outputs;
  outputs["o"] = std::move(o);
  outputs["lse"] = std::move(lse);
  return outputs;
}

NamedOutputs backward(const Case& c, const HostTensors& in) {
  const auto& p = problem_of<Backward>(c);
  const double scale = 1 / std::sqrt(static_cast<double>(p.d));
  const TensorSpec& any_gradient = c.tensor(tensor_of_part(p, 0, "d"));
  const double weight = error_weight(any_gradient);
  const double underflow = weight * underflow_error(any_gradient);
  NamedOutputs outputs;
  for (const TensorSpec* output : written(c.tensors)) outputs[output->name] = of_size(output->elements());

  for_each_head(p, [&](std::int64_t image, int head) {
    const std::vector<double> q = gathered(p, in[tensor_of_part(p, 0)], heads_of_part(p, 0).head_view(image, head));
    const std::vector<double> k = gathered(p, in[tensor_of_part(p, 1)], heads_of_part(p, 1).head_view(image, head));
    const std::vector<double> v = gathered(p, in[tensor_of_part(p, 2)], heads_of_part(p, 2).head_view(image, head));
    const std::vector<double> o = gathered(p, in["o"], heads_of_o(p).head_view(image, head));
    const std::vector<double> d_o = gathered(p, in["d_o"], heads_of_d_o(p).head_view(image, head));
    const float* lse = &in["lse"][(image * p.heads + head) * p.t];
    Expected gradients[3];
    for (Expected& gradient : gradients) gradient = of_size(std::int64_t{p.t} * p.d);

    for (std::int64_t i = 0; i < p.t; ++i) {
      const double* q_row = &q[i * p.d];
      const double* d_o_row = &d_o[i * p.d];
      const Dot delta = dot(d_o_row, &o[i * p.d], p.d);
      for (std::int64_t j = 0; j < p.t; ++j) {
        const double* k_row = &k[j * p.d];
        Dot s = dot(q_row, k_row, p.d);
        s.value *= scale;
        s.magnitude *= scale;
        const double error = score_error(p, s, lse[i]);
        const double probability = std::exp(s.value - lse[i]);
        const Dot dp = dot(d_o_row, &v[j * p.d], p.d);
        const double ds = probability * (dp.value - delta.value);
        const double cancelled =
            std::sqrt(p.d) * (dp.magnitude + delta.magnitude) + std::abs(dp.value) + std::abs(delta.value);
        const double ds_error = std::abs(ds) * error + probability * kUnitRoundoff * cancelled;
        const double ds_magnitude = std::abs(ds) + weight * ds_error + underflow;
        add(scale * ds, scale * ds_magnitude, k_row, p.d, &gradients[0].value[i * p.d],
            &gradients[0].magnitude[i * p.d]);
        add(scale * ds, scale * ds_magnitude, q_row, p.d, &gradients[1].value[j * p.d],
            &gradients[1].magnitude[j * p.d]);
        add(probability, probability * (1 + weight * error) + underflow, d_o_row, p.d, &gradients[2].value[j * p.d],
            &gradients[2].magnitude[j * p.d]);
      }
    }
    for (int part = 0; part < 3; ++part) {
      const HeadView rows = heads_of_gradient(p, part).head_view(image, head);
      Expected& to = outputs.at(tensor_of_part(p, part, "d"));
      scatter(p, gradients[part].value, rows, to.value);
      scatter(p, gradients[part].magnitude, rows, to.magnitude);
    }
  });
  return outputs;
}

}  // namespace
}  // namespace ladder::attention

// Outliers of at most 60 deviations: logits are products of two outliers, and an exponential multiplies the rounding
// error of its argument. Beyond logits of some thousands the error is not small any more.
LADDER_OUTLIERS(ladder::attention::Forward, {.largest = 60})
LADDER_OUTLIERS(ladder::attention::Backward, {.largest = 60})
LADDER_REFERENCE(ladder::attention::Forward, ladder::attention::forward)
LADDER_REFERENCE(ladder::attention::Backward, ladder::attention::backward)
