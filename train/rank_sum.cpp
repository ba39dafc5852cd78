#include "train/rank_sum.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace ladder::train {
namespace {

constexpr std::int64_t kLastDivisor = 128;  // matrices summed last: the first 1/128 of them

}  // namespace

std::vector<GradientBucket> gradient_buckets(const nn::Parameters& parameters, int num_buckets) {
  const std::int64_t matrices = parameters.matrices_end();
  const std::int64_t first_layers = std::min(nn::aligned(matrices / kLastDivisor), matrices);
  const std::int64_t size =
      std::max(nn::aligned((matrices - first_layers + num_buckets - 1) / num_buckets), nn::kAlignment);
  std::vector<GradientBucket> buckets;
  for (std::int64_t begin = first_layers; begin < matrices; begin += size) {
    buckets.push_back({{begin, std::min(begin + size, matrices)}});
  }
  buckets.push_back({{matrices, parameters.vectors_begin()}});
  buckets.push_back({{0, first_layers}, {parameters.vectors_begin(), parameters.size()}});
  for (GradientBucket& ranges : buckets) {
    std::erase_if(ranges, [](const nn::GradientRange& range) { return range.begin == range.end; });
  }
  std::erase_if(buckets, [](const GradientBucket& ranges) { return ranges.empty(); });
  return buckets;
}

RankSum::RankSum(Communicator& communicator, const nn::Parameters& parameters, const RankGradients& gradients,
                 const std::vector<GradientBucket>& buckets, const Program& network, const Program* accumulate,
                 bool sums_layers, bool timed)
    : communicator_(communicator),
      parameters_(parameters),
      gradients_(gradients),
      network_(network),
      accumulate_(accumulate),
      sums_layers_(sums_layers) {
  std::size_t operation = 0;
  for (const GradientBucket& ranges : buckets) {
    Bucket bucket{.ranges = ranges, .first = operation};
    operation += ranges.size();
    for (const nn::GradientRange& range : ranges) bucket.arrays.push_back(array_of(range));
    find_last_operations(bucket);
    if (bucket.last_main >= 0) bucket.main_done = std::make_unique<Event>();
    if (bucket.last_side >= 0) bucket.side_done = std::make_unique<Event>();
    if (timed) {
      bucket.begin = std::make_unique<Event>();
      bucket.end = std::make_unique<Event>();
    }
    buckets_.push_back(std::move(bucket));
  }
  LADDER_CHECK((accumulate == nullptr) == (gradients.batch == nullptr) && (accumulate || sums_layers));
  LADDER_CHECK(!accumulate || accumulate->tape().operations().size() == operation);
  std::ranges::stable_sort(buckets_, {}, [](const Bucket& b) { return std::max(b.last_main, b.last_side); });
}

void RankSum::find_last_operations(Bucket& bucket) const {
  const Tape& tape = network_.tape();
  for (const nn::GradientRange& range : bucket.ranges) {
    const std::size_t begin = parameters_.gradient_offset(range.begin, gradients_.stored),
                      end = parameters_.gradient_offset(range.end, gradients_.stored);
    for (int i = 0; i < static_cast<int>(tape.operations().size()); ++i) {
      const Operation& operation = tape.operations()[i];
      for (std::size_t j = 0; j < operation.values.size(); ++j) {
        const Value& value = tape[operation.values[j]];
        if (value.region != &gradients_.layers || !operation.problem.tensors[j].is_written()) continue;
        if (value.offset >= end || value.offset + value.bytes() <= begin) continue;
        int& last = network_.slots()[i].side_stream ? bucket.last_side : bucket.last_main;
        last = std::max(last, i);
      }
    }
  }
}

Communicator::Array RankSum::array_of(const nn::GradientRange& range) const {
  const bool matrices = range.end <= parameters_.matrices_end();
  const Region& region = sums_layers_ ? gradients_.layers : *gradients_.batch;
  const std::size_t offset = sums_layers_ ? parameters_.gradient_offset(range.begin, gradients_.stored)
                                          : static_cast<std::size_t>(range.begin) * sizeof(float);
  return {.data = static_cast<std::byte*>(region.base) + offset,
          .count = static_cast<std::size_t>(range.end - range.begin),
          .dtype = sums_layers_ && matrices ? gradients_.stored : Dtype::f32,
          .mean = accumulate_ == nullptr};
}

void RankSum::after(std::size_t operation, Stream stream, const std::function<void(Stream)>& before_first) {
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
    if (started_ == 0 && before_first) before_first(stream_);
    enqueue(bucket, stream_);
  }
}

bool RankSum::finish(Stream stream) {
  const bool some = started_ > 0;
  if (some) {
    joined_.record(stream_);
    joined_.hold_back(stream);
  }
  for (; started_ < buckets_.size(); ++started_) enqueue(buckets_[started_], stream);
  started_ = 0;
  return some;
}

void RankSum::enqueue(const Bucket& bucket, Stream stream) {
  const auto accumulate = [&] {
    if (!accumulate_) return;
    for (std::size_t i = 0; i < bucket.ranges.size(); ++i) accumulate_->enqueue(bucket.first + i, stream);
  };
  if (!sums_layers_) accumulate();
  if (bucket.begin) bucket.begin->mark(stream);
  communicator_.all_reduce(bucket.arrays, stream);
  if (bucket.end) bucket.end->mark(stream);
  if (sums_layers_) accumulate();
}

std::vector<RankSum::Sum> RankSum::sums(const Event& start) const {
  std::vector<Sum> all;
  for (const Bucket& bucket : buckets_) {
    Sum& sum = all.emplace_back(Sum{.arrays = bucket.arrays});
    if (!bucket.begin) continue;
    sum.begin_s = bucket.begin->seconds_since(start);
    sum.end_s = bucket.end->seconds_since(start);
  }
  return all;
}

}  // namespace ladder::train
