// Checks of a version: inputs, the reference's answer, guarded and poisoned device buffers, and the comparison.
//
// A check that passes means: on inputs drawn from `seed`, with outputs poisoned by NaN and guard bands around every
// buffer, the version wrote every output element within its error bound, and neither its inputs nor a guard changed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/check/device_tensors.h"
#include "core/check/kernel_under_test.h"
#include "core/registry.h"

namespace ladder {

enum class Pattern : std::uint8_t {
  normal,    // N(0, stddev^2), rounded to the tensor's dtype; never constant
  integer,   // small integers: every product and sum is exact in fp32, so outputs compare bit for bit
  outliers,  // normal with one element in 16 of 30 to kLargestOutlier deviations, zeros of both signs, subnormals
};

inline constexpr double kLeastOutlier = 30;
inline constexpr double kLargestOutlier = 1e4;

// A pass's exceptions to Pattern::outliers.
struct OutlierRule {
  double largest = kLargestOutlier;    // largest outlier, in standard deviations; 0: no outliers
  std::vector<std::string> tame = {};  // tensors without outliers
  // Put infinities into inputs where the formula still defines the answer; null: no infinities.
  void (*add_infinities)(const Case& c, HostTensors& inputs) = nullptr;
};

// Random values for the tensors that the case's kernels read. `outliers` applies to Pattern::outliers.
HostTensors fill(const Case& c, Pattern pattern, std::uint64_t seed, const OutlierRule& outliers = {});

// The reference's answer for one output tensor. magnitude[i] is the sum of the absolute values of element i's terms
// (for a dot product, sum |a*b|): rounding errors of a sum scale with it, not with the result.
struct Expected {
  std::vector<double> value;
  std::vector<double> magnitude;
  // False if the formula makes this problem's right answer a null answer: a constant or a copy of an input. Another
  // output must then tell right from wrong.
  bool discriminating = true;
  // Ratio, in norm, of intermediate sums that cancel in the end to the result. A property of the formula, as of a mean
  // taken about a pivot far from it.
  double condition = 1;
};
using ExpectedOutputs = std::vector<Expected>;  // an entry for each written tensor, in the order of Case::tensors
using NamedOutputs = std::map<std::string, Expected, std::less<>>;

// A pass's formula in double precision. inputs["x"] holds the values of x; an inout tensor has its values before the
// pass. The result has an entry for each written tensor.
using ReferenceFunction = NamedOutputs (*)(const Case& c, const HostTensors& inputs);

// Registered by reference/<layer>_reference.cpp through LADDER_REFERENCE.
bool register_reference(const Pass& pass, ReferenceFunction reference);

// Registered by reference/<layer>_reference.cpp through LADDER_OUTLIERS, with the reason.
bool register_outliers(const Pass& pass, const OutlierRule& rule);

// Throws Failure if the pass has no reference.
ExpectedOutputs reference_outputs(const Case& c, const HostTensors& inputs);

// Inputs and the reference's answers to them.
struct ReferenceRun {
  HostTensors inputs;
  ExpectedOutputs expected;
};
// Run the reference. Pattern::outliers lowers its outliers until every answer fits its dtype: sums of products of 1e4
// overflow fp16.
ReferenceRun reference_run(const Case& c, Pattern pattern, std::uint64_t seed);

// Returns true if the reference takes milliseconds on the case. Larger cases are checked without Pattern::outliers.
bool is_small(const Case& c);

// A case and the reference's runs of it, each computed on first use. Checks of several versions, or of one under
// several schedules, share it. May be used from one thread at a time.
class CheckedCase {
 public:
  CheckedCase(Case c, std::uint64_t seed);

  const Case& operator*() const { return case_; }
  const Case* operator->() const { return &case_; }
  std::uint64_t seed() const { return seed_; }
  const ReferenceRun& run(Pattern pattern);

