// Comparison of outputs with the reference's answer.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/check/check.h"
#include "core/error.h"
#include "core/parallel.h"

namespace ladder {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kChunk = 1 << 14;

// Fewest products that a tensor core adds before it truncates the sum: the depth of Volta's HMMA and Ampere's TF32
// steps.
constexpr double kTermsPerTruncation = 4;

// Factor on the bound with outliers: a few of them decide an answer, so that its error is not the sum of many roundings
// which the probabilistic bound assumes.
constexpr double kOutlierSlack = 4;

// Error of an intermediate that fp32 flushes to zero, 2^-126, times two outliers: 1 / (1 + e^100) is zero in fp32.
constexpr double kUnderflow = 0x1p-126 * 0x1p14 * 0x1p14;

double smallest_subnormal(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
      return 0x1p-149;
    case Dtype::tf32:
      return 0x1p-136;
    case Dtype::bf16:
      return 0x1p-133;
    case Dtype::f16:
      return 0x1p-24;
    case Dtype::i32:
    case Dtype::i64:
    case Dtype::u8:
      return 0;
  }
  return 0;
}

// Poison keeps all mantissa bits when it is converted to fp32; a computed NaN has others.
bool is_poison(Dtype dtype, float value) {
  constexpr std::uint32_t kStored = 0xffffffffu;
  float poison = 0;
  decode(dtype, &kStored, 1, &poison);
  return std::bit_cast<std::uint32_t>(value) == std::bit_cast<std::uint32_t>(poison);
}

// Error statistics of an output tensor or of a part of it.
struct Tally {
  std::int64_t wrong = 0;
  std::int64_t unwritten = 0;
  std::int64_t first_unwritten = -1;
  std::int64_t worst_at = -1;
  double worst = 0;
  double squared_error = 0;
  double squared_norm = 0;

  void add(const Tally& other) {
    wrong += other.wrong;
    unwritten += other.unwritten;
    if (first_unwritten < 0) first_unwritten = other.first_unwritten;
    if (other.worst > worst) {
      worst = other.worst;
      worst_at = other.worst_at;
    }
    squared_error += other.squared_error;
    squared_norm += other.squared_norm;
  }
};

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

// Rule by which the elements of one tensor are compared.
struct Rule {
  const Case& c;
  const TensorSpec& output;
  Pattern pattern;
  const Expected& ref;
  const AnyVersionDef& def;
  // Least magnitude of any element. If a version mixes neighbouring elements in its intermediates, each carries the
  // errors of the largest.
  double least_magnitude = def.exact || ref.magnitude.empty() ? 0 : *std::ranges::max_element(ref.magnitude);

  bool exact() const {
    return is_integer(output.dtype) || (pattern == Pattern::integer && def.exact && c.integers_exact);
  }

  // y - ref| in units of the bound: right up to 1, infinite for NaN.
  double excess(std::int64_t i, float y) const {
    const double value = ref.value[i];
    if (std::isinf(value)) return y == value ? 0 : kInfinity;
    if (exact()) return y == round_to(output.dtype, static_cast<float>(value)) ? 0 : kInfinity;
    const double ratio = std::abs(y - value) / bound(i);
    return ratio <= kInfinity ? ratio : kInfinity;
  }

  double bound(std::int64_t i) const {
    const double roundings = c.dtype == Dtype::f32 ? 4 : 1;
    const double bound = error_bound(output, ref.value[i], std::max(ref.magnitude[i], least_magnitude), def, roundings);
    return pattern == Pattern::outliers ? kOutlierSlack * bound + kUnderflow : bound;
  }

  // Statistics of answer(i) over all elements i. Chunks are added in order: the sums do not depend on the number of
  // threads.
  Tally tally(const auto& answer) const {
    const std::int64_t count = std::ssize(ref.value);
    std::vector<Tally> chunks((count + kChunk - 1) / kChunk);
    parallel_for(std::ssize(chunks), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t chunk = begin; chunk < end; ++chunk) {
        Tally& t = chunks[chunk];
        for (std::int64_t i = chunk * kChunk; i < std::min(count, (chunk + 1) * kChunk); ++i) {
          const float y = answer(i);
          const double excess = this->excess(i, y);
          if (std::isfinite(ref.value[i])) {
            const double difference = std::isfinite(y) ? y - ref.value[i] : kInfinity;
            t.squared_error += difference * difference;
            t.squared_norm += ref.value[i] * ref.value[i];
          }
          if (!(excess <= 1)) ++t.wrong;
          if (excess > t.worst) {
            t.worst = excess;
            t.worst_at = i;
          }
          if (!(excess <= 1) && is_poison(output.dtype, y)) {
            ++t.unwritten;
            if (t.first_unwritten < 0) t.first_unwritten = i;
          }
        }
      }
    });
    Tally total;
    for (const Tally& chunk : chunks) total.add(chunk);
    return total;
  }
};

