// Shared helpers of the emulator's own tests. On the emulator device memory is host memory, so kernels get pointers
// into std::vector.
#pragma once

#include <string>
#include <vector>

#include "core/device.h"

namespace ladder::simt::test {

// Sets the process's schedule and number of OS threads until the end of the scope.
class Scoped {
 public:
  explicit Scoped(const std::string& schedule, int threads = 1) : before_(options()) {
    options().set_schedule(schedule);
    options().threads = threads;
  }
  ~Scoped() { options() = before_; }
  Scoped(const Scoped&) = delete;
  Scoped& operator=(const Scoped&) = delete;

 private:
  Options before_;
};

// Returns asc, desc, and `seeds` seeds each of random and greedy.
inline std::vector<std::string> schedules(int seeds) {
  std::vector<std::string> all = {"asc", "desc"};
  for (int seed = 1; seed <= seeds; ++seed) {
    all.push_back("random:" + std::to_string(seed));
    all.push_back("greedy:" + std::to_string(seed));
  }
  return all;
}

// Returns the message of the Fault that `run` must throw. Fails the test if there is none.
template <class F>
std::string fault_of(F run) {
  try {
    run();
  } catch (const Fault& fault) {
    return fault.what();
  }
  return "no fault";
}

}  // namespace ladder::simt::test
