// Collectives over host memory (core/communicator.h): copy out, host function, copy in.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <utility>

#include "core/communicator.h"
#include "core/error.h"
#include "core/graph.h"

namespace ladder {
namespace {

using Ranks = std::vector<std::string>;

// Returns the sum of all ranks' elements, or their mean, added in fp32 in the order of ranks and rounded once.
std::string sum(const Ranks& of_ranks, Dtype dtype, bool mean) {
  const std::size_t bytes = of_ranks.at(0).size(), count = bytes / size_of(dtype);
  std::vector<float> total(count), values(count);
  decode(dtype, of_ranks[0].data(), count, total.data());
  for (std::size_t r = 1; r < of_ranks.size(); ++r) {
    if (of_ranks[r].size() != bytes) {
      throw Failure(
          fmt::format("ranks disagree on a sum: rank 0 has {} bytes, rank {} {}", bytes, r, of_ranks[r].size()));
    }
    decode(dtype, of_ranks[r].data(), count, values.data());
    for (std::size_t i = 0; i < count; ++i) total[i] += values[i];
  }
  if (mean) {
    for (float& value : total) value /= static_cast<float>(of_ranks.size());
  }
  std::string stored(bytes, '\0');
  encode(dtype, total.data(), count, stored.data());
  return stored;
}

std::string concatenate(const Ranks& of_ranks) {
  std::string all;
  for (const std::string& one : of_ranks) all += one;
  return all;
}

class HostCommunicator : public Communicator {
 public:
  HostCommunicator(int rank, int size, ReduceOnHost reduce) : rank_(rank), size_(size), reduce_(std::move(reduce)) {
    LADDER_CHECK(0 <= rank && rank < size);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void all_reduce(std::span<const Array> arrays, Stream stream) override {
    for (const Array& a : arrays) {
      const std::size_t bytes = bytes_of_sum(a.count, a.dtype);
      enqueue({.from = a.data, .from_bytes = bytes, .to = a.data, .to_bytes = bytes}, summed(a.dtype, a.mean), stream);
    }
  }

  void reduce_scatter(const void* from, void* to, std::size_t count, Dtype dtype, Stream stream) override {
    const std::size_t bytes = bytes_of_sum(count, dtype);
    enqueue({.from = from,
             .from_bytes = num_ranks() * bytes,
             .to = to,
             .to_bytes = bytes,
             .result_bytes = num_ranks() * bytes,
             .result_offset = static_cast<std::size_t>(rank_) * bytes},
            summed(dtype), stream);
  }

  void all_gather(const void* from, void* to, std::size_t bytes, Stream stream) override {
    enqueue({.from = from, .from_bytes = bytes, .to = to, .to_bytes = num_ranks() * bytes}, concatenate, stream);
  }

  void broadcast(void* data, std::size_t bytes, int root, Stream stream) override {
    LADDER_CHECK(0 <= root && root < size_);
    enqueue(
        {.from = data, .from_bytes = rank_ == root ? bytes : 0, .to = data, .to_bytes = bytes},
        [root](Ranks of_ranks) { return std::move(of_ranks[static_cast<std::size_t>(root)]); }, stream);
  }

  void check() override {
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  // Device memory of one collective. `to` gets result [result_offset, result_offset + to_bytes).
  struct Transfer {
    const void* from = nullptr;
    std::size_t from_bytes = 0;
    void* to = nullptr;
    std::size_t to_bytes = 0;
    std::size_t result_bytes = to_bytes;
    std::size_t result_offset = 0;
  };

  std::size_t num_ranks() const { return static_cast<std::size_t>(size_); }

  static std::size_t bytes_of_sum(std::size_t count, Dtype dtype) {
    LADDER_CHECK(dtype == Dtype::f32 || dtype == Dtype::bf16, name(dtype));
    return count * size_of(dtype);
  }

  static Combine summed(Dtype dtype, bool mean = false) {
    return [=](const Ranks& of_ranks) { return sum(of_ranks, dtype, mean); };
  }

  void enqueue(const Transfer& transfer, Combine combine, Stream stream) {
    if (transfer.to_bytes == 0) return;
    if (size_ == 1) {
      if (transfer.from != transfer.to) copy_async(transfer.to, transfer.from, transfer.to_bytes, stream);
      return;
    }
    std::byte* const staged = stage(std::max(transfer.from_bytes, transfer.to_bytes));
    if (transfer.from_bytes > 0) copy_out_async(staged, transfer.from, transfer.from_bytes, stream);
    run_on_host_async([this, transfer, staged, combine = std::move(combine)] { run(transfer, staged, combine); },
                      stream);
    copy_in_async(transfer.to, staged, transfer.to_bytes, stream);
  }

  // Runs on the host between the copies. Keeps an exception, which a driver's thread must not see.
  void run(const Transfer& transfer, std::byte* staged, const Combine& combine) noexcept {
    try {
      check();
      const std::string result = reduce_({reinterpret_cast<const char*>(staged), transfer.from_bytes}, combine);
      if (result.size() != transfer.result_bytes) {
        throw Failure(fmt::format("ranks disagree on a collective: rank {} expects {} bytes, rank 0 sent {}", rank_,
                                  transfer.result_bytes, result.size()));
      }
      std::memcpy(staged, result.data() + transfer.result_offset, transfer.to_bytes);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
    }
  }

  // Returns at least `bytes` of pinned memory. All collectives share it, as one ends before the next begins; graphs that
  // captured smaller memory keep using that.
  std::byte* stage(std::size_t bytes) {
    if (stages_.empty() || stages_.back()->bytes() < bytes) {
      const std::size_t least = stages_.empty() ? 0 : 2 * stages_.back()->bytes();
      stages_.push_back(std::make_unique<PinnedBuffer>(std::max(bytes, least)));
    }
    return static_cast<std::byte*>(stages_.back()->data());
  }

  int rank_, size_;
  ReduceOnHost reduce_;
  std::vector<std::unique_ptr<PinnedBuffer>> stages_;
  std::mutex mutex_;
  std::exception_ptr failure_;  // of the first collective that failed; later ones do nothing
};

}  // namespace

std::unique_ptr<Communicator> make_host_communicator(int rank, int size, ReduceOnHost reduce) {
  return std::make_unique<HostCommunicator>(rank, size, std::move(reduce));
}

}  // namespace ladder