 private:
  Case case_;
  std::uint64_t seed_;
  std::map<Pattern, ReferenceRun> runs_;
};

enum class Status : std::uint8_t { pass, fail, skip, untrusted, unchecked };  // unchecked: not compared with anything
const char* name(Status status);  // "PASS", "FAIL", "SKIP", "UNTRUSTED", "UNCHECKED"

// Result of comparing outputs with the reference.
struct Verdict {
  Status status = Status::pass;
  std::string reason;          // empty for a pass; else one line: what, where, how much
  double error = 0;            // normalised L2, ||y - ref|| / ||ref||, of the output for which it is largest
  double worst = 0;            // largest |y - ref| / bound; above 1 fails
  std::int64_t unwritten = 0;  // poison elements: never written, or computed from poison
  std::vector<std::optional<double>> errors = {};  // normalised L2 of each output; nullopt: not compared
};

// Largest |y - ref| of an element of `output` that compare() accepts, for Pattern::normal:
//     u |value| + g 4 sqrt(K) 2^-23 magnitude + r u_i magnitude + smallest subnormal
// u is the unit roundoff of the output's dtype, g the error growth that the version declares in `def`, K the output's
// reduction length. u_i is the unit roundoff of TensorSpec::intermediate, the dtype to which the formula lets terms be
// rounded; 0 without one. A term may be off by r = `roundings` of u_i: 4 in an fp32 problem, for tensor cores truncate
// both factors. The second term is the probabilistic error bound of a sum in fp32 (Higham and Mary 2019, theorem 2.4,
// lambda = 4), doubled because tensor cores truncate where IEEE addition rounds.
double error_bound(const TensorSpec& output, double value, double magnitude, const AnyVersionDef& def = {},
                   double roundings = 1);

// Largest normalised L2 error, ||y - ref|| / ||ref||, allowed to an fp32 output of an fp32 problem, whatever its
// magnitudes allow:
//     max(1, condition) (g 2^-24 (16 + sqrt(K)) + t)
// g is the version's error growth, K the reduction length. A sequence of K additions in fp32 stays below the limit;
// inputs rounded to TF32 or bf16 do not. `condition` is ||magnitude|| / (sqrt(K) ||ref||) or Expected::condition, the
// larger of both: the formula itself may be ill-conditioned. t is 2^-11 (2.5 + 4 / sqrt(elements)) if terms may be
// rounded to TF32, else 0; its second summand allows for the scatter of few elements. Factors truncated to TF32 make
// 1.6 x 2^-11, bf16's 4.7 x 2^-11. The limit is infinite for other dtypes, and if terms may be rounded to other dtypes.
double error_limit(const Case& c, const TensorSpec& output, const Expected& expected, const AnyVersionDef& def = {});

// Compare outputs with the reference. An element passes if |y - ref| <= error_bound(), so NaN fails. For
// Pattern::integer the outputs must equal the reference's value rounded once to the output's dtype, unless the pass has
// no exact answers. A version that is not exact is held to the bound there too, with the tensor's largest magnitude for
// every element. looked_at[i] tells whether output i is compared; empty: all are.
Verdict compare(const Case& c, Pattern pattern, const std::vector<std::vector<float>>& outputs,
                const ExpectedOutputs& expected, const AnyVersionDef& def = {},
                const std::vector<bool>& looked_at = {});

// Returns `verdict`, but FAIL instead of a pass if an output's error is NaN or above error_limit().
Verdict within_limit(Verdict verdict, const Case& c, const ExpectedOutputs& expected, const AnyVersionDef& def);

// Returns empty, or the null answer (all zeros, the mean, a copy of an input) that compare() would accept in more than
// three quarters of a discriminating output's elements, not counting sums of no terms. No verdict on such a case can be
// trusted.
std::string accepted_null_answer(const Case& c, Pattern pattern, const ReferenceRun& run,
                                 const AnyVersionDef& def = {});

// Returns `verdict`, but FAIL instead of a pass if an output that the baseline makes has an error above
//     2 baseline_error + u + (g - 1) sqrt(K) 2^-24 + (K / 4) 2^-24
// baseline_error is the baseline's error on the same inputs, u one rounding of the output, g the error growth that the
// version declares (1 by default). The last term, 0 in fp32 problems, is the truncation by tensor cores: they cut off
// the fp32 sum after every 4 products or more, always towards zero, whereas the library may round or split the sum.
Verdict against_baseline(Verdict verdict, const Verdict& baseline, const Case& c, const AnyVersionDef& def = {});

// Run a kernel of the version and compare its outputs. `plan` names one of the version's plans; empty is the default.
// SKIP, with the reason: the version does not support the case, no device is there, or a kernel of the version, known
// by its address, had to be ended as Endless.
// FAIL: a wrong value, a launch error, an emulator fault, a damaged guard, a changed input, or work outside the given
// stream.
// UNTRUSTED: the case would pass a null answer.
// Pattern::normal and Pattern::integer run one after the other in the same buffers, so that an answer remembered by
// address is stale. Pattern::outliers follows for a small case under the backend's first schedule. Pattern::normal then
// runs again, with numbers instead of poison in the outputs, and must give the same bits. Later launches find the
// workspace as the launch before left it. The verdict is that of the first pattern that does not pass, else that of
// Pattern::normal, whose error is the discriminating one.
Verdict check(const Version& v, CheckedCase& c, const std::string& plan = {});
Verdict check(const Version& v, const Case& c, std::uint64_t seed);

// Returns empty, or the first element whose bits differ between `first` and `other`, the outputs of the launch named
// `which`.
std::string other_bits(const std::vector<std::vector<float>>& first, const std::vector<std::vector<float>>& other,
                       const std::string& which);

// Check a kernel that is already bound, in this process or another. `def` is its version's definition.
Verdict check(KernelUnderTest& kernel, CheckedCase& c, const AnyVersionDef& def);

// Launch a kernel that passed check() as it is used: with any contents of the workspace, bound twice, before its inputs
// are there, with inputs that differ in a few elements, and `launches` times. FAIL if the bits are not those of the
// first launch on the inputs of Pattern::normal, or if the answer to the changed inputs is not the reference's. A
// private workspace, which is its kernel's alone (Kernel), keeps what the launches write, and must hold the same bytes
// after each launch: it is for flags, not for answers.
// `launches` is reduced on a GPU to as many as fit into half a second, but never below 3.
inline constexpr int kConductLaunches = 300;
int conduct_launches();  // 3 on the emulator, where a launch takes up to seconds
Verdict check_conduct(const Version& v, CheckedCase& c, int launches, const std::string& plan = {});
Verdict check_conduct(KernelUnderTest& kernel, CheckedCase& c, int launches, const AnyVersionDef& def);

// Check that a result needs before it is recorded: check(), then check_conduct() if it passed. On the emulator, where a
// launch takes up to seconds, check_conduct() runs only on the first problem for which this process checks the version:
// ./ladder test covers the others.
Verdict full_check(const Version& v, CheckedCase& c);

// Returns how the results of a version that failed differ between the backend's schedules, or empty. The results of a
// kernel without a race do not differ.
std::string difference_between_schedules(const Version& v, CheckedCase& c, const std::string& plan = {});

// Check with one pattern alone.
Verdict check(const Version& v, CheckedCase& c, Pattern pattern, const std::string& plan = {});

}  // namespace ladder

// LADDER_OUTLIERS(pass, {.largest = 100});
#define LADDER_OUTLIERS(P, ...)                                                                                     \
  namespace {                                                                                                       \
  [[maybe_unused]] const bool LADDER_UNIQUE(ladder_outliers_) = ::ladder::register_outliers(::ladder::pass_of<P>(), \
                                                                                            __VA_ARGS__);           \
  }

#define LADDER_REFERENCE(P, function)                                                                                 \
  namespace {                                                                                                         \
  [[maybe_unused]] const bool LADDER_UNIQUE(ladder_reference_) = ::ladder::register_reference(::ladder::pass_of<P>(), \
                                                                                              function);              \
  }
