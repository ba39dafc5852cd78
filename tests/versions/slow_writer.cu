#include "tests/versions/slow_writer.h"

#include "core/device.h"
#include "core/error.h"
#include "dev/ptx/clock.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::test {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 16;  // the others have room beside them
constexpr unsigned kClocks = 100'000;
constexpr std::size_t kMaxCopies = 16;

struct Copies {
  LateCopy copy[kMaxCopies];
};

__global__ void copy_late_kernel(Copies copies) {
  ptx::grid_dependency_launch();
  ptx::wait_clocks(kClocks);
  for (const LateCopy& copy : copies.copy) {
    for (std::size_t i = blockIdx.x * kThreads + threadIdx.x; i < copy.bytes; i += kBlocks * kThreads) {
      copy.to[i] = copy.from[i];
    }
  }
}

}  // namespace

void copy_late(const std::vector<LateCopy>& copies, Stream stream) {
  LADDER_CHECK(copies.size() <= kMaxCopies);
  Copies all;
  for (std::size_t i = 0; i < copies.size(); ++i) all.copy[i] = copies[i];
  launch(copy_late_kernel, {.grid = kBlocks, .block = kThreads}, stream, all);
}

}  // namespace ladder::test
