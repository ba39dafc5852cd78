// Runs a program, or a function in a process of its own, and hands back what it printed and how it ended.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace ladder::test {

struct Ended {
  int code = -1;  // exit code, or 128 + signal
  std::string out;
  std::string err;
};

Ended run_program(const std::vector<std::string>& words);

// Forks: the caller must not have used CUDA before.
Ended run_function(const std::function<int()>& function);

// A program that is built beside this one's folder: "bench_conv3x3".
std::string built_program(const std::string& name);

}  // namespace ladder::test
