// Sums of the gradients over ranks, a bucket at a time: ranges of the flat gradients. A bucket's sum begins when the
// backward pass has written the bucket, on a stream of its own, beside the rest of the pass.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/communicator.h"
#include "core/graph.h"
#include "nn/update.h"
#include "runtime/program.h"

namespace ladder::train {

// Ranges of the flat gradients that one collective sums.
using GradientBucket = std::vector<nn::GradientRange>;

// Returns buckets that cover all gradients: `num_buckets` of about equal size for the matrices, one for the fp32 matrices,
// and one for what the backward pass writes last: vectors, and the matrices of the first layers. The last one is small,
// because nothing hides its sum.
std::vector<GradientBucket> gradient_buckets(const nn::Parameters& parameters, int num_buckets);

// The tensors of a sum, on the device.
struct RankGradients {
  const Region& layers;  // as layers write them: matrices in `stored`, the others in fp32 (Parameters::gradient_offset)
  Dtype stored;
  const Region* batch;  // [Parameters::size()] fp32: the mean over ranks and micro-batches; null: it stays in `layers`
};

class RankSum {
 public:
  // `network` writes gradients.layers; operation i of `accumulate` adds the i-th range of the buckets, divided by ranks
  // and micro-batches, to gradients.batch. Sums gradients.layers before it (one rounding of a matrix's gradient for each
  // addition) if `sums_layers`, else gradients.batch after it. `accumulate` null, with gradients.batch null: the mean over
  // ranks, whose number is a power of two, replaces gradients.layers. `timed`: a graph that captures the sums has marks
  // around each. All arguments but `buckets` must outlive this object.
  RankSum(Communicator& communicator, const nn::Parameters& parameters, const RankGradients& gradients,
          const std::vector<GradientBucket>& buckets, const Program& network, const Program* accumulate,
          bool sums_layers, bool timed = false);

  // Starts the sums of buckets that are complete once `operation` of the network, the newest enqueued, has run. Calls
  // `before_first`, if any, with the sums' stream before the first sum.
  void after(std::size_t operation, Stream stream, const std::function<void(Stream)>& before_first);
  // Enqueues the sums that after() has not started. Later work on `stream` waits for all sums. Returns true if after()
  // has started some.
  bool finish(Stream stream);

  // The sums in their order. begin_s and end_s: in the newest replay, seconds after `start`; 0 unless timed.
  struct Sum {
    std::vector<Communicator::Array> arrays;
    double begin_s = 0;
    double end_s = 0;
  };
  std::vector<Sum> sums(const Event& start) const;

 private:
  struct Bucket {
    GradientBucket ranges;
    std::size_t first = 0;  // operation of `accumulate`, of ranges[0]
    std::vector<Communicator::Array> arrays = {};
    // The network's last operations that write the bucket, on either stream; -1: none.
    int last_main = -1;
    int last_side = -1;
    std::unique_ptr<Event> main_done = {}, side_done = {};
    std::unique_ptr<Event> begin = {}, end = {};  // of the sum; null unless timed
  };

  void find_last_operations(Bucket& bucket) const;
  Communicator::Array array_of(const nn::GradientRange& range) const;
  void enqueue(const Bucket& bucket, Stream stream);

  Communicator& communicator_;
  const nn::Parameters& parameters_;
  RankGradients gradients_;
  const Program& network_;
  const Program* accumulate_;
  bool sums_layers_;
  std::vector<Bucket> buckets_;  // in the order of completion
  std::size_t started_ = 0;      // of the step that is being enqueued
  OwnedStream stream_;
  Event joined_;
};

}  // namespace ladder::train
