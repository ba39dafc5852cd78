// A value that a launch chooses and all threads of its kernel see, whichever OS threads the emulator runs them on. Returned
// by a kernel_scope() (core/device.h).
#pragma once

#include <mutex>
#include <optional>

#include "core/error.h"

namespace ladder::simt {

template <class T>
class LaunchChoice {
 public:
  // `value` is the chosen one for as long as this lives; another launch's choice waits.
  explicit LaunchChoice(T value) : turn_(mutex_) { chosen_ = value; }
  ~LaunchChoice() { chosen_.reset(); }
  LaunchChoice(const LaunchChoice&) = delete;
  LaunchChoice& operator=(const LaunchChoice&) = delete;

  static T value() {
    LADDER_CHECK(chosen_.has_value());  // else none of the kernel's arguments has a kernel_scope()
    return *chosen_;
  }

 private:
  static inline std::mutex mutex_;
  static inline std::optional<T> chosen_;

  std::scoped_lock<std::mutex> turn_;
};

}  // namespace ladder::simt
