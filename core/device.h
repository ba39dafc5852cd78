// Header of all kernel sources: CUDA's vocabulary on either backend, launch() and bind_launch().
//
// Under nvcc this is CUDA itself. Under g++ or clang it is the SIMT emulator (core/simt), which implements the same
// words (__global__, threadIdx, __syncthreads, __shfl_xor_sync, nvcuda::wmma, ...) on the CPU. A kernel includes this
// header, its layer's header and the PTX families it uses from dev/ptx/, and nothing else.
//
// Shared memory is declared through two macros, so that the emulator can poison it for every block and guard its
// bounds:
//
//     LADDER_SHARED(float, tile, [16][17]);   // static:  __shared__ float tile[16][17]
//     LADDER_DYN_SMEM(smem);                  // dynamic: unsigned char* smem, 1024-byte aligned
#pragma once

#include <cstddef>
#include <tuple>

#include "core/backend.h"
#include "core/ceil_div.h"
#include "core/cluster_shape.h"
#include "core/dependent_launch.h"
#include "core/error.h"
#include "core/kernel.h"
#include "core/stream.h"

#if defined(__CUDACC__)

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <mma.h>

#include "core/cuda_check.h"

#define LADDER_SHARED(type, name, extents) __shared__ type name extents
#define LADDER_DYN_SMEM(name) extern __shared__ __align__(1024) unsigned char name[]

#else

#include "core/simt/cuda.h"
#include "core/simt/stream.h"

#endif

namespace ladder {

struct LaunchConfig {
  dim3 grid;
  dim3 block;
  std::size_t dynamic_smem = 0;  // bytes
  // Shape of the thread-block cluster, in blocks (dev/ptx/cluster.h); the grid must be a multiple of it in every
  // dimension. More than 8 blocks are not portable: a card may have no room for them, and then refuses the launch.
  dim3 cluster = 1;
  // Programmatic dependent launch: the grid may start before the previous grid on the stream has ended, and each of its
  // threads waits before it touches global memory (dev/ptx/grid_dependency.h). overlap_launches(false) turns it off
  // (core/dependent_launch.h). The emulator runs launches one after the other, and checks that they wait.
  bool overlaps_previous = false;
  // Cooperative launch: all blocks run at the same time, so that they may wait for each other (dev/ptx/grid_barrier.h).
  // A grid that the card has no room for is refused; resident_clusters() returns the largest number of blocks. Not to
  // be combined with clusters.
  bool cooperative = false;

  unsigned cluster_blocks() const { return cluster.x * cluster.y * cluster.z; }
};

#if defined(__CUDACC__)

namespace detail {

// Raise the driver's limits for `kernel` to the needs of `config`, without lowering earlier ones: a kernel may be bound
// several times, to problems of different sizes, before the first of them is launched.
template <class... P>
void allow(void (*kernel)(P...), const LaunchConfig& config) {
  const auto dynamic_smem = static_cast<int>(config.dynamic_smem);
  if (dynamic_smem > 0) {
    cudaFuncAttributes now{};
    LADDER_CUDA(cudaFuncGetAttributes(&now, kernel));  // initially 48 KB less static shared memory
    if (now.maxDynamicSharedSizeBytes < dynamic_smem) {
      LADDER_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, dynamic_smem));
    }
  }
  if (config.cluster_blocks() == 1) return;
  const std::string refusal = cluster_refusal(config.grid, config.cluster);
  if (!refusal.empty()) throw Failure(refusal);
  if (config.cluster_blocks() > kMaxPortableClusterBlocks) {
    LADDER_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  }
}

// Returns true if the program has code compiled for exactly this device. Code for older devices has no griddepcontrol
// (sm_90).
static bool compiled_for_device() {
#if defined(__CUDA_ARCH_LIST__)
  for (const int arch : {__CUDA_ARCH_LIST__}) {
    if (arch >= 900 && arch == backend::device().arch * 10) return true;
  }
#endif
  return false;
}

// Convert `config` to the CUDA runtime's type. `attributes` must outlive the result.
inline cudaLaunchConfig_t runtime_config(const LaunchConfig& config, Stream stream,
                                         cudaLaunchAttribute (&attributes)[3]) {
  cudaLaunchConfig_t c{};
  c.gridDim = config.grid;
  c.blockDim = config.block;
  c.dynamicSmemBytes = config.dynamic_smem;
  c.stream = stream;
  c.attrs = attributes;
  if (config.cluster_blocks() != 1) {
    cudaLaunchAttribute& attribute = attributes[c.numAttrs++];
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {config.cluster.x, config.cluster.y, config.cluster.z};
  }
  if (config.overlaps_previous && launches_overlap() && compiled_for_device()) {
    cudaLaunchAttribute& attribute = attributes[c.numAttrs++];
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
  if (config.cooperative) {
    cudaLaunchAttribute& attribute = attributes[c.numAttrs++];
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
  }
  return c;
}

template <class... P>
void enqueue(void (*kernel)(P...), const LaunchConfig& config, Stream stream, const std::tuple<P...>& args) {
  if (!config.overlaps_previous) ++serial_launches;
  cudaLaunchAttribute attributes[3] = {};
  const cudaLaunchConfig_t c = runtime_config(config, stream, attributes);
  std::apply([&](const P&... each) { LADDER_CUDA(cudaLaunchKernelEx(&c, kernel, each...)); }, args);
}

}  // namespace detail

