// Splits host loops over the machine's cores.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace ladder {

// Calls body(begin, end) for disjoint ranges that cover [0, count), from several threads at once; ranges hold at least
// `grain` indices, except the last. Rethrows one of the exceptions that left a body.
template <class Body>
void parallel_for(std::int64_t count, std::int64_t grain, const Body& body) {
  const std::int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  const std::int64_t num_ranges = std::min(cores, count / std::max<std::int64_t>(grain, 1));
  if (num_ranges <= 1) {
    if (count > 0) body(std::int64_t{0}, count);
    return;
  }
  std::mutex mutex;
  std::exception_ptr error;
  const auto run_range = [&](std::int64_t i) {
    try {
      body(count * i / num_ranges, count * (i + 1) / num_ranges);
    } catch (...) {
      const std::lock_guard lock(mutex);
      error = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::int64_t i = 1; i < num_ranges; ++i) threads.emplace_back(run_range, i);
    run_range(0);
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace ladder
