// Checking a version: inputs, the reference's answer, guarded and poisoned device buffers, and the comparison.
//
// A check that passes means: on inputs drawn from `seed`, with outputs poisoned by NaN and guard bands around every
// buffer, the version wrote every output element within its error bound, and neither its inputs nor a guard changed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/registry.h"

namespace ladder {

enum class Pattern : std::uint8_t {
  normal,   // N(0, stddev^2), rounded to the tensor's dtype; never constant
  integer,  // small integers: every product and sum is exact in fp32, so outputs compare bit for bit
};

// Host values of a case's tensors, in the order of Case::tensors; every value is representable in its tensor's dtype.
// Outputs are empty.
struct HostTensors {
  std::vector<std::vector<float>> values;
};
HostTensors fill(const Case& c, Pattern pattern, std::uint64_t seed);

// One of them, elements in the order of spec.shape, and its bytes as the device has them, in spec.dtype.
std::vector<unsigned char> encoded(const TensorSpec& spec, const std::vector<float>& values);
std::vector<float> decoded(const TensorSpec& spec, const std::vector<unsigned char>& stored);

// The reference's answer for one output tensor. `magnitude` is the sum of the absolute values of the terms behind each
// element (for a dot product, sum |a*b|): rounding errors of a sum scale with it, not with the result.
struct Expected {
  std::vector<double> value;
  std::vector<double> magnitude;
  // False where the right answer to this problem is a null answer, a constant or a copy of an input, by the formula
  // itself: another output has to tell right from wrong then.
  bool telling = true;
};
using ExpectedOutputs = std::vector<Expected>;  // an entry for each output, in order
using ReferenceFunction = ExpectedOutputs (*)(const Case& c, const HostTensors& inputs);

// Everything the checks of one case share: every version of it gets the same inputs and is checked by one computation.
struct ReferenceRun {
  HostTensors inputs;
  ExpectedOutputs answers;
};

// Registered by reference/<layer>_reference.cpp through LADDER_REFERENCE.
bool register_reference(const Pass& pass, ReferenceFunction reference);
// The latest few are kept. Throw Failure where the pass has no reference.
std::shared_ptr<const ReferenceRun> reference_run(const Case& c, Pattern pattern, std::uint64_t seed);
std::shared_ptr<const ExpectedOutputs> reference_outputs(const Case& c, Pattern pattern, std::uint64_t seed);  // its answers
ExpectedOutputs reference_outputs(const Case& c, const HostTensors& inputs);                                   // on these, not kept

// One case's buffers on the device: inputs filled, outputs and workspace poisoned with NaN bytes, every buffer between
// two guard bands of canaries.
class DeviceTensors {
 public:
  DeviceTensors(const Case& c, const HostTensors& inputs, std::size_t workspace_bytes);
  ~DeviceTensors();
  DeviceTensors(const DeviceTensors&) = delete;
  DeviceTensors& operator=(const DeviceTensors&) = delete;

  void* const* pointers() const;  // in the order of Case::tensors
  void* workspace() const;

  void refill(const HostTensors& inputs);           // other inputs at the same addresses
  void poison();                                    // outputs and workspace become NaN again
  bool untouched() const;                           // every output is still poison; waits for no stream
  std::vector<std::vector<float>> outputs() const;  // as fp32, in order; waits for the device
  std::string damage() const;                       // empty, or which guard band or input was overwritten, and where

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
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

// The bound that compare() holds an element of `output` to, for Pattern::normal.
double error_bound(const Case& c, const TensorSpec& output, double value, double magnitude);

// Compares in pass form, so NaN fails: |y - ref| <= bound, with
//     bound = u |ref| + g 4 sqrt(K) 2^-23 magnitude + smallest subnormal,
// u the output dtype's unit roundoff, g the case's error growth (see VersionDef) and K its reduction length: the
// probabilistic error bound of a sum in fp32 (Higham and Mary 2019, theorem 2.4, lambda = 4), doubled because tensor cores
// truncate where IEEE addition rounds. For Pattern::integer the outputs must equal the reference's value rounded once to the
// output's dtype, unless the pass has no exact answers. A version that is not exact is held to the bound there too, with
// the tensor's largest magnitude for every element.
// `checked` says of each output whether it is looked at; empty: all are.
Verdict compare(const Case& c, Pattern pattern, const std::vector<std::vector<float>>& outputs, const ExpectedOutputs& refs,
                const std::vector<bool>& checked = {});

// Empty, or which null answer (all zeros, the mean, a copy of an input) compare() would take for right in at least half of
// a telling output's elements, of those that are a sum of any terms: no verdict on such a case can be trusted.
std::string accepted_null_answer(const Case& c, Pattern pattern, const ReferenceRun& checked);

// A pass stays one only if the error of each output that the baseline makes is at most twice the baseline's on the same
// inputs, granted on top one rounding of the output and what the version declared (g of compare(), 1 unless it says
// otherwise):
//     error <= 2 baseline_error + u + (g - 1) sqrt(K) 2^-24.
Verdict against_baseline(Verdict verdict, const Verdict& baseline, const Case& c);

// Runs the version and checks it: SKIP with the reason where it does not support the case or no device is there, FAIL on
// a wrong value, a launch error, an emulator fault, a damaged guard, a changed input, or work outside the stream it was
// given; UNTRUSTED where the case would pass a null answer.
Verdict check(const Version& v, const Case& c, Pattern pattern, std::uint64_t seed);

// Both patterns, one after the other in the same buffers, so that an answer remembered by address is stale. The verdict
// is that of the first pattern that does not pass, else that of Pattern::normal, whose error is the telling one.
Verdict check(const Version& v, const Case& c, std::uint64_t seed);

// Null, or why the version cannot run the case on this device (dtype, architecture, supports()).
std::string why_not(const Version& v, const Case& c);

}  // namespace ladder

#define LADDER_REFERENCE(P, function)                                                                             \
  namespace {                                                                                                 \
  [[maybe_unused]] const bool LADDER_UNIQUE(ladder_reference_) = ::ladder::register_reference(::ladder::pass_of<P>(), \
                                                                                      function);              \
  }
