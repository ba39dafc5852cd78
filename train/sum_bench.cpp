#include "train/sum_bench.h"

#include <algorithm>
#include <functional>
#include <map>
#include <vector>

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

// Returns the median time of a graph of what `enqueue` puts on a stream, which all ranks begin together.
double median_us(const std::function<void(Stream)>& enqueue, Barrier& barrier, int replays) {
  const OwnedStream stream;
  enqueue(stream);  // connections are made at first use, which a capture does not allow
  barrier.enqueue(stream);
  Event begin, end;
  const Graph graph = Graph::capture([&](Stream on) {
    begin.mark(on);
    enqueue(on);
    end.mark(on);
  });
  std::vector<double> seconds;
  seconds.reserve(static_cast<std::size_t>(replays));
  for (int i = 0; i < replays; ++i) {
    barrier.enqueue(stream);
    graph.replay(stream);
    stream.synchronize();
    seconds.push_back(end.seconds_since(begin));
  }
  return median_us(std::move(seconds));
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

  std::map<Dtype, std::size_t> elements;
  std::size_t largest = 0;
  for (const RankSum::Sum& sum : times[0].sums) {
    elements[sum.dtype] += sum.count;
    largest = std::max(largest, elements[sum.dtype]);
  }
  const OwnedRegion scratch("gradients to sum alone", largest * sizeof(float));
  const auto alone_us = [&](std::size_t count, Dtype dtype) {
    return median_us([&](Stream on) { ranks.communicator()->all_reduce(scratch.base, count, dtype, on); }, barrier,
                     replays);
  };

  Json sums = Json::array();
  for (std::size_t i = 0; i < times[0].sums.size(); ++i) {
    const RankSum::Sum& sum = times[0].sums[i];
    sums.push_back({{"bytes", sum.count * size_of(sum.dtype)},
                    {"dtype", name(sum.dtype)},
                    {"begin_us", median_of([i](const Step::SumTimes& t) { return t.sums[i].begin_s; })},
                    {"end_us", median_of([i](const Step::SumTimes& t) { return t.sums[i].end_s; })},
                    {"alone_us", alone_us(sum.count, sum.dtype)}});
  }
  double uncut_us = 0;
  for (const auto& [dtype, count] : elements) uncut_us += alone_us(count, dtype);
  return {{"network_us", median_of([](const Step::SumTimes& t) { return t.network_s; })},
          {"uncut_alone_us", uncut_us},
          {"sums", std::move(sums)}};
}

}  // namespace ladder::train