// Returns the number of clusters of `config` that the card runs at a time, whatever the size of the grid; of blocks if
// `config` has no clusters.
template <class... P>
int resident_clusters(void (*kernel)(P...), LaunchConfig config) {
  config.overlaps_previous = false;  // does not affect occupancy
  detail::allow(kernel, config);
  cudaLaunchAttribute attributes[3] = {};
  const cudaLaunchConfig_t c = detail::runtime_config(config, {}, attributes);
  int count = 0;
  if (config.cluster_blocks() > 1) {
    LADDER_CUDA(cudaOccupancyMaxActiveClusters(&count, kernel, &c));
    return count;
  }
  const auto threads = static_cast<int>(config.block.x * config.block.y * config.block.z);
  LADDER_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&count, kernel, threads, config.dynamic_smem));
  return count * backend::device().num_sms;
}

#else

namespace detail {

template <class... P>
void allow(void (*)(P...), const LaunchConfig&) {}

// Keeps the result of kernel_scope(arg), if arg's type has that function, while a kernel with this argument runs. A
// layer can so choose at launch what nvcc is told when it compiles the kernel.
template <class T>
struct KernelScope {
  explicit KernelScope(const T&) {}
};
template <class T>
requires requires(const T& arg) { kernel_scope(arg); }
struct KernelScope<T> {
  explicit KernelScope(const T& arg) : scope(kernel_scope(arg)) {}
  decltype(kernel_scope(std::declval<const T&>())) scope;
};

// Run `kernel` to its end, or record it if the stream is being captured. Throws simt::Fault naming source line, block
// and thread if the kernel misbehaves.
template <class... P>
void enqueue(void (*kernel)(P...), const LaunchConfig& config, Stream stream, const std::tuple<P...>& args) {
  if (!config.overlaps_previous) ++serial_launches;
  const bool overlaps = config.overlaps_previous && launches_overlap();
  simt::enqueue(stream, [=] {
    const std::tuple<KernelScope<P>...> scopes(args);
    simt::run({.grid = config.grid,
               .block = config.block,
               .dynamic_smem = config.dynamic_smem,
               .cluster = config.cluster,
               .overlaps_previous = overlaps,
               .cooperative = config.cooperative},
              [&] { std::apply(kernel, args); });
  });
}

}  // namespace detail

// Emulated SMs hold one block each. At least 1: the emulator also runs clusters of more blocks than it has SMs.
template <class... P>
int resident_clusters(void (*)(P...), const LaunchConfig& config) {
  const int clusters = backend::device().num_sms / static_cast<int>(config.cluster_blocks());
  return clusters > 0 ? clusters : 1;
}

#endif

namespace detail {

// Set the driver's limits for the launch. Throws Failure if the launch would be refused.
template <class... P>
void prepare(void (*kernel)(P...), const LaunchConfig& config) {
  allow(kernel, config);
  if (!config.cooperative) return;
  const int resident = config.cluster_blocks() == 1 ? resident_clusters(kernel, config) : 0;
  const std::string refusal = cooperative_refusal(config.grid, config.cluster, resident);
  if (!refusal.empty()) throw Failure(refusal);
}

}  // namespace detail

// Launch `kernel` on `stream`; throws Failure if the launch is refused.
template <class... P, class... A>
void launch(void (*kernel)(P...), const LaunchConfig& config, Stream stream, A... args) {
  detail::prepare(kernel, config);
  detail::enqueue(kernel, config, stream, std::tuple<P...>(static_cast<P>(args)...));
}

// Prepare a launch: make all driver queries now, and return a function that only enqueues.
template <class... P, class... A>
BoundLaunch bind_launch(void (*kernel)(P...), const LaunchConfig& config, A... args) {
  detail::prepare(kernel, config);
  return [kernel, config, all = std::tuple<P...>(static_cast<P>(args)...)](Stream stream) {
    detail::enqueue(kernel, config, stream, all);
  };
}

// Combine launches into one that enqueues them in order.
inline BoundLaunch in_order(std::vector<BoundLaunch> launches) {
  return [launches = std::move(launches)](Stream stream) {
    for (const BoundLaunch& launch : launches) launch(stream);
  };
}

}  // namespace ladder
