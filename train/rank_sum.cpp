#include "train/rank_sum.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace ladder::train {

std::vector<nn::GradientRange> gradient_buckets(const nn::Parameters& parameters, int num_buckets) {
  const std::int64_t matrices = parameters.matrices_end();
  const std::int64_t size = std::max(nn::aligned((matrices + num_buckets - 1) / num_buckets), nn::kAlignment);
  std::vector<nn::GradientRange> ranges;
  for (std::int64_t begin = 0; begin < matrices; begin += size) {
    ranges.push_back({begin, std::min(begin + size, matrices)});
  }
  if (matrices < parameters.size()) ranges.push_back({matrices, parameters.size()});
  return ranges;
}

RankSum::RankSum(Communicator& communicator, const nn::Parameters& parameters, const RankGradients& gradients,
                 std::vector<nn::GradientRange> buckets, const Program& network, const Program& accumulate,
                 bool sums_layers, bool timed)
    : communicator_(communicator),
      parameters_(parameters),
      gradients_(gradients),
      network_(network),
      accumulate_(accumulate),
      sums_layers_(sums_layers) {
  LADDER_CHECK(accumulate.tape().operations().size() == buckets.size());
  const Tape& tape = network.tape();
  for (std::size_t number = 0; number < buckets.size(); ++number) {
    Bucket bucket{.number = number, .range = buckets[number]};
    const std::size_t begin = parameters.gradient_offset(bucket.range.begin, gradients.stored),
                      end = parameters.gradient_offset(bucket.range.end, gradients.stored);
    for (int i = 0; i < static_cast<int>(tape.operations().size()); ++i) {
      const Operation& operation = tape.operations()[i];
      for (std::size_t j = 0; j < operation.values.size(); ++j) {
        const Value& value = tape[operation.values[j]];
        if (value.region != &gradients.layers || !operation.problem.tensors[j].is_written()) continue;
        if (value.offset >= end || value.offset + value.bytes() <= begin) continue;
        (network.slots()[i].side_stream ? bucket.last_side : bucket.last_main) = i;
      }
    }
    if (bucket.last_main >= 0) bucket.main_done = std::make_unique<Event>();
    if (bucket.last_side >= 0) bucket.side_done = std::make_unique<Event>();
    if (timed) {
      bucket.begin = std::make_unique<Event>();
      bucket.end = std::make_unique<Event>();
    }
    buckets_.push_back(std::move(bucket));
  }
  std::ranges::stable_sort(buckets_, {}, [](const Bucket& b) { return std::max(b.last_main, b.last_side); });
}

void RankSum::after(std::size_t operation, Stream stream) {
  const auto number = static_cast<int>(operation);
  for (Bucket& bucket : buckets_) {
    if (bucket.last_main == number) bucket.main_done->record(network_.stream_of(operation, stream));
    if (bucket.last_side == number) bucket.side_done->record(network_.stream_of(operation, stream));
  }
  for (; started_ < buckets_.size(); ++started_) {
    const Bucket& bucket = buckets_[started_];
    if (std::max(bucket.last_main, bucket.last_side) > number) return;
    if (bucket.main_done) bucket.main_done->hold_back(stream_);
    if (bucket.side_done) bucket.side_done->hold_back(stream_);
    enqueue(bucket, stream_);
  }
}

void RankSum::finish(Stream stream) {
  if (started_ > 0) {
    joined_.record(stream_);
    joined_.hold_back(stream);
  }
  for (; started_ < buckets_.size(); ++started_) enqueue(buckets_[started_], stream);
  started_ = 0;
}

void RankSum::enqueue(const Bucket& bucket, Stream stream) {
  const std::int64_t first = bucket.range.begin;
  const std::int64_t last = bucket.range.end;
  const auto sum = [&](const Region& region, Dtype dtype, std::size_t offset) {
    if (bucket.begin) bucket.begin->mark(stream);
    communicator_.all_reduce(static_cast<std::byte*>(region.base) + offset, static_cast<std::size_t>(last - first),
                             dtype, stream);
    if (bucket.end) bucket.end->mark(stream);
  };
  if (sums_layers_) {
    sum(gradients_.layers, layer_dtype(bucket), parameters_.gradient_offset(first, gradients_.stored));
  }
  accumulate_.enqueue(bucket.number, stream);
  if (!sums_layers_) sum(gradients_.batch, Dtype::f32, first * sizeof(float));
}

Dtype RankSum::layer_dtype(const Bucket& bucket) const {
  return bucket.range.end <= parameters_.matrices_end() ? gradients_.stored : Dtype::f32;
}

std::vector<RankSum::Sum> RankSum::sums(const Event& start) const {
  std::vector<Sum> all;
  for (const Bucket& bucket : buckets_) {
    Sum& sum = all.emplace_back(Sum{.count = static_cast<std::size_t>(bucket.range.end - bucket.range.begin)});
    if (sums_layers_) sum.dtype = layer_dtype(bucket);
    if (!bucket.begin) continue;
    sum.begin_s = bucket.begin->seconds_since(start);
    sum.end_s = bucket.end->seconds_since(start);
  }
  return all;
}

}  // namespace ladder::train
