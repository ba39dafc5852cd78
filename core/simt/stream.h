// Streams of the emulator. Work runs when it is enqueued, except on a stream that a graph is being captured from: there it
// is recorded.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/stream.h"

namespace ladder::simt {

using Recording = std::vector<std::function<void()>>;

// Returns the recording of the capture that `stream` is in, or null.
std::shared_ptr<Recording> recording(Stream stream);

// Run `work`, or record it if the stream is being captured. `work` is copied, so that it must hold its data by value.
template <class F>
void enqueue(Stream stream, F work) {
  if (const auto to = recording(stream)) {
    to->emplace_back(std::move(work));
  } else {
    work();
  }
}

}  // namespace ladder::simt