// "y[n0 h3 w1 k7]": the element's indices, each after its dimension's letter.
std::string element(const TensorSpec& spec, std::int64_t index) {
  std::string where;
  for (std::size_t d = spec.shape.size(); d-- > 0;) {
    where = fmt::format("{}{}{}", spec.layout[d], index % spec.shape[d], where.empty() ? "" : " " + where);
    index /= spec.shape[d];
  }
  return fmt::format("{}[{}]", spec.name, where);
}

std::string describe(const Rule& rule, const Tally& t, const std::vector<float>& y) {
  const auto count = y.size();
  if (t.unwritten > 0) {
    const bool narrow = rule.output.dtype == Dtype::f32 && size_of(rule.c.dtype) == 2;
    const bool half = count > 1 && t.unwritten == static_cast<std::int64_t>(count / 2);
    return fmt::format("{} of {} elements were never written or stem from unset memory, {} the first{}", t.unwritten,
                       count, element(rule.output, t.first_unwritten),
                       narrow && half ? ", half of all: an fp32 output stored as 2 bytes?" : "");
  }
  const std::string where = element(rule.output, t.worst_at);
  const double value = rule.ref.value[t.worst_at];
  if (rule.exact() || std::isinf(value)) {
    return fmt::format("{} = {} where exactly {} is right; {} of {} elements are wrong", where, y[t.worst_at],
                       round_to(rule.output.dtype, static_cast<float>(value)), t.wrong, count);
  }
  return fmt::format("{} = {:.6g} where {:.6g} +- {:.2g} is right; {} of {} elements are wrong", where, y[t.worst_at],
                     value, rule.bound(t.worst_at), t.wrong, count);
}

}  // namespace

double error_bound(const TensorSpec& output, double value, double magnitude, const AnyVersionDef& def,
                   double roundings) {
  const double sum = def.error_growth * 4 * std::sqrt(static_cast<double>(output.reduction_length)) * 0x1p-23;
  const double terms = output.intermediate ? roundings * unit_roundoff(*output.intermediate) : 0;
  return unit_roundoff(output.dtype) * std::abs(value) + (sum + terms) * magnitude + smallest_subnormal(output.dtype);
}

double error_limit(const Case& c, const TensorSpec& output, const Expected& expected, const AnyVersionDef& def) {
  const bool tf32 = output.intermediate == Dtype::tf32;
  if (c.dtype != Dtype::f32 || output.dtype != Dtype::f32 || (output.intermediate && !tf32)) return kInfinity;
  const auto norm = [](const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value * value;
    return std::sqrt(sum);
  };
  const double root = std::sqrt(static_cast<double>(output.reduction_length));
  const double condition = norm(expected.magnitude) / (norm(expected.value) * root);
  if (!std::isfinite(condition)) return kInfinity;  // the reference is all zeros
  const double of_terms = tf32 ? (2.5 + 4 / std::sqrt(static_cast<double>(expected.value.size()))) * 0x1p-11 : 0;
  const double of_sums = def.error_growth * (16 + root) * 0x1p-24;
  return std::max({condition, expected.condition, 1.0}) * (of_sums + of_terms);
}

Verdict compare(const Case& c, Pattern pattern, const std::vector<std::vector<float>>& outputs,
                const ExpectedOutputs& refs, const AnyVersionDef& def, const std::vector<bool>& looked_at) {
  const auto specs = written(c.tensors);
  LADDER_CHECK(outputs.size() == specs.size() && refs.size() == specs.size());
  LADDER_CHECK(looked_at.empty() || looked_at.size() == specs.size());
  Verdict verdict;
  verdict.errors.resize(specs.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (!looked_at.empty() && !looked_at[i]) continue;
    const std::vector<float>& y = outputs[i];
    LADDER_CHECK(y.size() == specs[i]->elements() && refs[i].value.size() == y.size() &&
                 refs[i].magnitude.size() == y.size());
    const Rule rule{c, *specs[i], pattern, refs[i], def};
    const Tally t = rule.tally([&](std::int64_t element_idx) { return y[element_idx]; });
    if (t.wrong > 0 && verdict.status == Status::pass) {
      verdict.status = Status::fail;
      verdict.reason = describe(rule, t, y);
    }
    verdict.worst = std::max(verdict.worst, t.worst);
    verdict.unwritten += t.unwritten;
    const double error = t.squared_error > 0 ? std::sqrt(t.squared_error / t.squared_norm) : 0;
    verdict.errors[i] = error;
    verdict.error = std::max(verdict.error, error);
  }
  return verdict;
}

