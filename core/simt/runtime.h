// The emulator's core, as seen by the headers that implement CUDA's vocabulary: the running CUDA thread, and its ways
// to wait for others. The implementation is compiled without sanitizers, which so see a kernel's accesses and never
// the emulator's own.
#pragma once

#include <vector_types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "core/simt/fault.h"
#include "core/simt/options.h"

namespace ladder::simt {

struct Launch {
  dim3 grid;
  dim3 block;
  std::size_t dynamic_smem = 0;  // bytes
  dim3 cluster = 1;              // blocks
  bool overlaps_previous = false;
  bool cooperative = false;  // all blocks run together, without being a cluster
};

// Call body(context) once for every CUDA thread of the grid, each on a fiber of its own. Returns when all have ended.
// Throws Fault if the kernel breaks a rule, or what the kernel threw.
void run(const Launch& launch, void (*body)(void*), void* context);

template <class F>
void run(const Launch& launch, F&& kernel) {
  using Kernel = std::remove_reference_t<F>;
  run(
      launch, [](void* f) { (*static_cast<Kernel*>(f))(); },
      const_cast<void*>(static_cast<const void*>(std::addressof(kernel))));
}

namespace detail {

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kFullMask = 0xffffffffu;

struct Thread {
  uint3 thread_idx;
  uint3 block_idx;
  dim3 block_dim;
  dim3 grid_dim;
  unsigned cluster_rank;  // of the block, in its cluster
  unsigned cluster_size;  // in blocks
  unsigned lane;
  unsigned char* dynamic_smem;
};

// The CUDA thread that this OS thread is running; null outside kernels.
extern constinit thread_local Thread* current;

// A kind of warp collective: every lane of a mask hands in operands and waits until all lanes have.
struct Collective {
  const char* name;
  bool aligned;        // as in PTX: all lanes must execute the same instruction
  bool orders_memory;  // only __syncwarp makes one lane's stores visible to the others
  // Combines the operands of the lanes in `mask`; operands[l] is what lane l handed in.
  void (*complete)(void* const (&operands)[kWarpSize], unsigned mask);
};

// Take part in a collective of the lanes in `mask`; returns when complete() has run. Operands in shared memory must
// have been read before: nothing orders them against the other lanes' stores.
void join(const Collective& collective, unsigned mask, void* operands, Where where);

enum class Reduction : std::uint8_t { none, count, all, any };

// __syncthreads and its reducing forms.
int join_block(Reduction reduction, int predicate, Where where);

// __nanosleep.
void sleep(Where where);

// Lanes of the calling thread's warp that have not ended.
unsigned active_mask();

// Returns the block's static shared variable that `key`, the address of a static object, identifies and *key names. It
// has `bytes` at exactly `alignment`, never better, and is poisoned in every block.
void* shared_variable(const char* const* key, std::size_t bytes, std::size_t alignment);

// Returns true if [address, address + bytes) lies within the block's shared memory.
bool is_shared(const void* address, std::size_t bytes);

// End the kernel with a report.
[[noreturn]] void fault(const char* what, Where where);

// Throws Fault unless `address` is a multiple of `alignment`.
inline void check_aligned(const void* address, std::size_t alignment, const char* what, Where where) {
  if (reinterpret_cast<std::uintptr_t>(address) % alignment != 0) [[unlikely]]
    fault(what, where);
}

// cp.async copies of the calling thread, in the order of issue.
struct Copy {
  void* destination;
  std::uint32_t words[4];
  unsigned num_words;
};
void begin_copy(const Copy& copy, Where where);
void commit_copies();
// Remove and return the oldest copy in flight of all groups but the latest `pending`; null if none is left.
const Copy* land_copy(int pending);

// Memory order of __threadfence and atomics, for order.h.
void release_fence();
void acquire_fence();

}  // namespace detail
}  // namespace ladder::simt
