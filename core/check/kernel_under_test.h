// The kernel that check() runs, bound with its tensors, in this process or in another.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/check/device_tensors.h"
#include "core/registry.h"

namespace ladder {

// Launches wait until the work is done, and return the fault in one line, or empty. All functions may throw Failure if
// the kernel's process is gone, with its fault.
class KernelUnderTest {
 public:
  KernelUnderTest() = default;
  virtual ~KernelUnderTest() = default;
  KernelUnderTest(const KernelUnderTest&) = delete;
  KernelUnderTest& operator=(const KernelUnderTest&) = delete;

  // Bind the same kernel again, to new tensors between Bands::numbers.
  virtual std::unique_ptr<KernelUnderTest> another() = 0;
  virtual bool private_workspace() const = 0;  // Kernel::private_workspace
  virtual bool has_workspace() const { return true; }

  // Forwarded to DeviceTensors.
  virtual void refill(const HostTensors& inputs) = 0;
  virtual void reset(Contents outputs = Contents::nan, Contents workspace = Contents::nan) = 0;
  virtual std::vector<std::vector<float>> outputs() = 0;
  virtual std::string damage() = 0;
  virtual std::uint64_t workspace_digest() = 0;

  virtual std::string launch(int times = 1) = 0;
  // Launch on a stream that is held back, if the backend can: whatever is written meanwhile was not enqueued there, and
  // would escape a timer that listens to the stream. Call it after ordinary launches: the first launch may load the
  // kernel, which waits for the device.
  virtual std::string launch_held() = 0;
  // Launch while the inputs are poison; they arrive before the kernel runs.
  virtual std::string launch_before_inputs() = 0;
};

// Bind one of the version's plans (the default without a name) to tensors in this process; all inputs are poison.
// Throws what the plan and its binding throw. `v` and `c` must outlive the result.
std::unique_ptr<KernelUnderTest> bound_here(const Version& v, const Case& c, const std::string& plan_name = {});

// Returns empty, or the problem on which a kernel of the version had to be ended as Endless, in this process.
std::string endless_problem(const Version& v);

}  // namespace ladder
