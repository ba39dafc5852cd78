#include "train/signals.h"

#include <unistd.h>

namespace ladder::train {
namespace {

volatile std::sig_atomic_t interrupted = 0;

void on_signal(int) {
  constexpr int kInterrupted = 130;
  if (interrupted != 0) _exit(kInterrupted);
  interrupted = 1;
}

}  // namespace

Signals::Signals() {
  interrupted = 0;
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    before_[i] = std::signal(kSignals[i], on_signal);
    if (before_[i] == SIG_IGN) std::signal(kSignals[i], SIG_IGN);
  }
}

Signals::~Signals() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) std::signal(kSignals[i], before_[i]);
}

bool Signals::received() const { return interrupted != 0; }

}  // namespace ladder::train
