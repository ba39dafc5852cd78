#include "dev/common/ready_flag.h"
#include "dev/ptx/grid_dependency.h"
#include "tests/faults/faults.h"

namespace ladder::faults {
namespace {

constexpr int kThreads = 32;
constexpr LaunchConfig kConfig{.grid = 1, .block = kThreads, .overlaps_previous = true};

// Stores words with ready flags.
__global__ void store_kernel(volatile Flagged* words) {
  ptx::grid_dependency_wait();
  ptx::grid_dependency_launch();
  words[threadIdx.x] = flagged(1);
}

// Adds one to the words of the grid in front, which may still run. kEarly: lets the next grid start before its own wait.
template <bool kFlags, bool kEarly>
__global__ void add_kernel(volatile Flagged* from, volatile Flagged* to) {
  if constexpr (kFlags) {
    ptx::grid_dependency_flags();
  } else {
    ptx::grid_dependency_wait();
  }
  if constexpr (kEarly) ptx::grid_dependency_launch();
  Flagged word;
  do word = from[threadIdx.x];
  while (!is_ready(word));
  from[threadIdx.x] = 0;
  to[threadIdx.x] = flagged(value_of(word) + 1);
  ptx::grid_dependency_wait();
  if constexpr (!kEarly) ptx::grid_dependency_launch();
}

bool run(bool broken) {
  Guarded<Flagged> a(kThreads), b(kThreads), c(kThreads);
  bool right = true;
  const auto launch_chain = [&](auto second, auto third) {
    launch(store_kernel, kConfig, nullptr, a.get());
    launch(second, kConfig, nullptr, a.get(), b.get());
    launch(third, kConfig, nullptr, b.get(), c.get());
    for (int i = 0; i < kThreads; ++i) right &= value_of(c[i]) == 3;
  };
  if (broken) {
    launch_chain(add_kernel<true, true>, add_kernel<true, false>);
  } else {
    launch_chain(add_kernel<true, true>, add_kernel<false, false>);
    launch_chain(add_kernel<true, false>, add_kernel<true, true>);
  }
  return right;
}

}  // namespace
}  // namespace ladder::faults

LADDER_FAULT("flags_after_flags", "takes ready flags of a grid that let it start before that grid had waited",
             ({.report = true, .says = "a ready flag before griddepcontrol.wait: the grid in front took flags itself"}),
             ladder::faults::run);
