// Cooperative grids: launched so, one after another and with programmatic edges between, blocks exchange words through
// global memory in several phases.
#include "core/graph.h"
#include "dev/ptx/grid_barrier.h"
#include "dev/ptx/grid_dependency.h"
#include "tests/conformance/wrappers.h"

namespace ladder::conformance {
namespace {

constexpr int kBlocks = 4;
constexpr int kThreads = 96;
constexpr int kPhases = 20;

// In each phase a thread adds to its word that of the same thread of the next block, as it was before the phase.
__global__ void add_neighbours_kernel(std::uint32_t* words, unsigned* counter) {
  ptx::GridBarrier barrier(counter);
  ptx::grid_dependency_wait();
  std::uint32_t& word = words[blockIdx.x * kThreads + threadIdx.x];
  const std::uint32_t& next = words[(blockIdx.x + 1) % kBlocks * kThreads + threadIdx.x];
  for (int phase = 0; phase < kPhases; ++phase) {
    const std::uint32_t taken = next;
    barrier.sync();
    word += taken;
    barrier.arrive();
    barrier.wait();
  }
  ptx::grid_dependency_launch();
}

Output add_neighbours() {
  DeviceArray<std::uint32_t> words(Inputs().words(kBlocks * kThreads));
  DeviceArray<unsigned> counters(2);
  const auto kernel = [&](int i) {
    return bind_launch(add_neighbours_kernel,
                       {.grid = kBlocks, .block = kThreads, .overlaps_previous = true, .cooperative = true},
                       words.get(), counters.get() + i);
  };
  const Graph graph = Graph::capture([&](Stream stream) {
    set_bytes_async(counters.get(), 0, 2 * sizeof(unsigned), stream);
    in_order({kernel(0), kernel(1)})(stream);
  });
  const OwnedStream stream;
  for (int i = 0; i < 3; ++i) graph.replay(stream);
  stream.synchronize();
  return {.words = words.to_host(), .shape = {kBlocks, kThreads}};
}

LADDER_CONFORMS(grid_barrier, add_neighbours)

}  // namespace
}  // namespace ladder::conformance
