#include "tests/versions/overlap.h"

#include <memory>
#include <vector>

#include "core/backend.h"
#include "core/check/check.h"
#include "core/dependent_launch.h"
#include "core/graph.h"
#include "tests/repeats.h"
#include "tests/versions/slow_writer.h"

namespace ladder::test {

namespace {

using Memory = std::unique_ptr<void, void (*)(void*)>;

Memory allocate(std::size_t bytes) {
  return {backend::allocate(bytes), [](void* p) { backend::release(p); }};
}

}  // namespace

std::int64_t serial_launches(const Version& v, const Case& c) {
  const Kernel kernel = plan(v, c);
  const Memory workspace = allocate(kernel.workspace_bytes);
  std::vector<Memory> tensors;
  std::vector<void*> pointers;
  for (const TensorSpec& spec : c.tensors) {
    tensors.push_back(allocate(spec.bytes()));
    pointers.push_back(tensors.back().get());
  }
  const BoundLaunch bound = kernel.bind(Pointers(c.tensors, pointers.data()), workspace.get());
  const std::int64_t before = num_serial_launches();
  Graph::capture(bound);
  return num_serial_launches() - before;
}

std::string difference_behind_slow_writer(const Version& v, const Case& c, std::uint64_t seed) {
  constexpr int kPoison = 0xff;
  const Kernel kernel = plan(v, c);
  DeviceTensors tensors(c, fill(c, Pattern::normal, seed), kernel.workspace_bytes);
  const BoundLaunch bound = kernel.bind(tensors.pointers(), tensors.workspace());
  std::vector<Memory> originals;
  std::vector<LateCopy> copies;
  for (std::size_t i = 0; i < c.tensors.size(); ++i) {
    const std::size_t bytes = c.tensors[i].bytes();
    if (!c.tensors[i].is_read() || bytes == 0) continue;
    originals.push_back(allocate(bytes));
    backend::copy(originals.back().get(), tensors.data()[i], bytes);
    copies.push_back({.to = static_cast<unsigned char*>(tensors.data()[i]),
                      .from = static_cast<const unsigned char*>(originals.back().get()),
                      .bytes = bytes});
  }

  const OwnedStream stream;
  overlap_launches(false);
  bound(stream);
  stream.synchronize();
  const std::vector<std::vector<float>> alone = tensors.outputs();

  overlap_launches(true);
  tensors.reset();
  for (const LateCopy& copy : copies) backend::set_bytes(copy.to, kPoison, copy.bytes);
  copy_late(copies, stream);
  bound(stream);
  stream.synchronize();
  return other_bits(alone, tensors.outputs(), "the launch behind a slow kernel");
}

}  // namespace ladder::test
