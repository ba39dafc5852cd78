// Signals that stop a training after the current step.
#pragma once

#include <array>
#include <csignal>

namespace ladder::train {

// Handlers of SIGINT (Ctrl-C), SIGTERM and SIGHUP while the object exists. A second signal ends the process at once. A
// signal that the process was started to ignore, such as SIGHUP under nohup, stays ignored.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  bool received() const;

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};
  std::array<void (*)(int), kSignals.size()> before_{};
};

}  // namespace ladder::train
