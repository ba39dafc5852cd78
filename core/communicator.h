// Collectives over the processes (ranks) of one training, on device memory and a stream. Work is enqueued like a kernel
// and may be captured into a graph. Rules, which no implementation checks:
// - Every call, capture and replay is collective: all ranks make it, in the same order and with the same sizes.
// - A communicator's collectives run one after the other: enqueue them on one stream, or order streams by events.
// - Run each collective once before a capture: connections are made at first use.
// - Destroy graphs that captured a collective, and wait for streams, before the communicator is destroyed.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/stream.h"

namespace ladder {

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // All counts may be 0, on all ranks. Sums are of fp32 or bf16 elements, and every rank gets the same bits.
  // data[i] = sum over ranks of data[i], for `count` elements, of each array. `mean`: the sum divided by size(), which is a
  // power of two. NCCL sums all arrays in one launch.
  struct Array {
    void* data = nullptr;
    std::size_t count = 0;
    Dtype dtype = Dtype::f32;
    bool mean = false;
  };
  virtual void all_reduce(std::span<const Array> arrays, Stream stream) = 0;
  void all_reduce(void* data, std::size_t count, Dtype dtype, Stream stream) {
    all_reduce({{{.data = data, .count = count, .dtype = dtype}}}, stream);
  }
  // to[i] = sum over ranks of from[rank() * count + i]; `from` has size() * count elements.
  virtual void reduce_scatter(const void* from, void* to, std::size_t count, Dtype dtype, Stream stream) = 0;
  // `to` [size(), bytes] gets every rank's `from` [bytes]. In place where from == to + rank() * bytes.
  virtual void all_gather(const void* from, void* to, std::size_t bytes, Stream stream) = 0;
  // data [bytes] of rank `root` goes to all ranks.
  virtual void broadcast(void* data, std::size_t bytes, int root, Stream stream) = 0;

  // Throws the first failure of a collective that was enqueued; its result, and those of later ones, are undefined. Never
  // waits.
  virtual void check() = 0;
};

// Combines the bytes of all ranks, in their order, into one result.
using Combine = std::function<std::string(std::vector<std::string> of_ranks)>;
// Sends `bytes` to rank 0, which combines those of all ranks, and returns rank 0's result on every rank. Collective.
using ReduceOnHost = std::function<std::string(std::string bytes, const Combine& combine)>;

// Collectives over host memory. Sums of both dtypes are added in fp32 in the order of ranks and rounded once, so they
// depend on nothing but the ranks' values. `reduce` runs on a thread of the driver on a GPU, and never for a world of one.
std::unique_ptr<Communicator> make_host_communicator(int rank, int size, ReduceOnHost reduce);

// NCCL's collectives between GPUs, one a rank. `exchange` returns the bytes of all ranks, in their order. Throws Failure
// where this build has no NCCL, or none can be loaded, with the reason.
std::unique_ptr<Communicator> make_nccl_communicator(
    int rank, int size, const std::function<std::vector<std::string>(std::string_view)>& exchange);

}  // namespace ladder
