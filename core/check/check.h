// Checking a version: inputs, the reference's answer, guarded and poisoned device buffers, and the comparison.
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
#include "core/check/subject.h"
#include "core/registry.h"

namespace ladder {

enum class Pattern : std::uint8_t {
  normal,    // N(0, stddev^2), rounded to the tensor's dtype; never constant
  integer,   // small integers: every product and sum is exact in fp32, so outputs compare bit for bit
  outliers,  // as normal, but for one element in 16 of 30 to kLargestOutlier deviations, zeros of both signs, subnormals
};

inline constexpr double kLeastOutlier = 30;
inline constexpr double kLargestOutlier = 1e4;

// How Pattern::outliers of a pass departs from the rule above.
struct OutlierRule {
  double largest = kLargestOutlier;    // in deviations; 0: none
  std::vector<std::string> tame = {};  // tensors without outliers
  // Puts infinities where the formula defines the answer; null: there are none.
  void (*add_infinities)(const Case& c, HostTensors& inputs) = nullptr;
};

// Random values for what the case's kernels read. `outliers` is the rule of Pattern::outliers.
HostTensors fill(const Case& c, Pattern pattern, std::uint64_t seed, const OutlierRule& outliers = {});

// What the reference expects of one output tensor. `magnitude` is the sum of the absolute values of the terms of
// each element (for a dot product, sum |a*b|): rounding errors of a sum scale with it, not with the result.
struct Expected {
  std::vector<double> value;
  std::vector<double> magnitude;
  // False where the right answer to this problem is a null answer, a constant or a copy of an input, by the formula
  // itself: another output has to tell right from wrong then.
  bool discriminating = true;
  // How much larger than the result, in norm, sums on the way to it may be that cancel in the end. The formula's own
  // doing: a mean that is taken about a pivot far from it.
  double condition = 1;
};
using ExpectedOutputs = std::vector<Expected>;  // an entry for each written tensor, in the order of Case::tensors
using NamedOutputs = std::map<std::string, Expected, std::less<>>;

// A pass's formula in double precision. inputs["x"] is what x holds; an inout tensor is there as it is before the pass.
// The result has an entry for each written tensor.
using ReferenceFunction = NamedOutputs (*)(const Case& c, const HostTensors& inputs);

// Registered by reference/<layer>_reference.cpp through LADDER_REFERENCE.
bool register_reference(const Pass& pass, ReferenceFunction reference);

// Registered by reference/<layer>_reference.cpp through LADDER_OUTLIERS, with the reason.
bool register_outliers(const Pass& pass, const OutlierRule& rule);

// Throws Failure where the pass has no reference.
ExpectedOutputs reference_outputs(const Case& c, const HostTensors& inputs);

// Inputs, and what is expected for them.
struct ReferenceRun {
  HostTensors inputs;
  ExpectedOutputs expected;
};
// The outliers of Pattern::outliers are lowered until every answer fits its dtype: sums of products of 1e4 overflow fp16.
ReferenceRun reference_run(const Case& c, Pattern pattern, std::uint64_t seed);

// Whether a run of the reference takes milliseconds. Larger cases are checked without Pattern::outliers.
bool is_small(const Case& c);

// One case with the reference's runs of it, each computed when it is first asked for: whoever checks several versions,
// or one under several schedules, hands this on. May be used from one thread at a time.
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

enum class Status : std::uint8_t { pass, fail, skip, untrusted, unchecked };  // unchecked: nobody checked it
const char* name(Status status);  // "PASS", "FAIL", "SKIP", "UNTRUSTED", "UNCHECKED"

// How far outputs are from the reference.
struct Verdict {
  Status status = Status::pass;
  std::string reason;          // empty for a pass; else one line: what, where, how much
  double error = 0;            // normalised L2, ||y - ref|| / ||ref||, of the output for which it is largest
  double worst = 0;            // largest |y - ref| / bound; above 1 fails
  std::int64_t unwritten = 0;  // elements that are poison: never written, or computed from it
  std::vector<std::optional<double>> errors = {};  // of each output in order; none of one that was not checked
};

// The bound that compare() holds an element of `output` to, for Pattern::normal, in a version that says `def` of
// itself:
//     u |value| + g 4 sqrt(K) 2^-23 magnitude + r u_i magnitude + smallest subnormal,
// u the output dtype's unit roundoff, g the version's error growth, K the output's reduction length, and u_i the unit
// roundoff of the dtype to which the formula lets terms be rounded (TensorSpec::intermediate), 0 without one; a term may be
// off by r = `roundings` of them, in an fp32 problem by 4: both factors, which tensor cores truncate. The second term is the probabilistic error bound of a sum in fp32 (Higham and Mary 2019, theorem 2.4, lambda = 4),
// doubled because tensor cores truncate where IEEE addition rounds.
double error_bound(const TensorSpec& output, double value, double magnitude, const AnyVersionDef& def = {},
                   double roundings = 1);

// The largest normalised L2 error, ||y - ref|| / ||ref||, that an fp32 output of an fp32 problem may have, whatever its
// magnitudes allow: 2^-24 (16 + sqrt(K)), times the error growth. A sequence of K additions in fp32 stays below it;
// inputs rounded to TF32 or bf16 do not. Where the formula itself is ill-conditioned, ||magnitude|| being more than
// sqrt(K) ||ref|| or the reference saying so (Expected::condition), it grows by as much. Where terms may be rounded to
// TF32, 2^-11 (2.5 + 4 / sqrt(elements)) comes on top, the latter for what few elements scatter: factors that are truncated
// to TF32 make 1.6 x 2^-11, bf16's 4.7 x 2^-11. Infinite for other dtypes, and where terms may be rounded to those.
double error_limit(const Case& c, const TensorSpec& output, const Expected& expected, const AnyVersionDef& def = {});

// Compares in pass form, so NaN fails: |y - ref| <= error_bound(). For Pattern::integer the outputs must equal the
// reference's value rounded once to the output's dtype, unless the pass has no exact answers. A version that is not
// exact is held to the bound there too, with the tensor's largest magnitude for every element. `looked_at` says of each
// output whether it is compared; empty: all are.
Verdict compare(const Case& c, Pattern pattern, const std::vector<std::vector<float>>& outputs,
                const ExpectedOutputs& expected, const AnyVersionDef& def = {},
                const std::vector<bool>& looked_at = {});

// A pass stays one only if each output's error is within error_limit(), a NaN not being so.
Verdict within_limit(Verdict verdict, const Case& c, const ExpectedOutputs& expected, const AnyVersionDef& def);

// Empty, or which null answer (all zeros, the mean, a copy of an input) compare() would take for right in at least half
// of a discriminating output's elements, of those that are a sum of any terms: no verdict on such a case can be
// trusted.
std::string accepted_null_answer(const Case& c, Pattern pattern, const ReferenceRun& run,
                                 const AnyVersionDef& def = {});

// A pass stays one only if the error of each output that the baseline makes is at most twice the baseline's on the same
// inputs, granted on top one rounding of the output, what the version declared (g of compare(), 1 unless it says otherwise)
// and, but in fp32 problems, what tensor cores truncate: they cut off the sum in fp32 after every 4 products or more, always
// towards zero, where the library may round or split the sum:
//     error <= 2 baseline_error + u + (g - 1) sqrt(K) 2^-24 + (K / 4) 2^-24.
Verdict against_baseline(Verdict verdict, const Verdict& baseline, const Case& c, const AnyVersionDef& def = {});

// Runs a kernel of the version and compares what it writes: SKIP with the reason where the version does not support the
// case or no device is there, FAIL on a wrong value, a launch error, an emulator fault, a damaged guard, a changed
// input, or work outside the stream it was given; UNTRUSTED where the case would pass a null answer; SKIP once a kernel
// of the version, known by its address, had to be ended as Endless. Pattern::normal and Pattern::integer, one after the other
// in the same buffers, so that an answer remembered by address is stale; Pattern::outliers too for a small case under the
// backend's first schedule. Then the first again: the same bits, though the outputs hold numbers instead of poison. The
// workspace is left as the launch before left it. The verdict is that of the first pattern that does not pass, else that of
// Pattern::normal, whose error is the discriminating one. `plan` names one of the version's plans; empty is the default.
Verdict check(const Version& v, CheckedCase& c, const std::string& plan = {});
Verdict check(const Version& v, const Case& c, std::uint64_t seed);

// Empty, or where the outputs of `which` have other bits than `first`.
std::string other_bits(const std::vector<std::vector<float>>& first, const std::vector<std::vector<float>>& other,
                       const std::string& which);

// The same of a kernel that is bound already, wherever it runs. `def` is what its version says of itself.
Verdict check(Subject& subject, CheckedCase& c, const AnyVersionDef& def);

// A kernel that passed check(), launched as it is used: with any contents of the workspace, bound twice, before its inputs
// are there, with inputs that differ in a few elements, and `launches` times. FAIL where the bits are not those of the
// first launch, on the inputs of Pattern::normal, or where the answer to the changed inputs is not the reference's. A private workspace, which is its kernel's alone (Kernel), is left as the
// launches leave it, and must hold the same bytes after each: it is for flags, not for answers.
// On a GPU as many of them as fit into half a second, and 3 in any case.
inline constexpr int kLaunchesAsUsed = 300;
int launches_as_used();  // 3 on the emulator, where a launch takes up to seconds
Verdict check_as_used(const Version& v, CheckedCase& c, int launches, const std::string& plan = {});
Verdict check_as_used(Subject& subject, CheckedCase& c, int launches, const AnyVersionDef& def);

// What stands before a record: check(), and check_as_used() after a pass. On the emulator, where a launch takes up to seconds,
// that is only done for the first problem on which this process checks a version: ./ladder test does it for others.
Verdict full_check(const Version& v, CheckedCase& c);

// Of a version that failed: empty, or how its results differ between the backend's schedules, which those of a kernel
// without a race do not.
std::string difference_between_schedules(const Version& v, CheckedCase& c, const std::string& plan = {});

// One pattern alone.
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
