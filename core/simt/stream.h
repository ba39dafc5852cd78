// Streams of the emulator. Work runs when it is enqueued. Under the schedule `late` it runs only when something waits for
// it: the host for a stream, an event or the device, or another stream's work for an event.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>

#include "core/stream.h"

namespace ladder::simt {

using Work = std::function<void()>;

// Run `work`, keep it until something waits for it, or record it if the stream is being captured. `work` holds its data
// by value. The null stream, which the host waits for with every call, keeps nothing.
void enqueue(Stream stream, Work work);

// Work of a stream that has not run. All members but `failure` are this file's own.
struct StreamQueue {
  std::deque<Work> waiting;
  std::uint64_t num_begun = 0;  // taken from `waiting` since the stream was made
  std::exception_ptr failure;   // first failure of its work, until the stream is waited for

  std::uint64_t end() const { return num_begun + waiting.size(); }
};

// Append `work` to a queue under the schedule `late`.
void keep(const std::shared_ptr<StreamQueue>& queue, Work work);

// Run the queue's work up to its first `end` items ever. Failures stay in the queue.
void run_until(StreamQueue& queue, std::uint64_t end);

// Run the work of all streams, the stream that was used last first.
void run_all_streams() noexcept;

// run_all_streams(), then throws the first failure of any stream's work.
void synchronize_streams();

}  // namespace ladder::simt
