// A candidate in a process of its own, which is not trusted: it may die, hang or say anything. Whatever it does wrong is a
// Failure in one sentence.
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

  // Its answer to a request, at most `most_values` with it. A new request when it is gone has the same Failure.
  Frame ask(const nlohmann::json& request, const std::vector<float>& values = {}, std::size_t most_values = 0);

  // A plan of the problem that it was asked about last, bound there.
  std::unique_ptr<Subject> bind(const Case& c, const std::string& plan);

 private:
  std::string last_words();

  double seconds_;
  pid_t pid_ = -1;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> errors_;
  std::unique_ptr<Channel> channel_;
  int pipes_[2] = {-1, -1};
  std::string gone_;  // why, once it is
  int num_subjects_ = 0;
};

// The values of what is read, and of what a case writes, in a frame.
std::vector<float> flat_inputs(const Case& c, const HostTensors& inputs);
std::vector<std::vector<float>> unpacked_outputs(const Case& c, const std::vector<float>& values);
std::size_t num_output_values(const Case& c);

}  // namespace ladder
