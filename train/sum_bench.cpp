#include "train/sum_bench.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/dtype.h"

namespace ladder::train {
namespace {

using Json = nlohmann::json;

double median_us(std::vector<double> seconds) {
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::ranges::nth_element(seconds, middle);
  return 1e6 * *middle;
}

// Returns the median time of a graph of what `enqueue` puts on a stream, which all ranks begin together: the graph itself
// begins with a barrier, because its launch takes longer on some hosts than on others.
double median_us(const std::function<void(Stream)>& enqueue, Barrier& barrier, int replays) {
  const OwnedStream stream;
  enqueue(stream);  // connections are made at first use, which a capture does not allow
  barrier.enqueue(stream);
  Event begin, end;
  const Graph graph = Graph::capture([&](Stream on) {
    barrier.enqueue(on);
    begin.mark(on);
    enqueue(on);
    end.mark(on);
  });
  std::vector<double> seconds;
  seconds.reserve(static_cast<std::size_t>(replays));
  for (int i = 0; i < replays; ++i) {
    graph.replay(stream);
    stream.synchronize();
    seconds.push_back(end.seconds_since(begin));
  }
  return median_us(std::move(seconds));
}

// Bytes of all arrays, one behind the other, each padded.
std::size_t bytes_of(const std::vector<RankSum::Sum>& sums) {
  std::size_t bytes = 0;
  for (const RankSum::Sum& sum : sums) {
    for (const Communicator::Array& array : sum.arrays) bytes += padded(array.count * size_of(array.dtype));
  }
  return bytes;
}

}  // namespace

Json time_sums(const Step& step, Ranks& ranks, int replays) {
  Barrier barrier(ranks);
  std::vector<Step::SumTimes> times;
  times.reserve(static_cast<std::size_t>(replays));
  for (int i = 0; i < replays; ++i) {
    barrier.enqueue(step.stream());
    step.replay(step.stream());
    Event done;
    done.record(step.stream());
    done.synchronize();
    times.push_back(step.sum_times());
  }
  const auto median_of = [&](const auto& value) {
    std::vector<double> seconds;
    seconds.reserve(times.size());
    for (const Step::SumTimes& time : times) seconds.push_back(value(time));
    return median_us(std::move(seconds));
  };

  const OwnedRegion scratch("gradients to sum alone", bytes_of(times[0].sums));
  // The time of one all-reduce of arrays like these.
  const auto alone_us = [&](std::vector<Communicator::Array> arrays) {
    auto* next = static_cast<std::byte*>(scratch.base);
    for (Communicator::Array& array : arrays) {
      array.data = next;
      next += padded(array.count * size_of(array.dtype));
    }
    return median_us([&](Stream on) { ranks.communicator()->all_reduce(arrays, on); }, barrier, replays);
  };

  Json sums = Json::array();
  std::map<Dtype, std::size_t> elements;
  for (std::size_t i = 0; i < times[0].sums.size(); ++i) {
    std::size_t bytes = 0;
    std::set<std::string> dtypes;
    for (const Communicator::Array& array : times[0].sums[i].arrays) {
      bytes += array.count * size_of(array.dtype);
      elements[array.dtype] += array.count;
      dtypes.insert(name(array.dtype));
    }
    sums.push_back({{"bytes", bytes},
                    {"dtype", fmt::format("{}", fmt::join(dtypes, "+"))},
                    {"begin_us", median_of([i](const Step::SumTimes& t) { return t.sums[i].begin_s; })},
                    {"end_us", median_of([i](const Step::SumTimes& t) { return t.sums[i].end_s; })},
                    {"alone_us", alone_us(times[0].sums[i].arrays)}});
  }
  std::vector<Communicator::Array> uncut;
  uncut.reserve(elements.size());
  for (const auto& [dtype, count] : elements) uncut.push_back({.count = count, .dtype = dtype});
  return {{"network_us", median_of([](const Step::SumTimes& t) { return t.network_s; })},
          {"uncut_alone_us", alone_us(uncut)},
          {"sums", std::move(sums)}};
}

}  // namespace ladder::train
