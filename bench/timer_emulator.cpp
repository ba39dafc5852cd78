// No timer: the emulator's kernels run on the CPU, and their speed says nothing of a GPU's.
#include "bench/timer.h"
#include "core/error.h"

namespace ladder {

struct Timer::Impl {};

const char* Timer::unavailable() { return "times come from a GPU only"; }

Timer::Timer() { throw Failure(unavailable()); }
Timer::~Timer() = default;
const Calibration& Timer::calibration() const { throw Failure(unavailable()); }
void Timer::run(const Work&) { throw Failure(unavailable()); }
Sample Timer::cold(const Work&, const Work&) { throw Failure(unavailable()); }
Sample Timer::warm(const Work&, int, const Work&) { throw Failure(unavailable()); }
Work Timer::delay(double) const { throw Failure(unavailable()); }
Work Timer::copy(void*, const void*, std::size_t) { throw Failure(unavailable()); }
Work Timer::streaming_kernel(void*, std::size_t, const void*, std::size_t) { throw Failure(unavailable()); }

}  // namespace ladder
