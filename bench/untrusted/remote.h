// A candidate in a separate, untrusted process, which may die, hang or send anything. Its faults are Failures of one
// sentence.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "bench/untrusted/frames.h"
#include "core/check/check.h"

namespace ladder {

class Remote {
 public:
  // Starts `command` in a process group that ends with this object, or once it was waited for `seconds` in all.
  Remote(std::vector<std::string> command, double seconds);
  ~Remote();
  Remote(const Remote&) = delete;
  Remote& operator=(const Remote&) = delete;

  // Sends a request and returns the answer, with at most `most_values` values. Once the process is gone, every request
  // throws the same Failure.
  Frame ask(const nlohmann::json& request, const std::vector<float>& values = {}, std::size_t most_values = 0);

  // Binds a plan of the problem of the latest request in the candidate's process.
  std::unique_ptr<KernelUnderTest> bind(const Case& c, const std::string& plan);

 private:
  std::string last_words();

  double seconds_;
  pid_t pid_ = -1;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> errors_;
  std::unique_ptr<Channel> channel_;
  int pipes_[2] = {-1, -1};
  std::string gone_;  // reason that the process is gone; empty while it runs
  int num_kernels_ = 0;
};

// Values in a frame: a case's inputs, and its outputs, tensor after tensor.
std::vector<float> flat_inputs(const Case& c, const HostTensors& inputs);
std::vector<std::vector<float>> unpacked_outputs(const Case& c, const std::vector<float>& values);
std::size_t num_output_values(const Case& c);

}  // namespace ladder
