// What check() puts to the test: a bound kernel with its tensors, in this process or in another.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/check/device_tensors.h"
#include "core/registry.h"

namespace ladder {

// The launches wait until the work is done, and return the fault in one line, or nothing. All functions may throw Failure:
// the fault of a process that is gone.
class Subject {
 public:
  Subject() = default;
  virtual ~Subject() = default;
  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;

  // The same kernel bound again, to tensors of its own between Bands::numbers.
  virtual std::unique_ptr<Subject> another() = 0;
  virtual bool private_workspace() const = 0;  // see Kernel
  virtual bool has_workspace() const { return true; }

  // As DeviceTensors has them.
  virtual void refill(const HostTensors& inputs) = 0;
  virtual void reset(Contents outputs = Contents::nan, Contents workspace = Contents::nan) = 0;
  virtual std::vector<std::vector<float>> outputs() = 0;
  virtual std::string damage() = 0;
  virtual std::uint64_t workspace_digest() = 0;

  virtual std::string launch(int times = 1) = 0;
  // On a stream that is kept back, where there is one: whatever is written meanwhile was not enqueued there, and would
  // escape a timer that listens to the stream. Comes after ordinary launches, because the first one may load the kernel,
  // and that waits for the device.
  virtual std::string launch_held() = 0;
  // Enqueued while the inputs are poison; they arrive before the kernel runs.
  virtual std::string launch_before_inputs() = 0;
};

// One of the version's plans, the default without a name, with its tensors in this process; all inputs are poison. Throws
// what the plan and its binding throw. Both arguments must outlive it.
std::unique_ptr<Subject> bound_here(const Version& v, const Case& c, const std::string& plan_name = {});

// Empty, or the problem on which a kernel of the version had to be ended as Endless, in this process.
std::string endless_problem(const Version& v);

}  // namespace ladder
