#include "train/divergence.h"

#include <fmt/format.h>

#include "core/error.h"

namespace ladder::train {

bool Divergence::look_at(const StepResults& results, std::int64_t step) {
  if (results.scale == 0) {
    ++skipped_;
    if (++skipped_in_a_row_ >= kMaxSkippedInARow) {
      throw Failure(fmt::format("the gradients of {} steps in a row were not finite: the training has diverged; {}",
                                skipped_in_a_row_, advice_));
    }
    return false;
  }
  skipped_in_a_row_ = 0;
  constexpr double kSlow = 0.002, kQuick = 0.1, kSpike = 5, kMinSpike = 0.1;
  slow_loss_ = slow_loss_ == 0 ? results.loss : slow_loss_ + kSlow * (results.loss - slow_loss_);
  quick_loss_ = quick_loss_ == 0 ? results.loss : quick_loss_ + kQuick * (results.loss - quick_loss_);
  if (quick_loss_ > kSpike * slow_loss_ + kMinSpike) {
    throw Failure(fmt::format("the loss has jumped from {:.4f} to {:.4f} near step {}: {}, or clip gradients",
                              slow_loss_, quick_loss_, step, advice_));
  }
  return true;
}

}  // namespace ladder::train
