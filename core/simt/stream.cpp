#include "core/simt/stream.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

namespace ladder::simt {

namespace {

// Queues that have had work, in the order of their last use. A stream's work outlives its handle, as on a GPU.
struct Queues {
  std::recursive_mutex mutex;                      // held while work runs, which may wait for other streams
  std::vector<std::shared_ptr<StreamQueue>> used;  // after a drain: those with a failure
};

Queues& queues() {
  static Queues& all = *new Queues;  // never destroyed: buffers may be released after main()
  return all;
}

}  // namespace

void keep(const std::shared_ptr<StreamQueue>& queue, Work work) {
  auto& [mutex, used] = queues();
  const std::lock_guard lock(mutex);
  queue->waiting.push_back(std::move(work));
  std::erase(used, queue);
  used.push_back(queue);
}

void run_until(StreamQueue& queue, std::uint64_t end) {
  const std::lock_guard lock(queues().mutex);
  while (queue.num_begun < end) {
    const Work work = std::move(queue.waiting.front());
    queue.waiting.pop_front();
    ++queue.num_begun;
    try {
      work();
    } catch (...) {
      if (!queue.failure) queue.failure = std::current_exception();
    }
  }
}

void run_all_streams() noexcept {
  auto& [mutex, used] = queues();
  const std::lock_guard lock(mutex);
  for (std::size_t i = used.size(); i-- > 0;) run_until(*used[i], used[i]->end());
  std::erase_if(used, [](const auto& queue) { return !queue->failure; });
}

void synchronize_streams() {
  auto& [mutex, used] = queues();
  const std::lock_guard lock(mutex);
  run_all_streams();
  if (used.empty()) return;
  const auto failed = used.front();
  used.erase(used.begin());
  std::rethrow_exception(std::exchange(failed->failure, nullptr));
}

}  // namespace ladder::simt