Verdict within_limit(Verdict verdict, const Case& c, const ExpectedOutputs& expected, const AnyVersionDef& def) {
  const auto specs = written(c.tensors);
  for (std::size_t i = 0; i < specs.size() && verdict.status == Status::pass; ++i) {
    const double limit = error_limit(c, *specs[i], expected[i], def);
    const double error = verdict.errors.at(i).value_or(0);
    if (error <= limit) continue;
    verdict.status = Status::fail;
    verdict.reason = fmt::format(
        "{}: normalised L2 error {:.3g} where {} arithmetic stays below {:.3g}: inputs or products "
        "have been rounded to fewer bits",
        specs[i]->name, error, specs[i]->intermediate ? "TF32" : "fp32", limit);
  }
  return verdict;
}

std::string accepted_null_answer(const Case& c, Pattern pattern, const ReferenceRun& run, const AnyVersionDef& def) {
  const auto specs = written(c.tensors);
  const ExpectedOutputs& refs = run.expected;
  LADDER_CHECK(refs.size() == specs.size());
  if (std::none_of(refs.begin(), refs.end(), [](const Expected& r) { return r.discriminating; })) {
    return "every output is a constant or a copy of an input by the formula: this case cannot tell";
  }
  for (std::size_t i = 0; i < specs.size(); ++i) {
    if (!refs[i].discriminating) continue;
    const Rule rule{c, *specs[i], pattern, refs[i], def};
    // Sums of no terms (a tap that never lies inside the image) are zero in any answer and do not count.
    const std::vector<double>& magnitude = refs[i].magnitude;
    const std::int64_t count = std::ssize(magnitude) - std::count(magnitude.begin(), magnitude.end(), 0.0);
    if (count == 0) {
      return fmt::format(
          "the reference says of no element of {} how large its terms are: Expected::magnitude is to be "
          "the sum of their absolute values",
          specs[i]->name);
    }
    const auto accepts = [&](const auto& answer) {
      const auto told = [&](std::int64_t element_idx) {
        return magnitude[element_idx] == 0 ? 0.0f : answer(element_idx);
      };
      // At least a quarter must be wrong, not half: SiLU maps large negative sums to 0, half of all integer ones.
      return 4 * rule.tally(told).wrong < count;
    };
    const auto complaint = [&](const std::string& what) {
      return fmt::format("{} would pass as {}: this case cannot tell", what, specs[i]->name);
    };
    if (accepts([](std::int64_t) { return 0.0f; })) return complaint("all zeros");

    // One or two elements equal their mean, or one of many inputs, by chance in most draws of small integers.
    if (count <= 2) continue;
    const float constant = round_to(specs[i]->dtype, static_cast<float>(mean(refs[i].value)));
    if (accepts([&](std::int64_t) { return constant; })) return complaint("the constant mean");

    for (std::size_t t = 0; t < run.inputs.values.size(); ++t) {
      const std::vector<float>& values = run.inputs.values[t];
      if (values.empty()) continue;
      const auto copied = [&](std::int64_t element_idx) {
        return round_to(specs[i]->dtype, values[element_idx % values.size()]);
      };
      if (accepts(copied)) return complaint(fmt::format("a copy of {}", c.tensors[t].name));
    }
  }
  return {};
}

Verdict against_baseline(Verdict verdict, const Verdict& baseline, const Case& c, const AnyVersionDef& def) {
  const auto specs = written(c.tensors);
  for (std::size_t i = 0; i < specs.size() && verdict.status == Status::pass; ++i) {
    const std::optional<double> theirs = baseline.errors.at(i);
    // If TF32 is allowed, a library may do without it, or round where tensor cores truncate: within_limit() is the rule
    // there.
    if (!theirs || (specs[i]->dtype == Dtype::f32 && specs[i]->intermediate == Dtype::tf32)) continue;
    const double ours = verdict.errors.at(i).value();
    const double declared =
        (def.error_growth - 1) * std::sqrt(static_cast<double>(specs[i]->reduction_length)) * 0x1p-24;
    const double truncated =
        c.dtype == Dtype::f32 ? 0 : static_cast<double>(specs[i]->reduction_length) / kTermsPerTruncation * 0x1p-24;
    const double most = 2 * *theirs + unit_roundoff(specs[i]->dtype) + declared + truncated;
    if (ours <= most) continue;
    verdict.status = Status::fail;
    verdict.reason =
        fmt::format("error {:.3g} of {} is above {:.3g}: twice the baseline's {:.3g}, one rounding{}{}", ours,
                    specs[i]->name, most, *theirs, truncated > 0 ? ", what tensor cores truncate" : "",
                    declared > 0 ? " and the error growth declared" : "");
  }
  return verdict;
}

}  // namespace ladder
