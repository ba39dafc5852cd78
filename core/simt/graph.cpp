// core/graph.h on the emulator.
#include "core/graph.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <queue>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/simt/early_start.h"
#include "core/simt/options.h"
#include "core/simt/stream.h"

namespace ladder::simt {
namespace {

// Number of operations in a capture, by the stream that enqueued them.
using Counts = std::map<const CUstream_st*, std::size_t>;

struct Node {
  Work work;
  Stream stream;
  Counts before;  // operations of each stream that end before it begins
};

using Recording = std::vector<Node>;

bool late() { return options().schedule == Schedule::late; }

}  // namespace
}  // namespace ladder::simt

struct CUstream_st {
  std::weak_ptr<ladder::simt::Recording> recording;  // of the graph being captured, which owns it; else expired
  CUstream_st* origin = this;                        // the stream that the graph is captured from
  ladder::simt::Counts passed = {};                  // operations ordered before its next one
  ladder::simt::Counts enqueued = {};                // in the origin: operations of all streams of the capture
  std::shared_ptr<ladder::simt::StreamQueue> queue = std::make_shared<ladder::simt::StreamQueue>();
};

namespace ladder {
namespace simt {
namespace {

// Order of a recording's nodes in which each is as late as its edges allow, the newest first: a node that lacks an edge
// comes too early.
std::vector<std::size_t> latest_order(const Recording& nodes) {
  std::map<const CUstream_st*, std::vector<std::size_t>> of_stream;
  std::vector<std::vector<std::size_t>> next(nodes.size());
  std::vector<int> num_open(nodes.size());  // edges from nodes that have no place yet
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (const auto& [stream, count] : nodes[i].before) {
      if (count == 0) continue;
      next[of_stream.at(stream)[count - 1]].push_back(i);
      ++num_open[i];
    }
    of_stream[nodes[i].stream].push_back(i);
  }
  std::priority_queue<std::size_t> ready;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (num_open[i] == 0) ready.push(i);
  }
  while (!ready.empty()) {
    const std::size_t i = ready.top();
    ready.pop();
    order.push_back(i);
    for (const std::size_t j : next[i]) {
      if (--num_open[j] == 0) ready.push(j);
    }
  }
  return order;
}

}  // namespace

void enqueue(Stream stream, Work enqueued) {
  Work work = [stream, enqueued = std::move(enqueued)] { run_on(stream, enqueued); };
  if (stream == nullptr) return work();
  if (const auto to = stream->recording.lock()) {
    to->push_back({.work = std::move(work), .stream = stream, .before = stream->passed});
    stream->origin->enqueued[stream] = ++stream->passed[stream];
  } else if (late()) {
    keep(stream->queue, std::move(work));
  } else {
    work();
  }
}

}  // namespace simt

OwnedStream::OwnedStream() : stream_(new CUstream_st) {}
OwnedStream::~OwnedStream() { delete stream_; }
void OwnedStream::synchronize() const {
  if (!stream_->recording.expired()) throw Failure("a stream cannot be waited for while it is being captured");
  simt::StreamQueue& queue = *stream_->queue;
  simt::run_until(queue, queue.end());
  if (const auto failure = std::exchange(queue.failure, nullptr)) std::rethrow_exception(failure);
}

struct Event::Impl {
  std::weak_ptr<simt::Recording> recording;  // capture of the stream that the event was recorded in
  Stream origin = nullptr;
  simt::Counts before;
  std::shared_ptr<simt::StreamQueue> queue;  // else the stream's, and its work before the event
  std::uint64_t end = 0;
  // Made anew by each record().
  std::shared_ptr<std::chrono::steady_clock::time_point> passed =
      std::make_shared<std::chrono::steady_clock::time_point>();
};

Event::Event() : impl_(std::make_unique<Impl>()) {}
Event::~Event() = default;
void Event::record(Stream stream) {
  const auto passed = std::make_shared<std::chrono::steady_clock::time_point>();
  const auto pass = [passed] { *passed = std::chrono::steady_clock::now(); };
  *impl_ = {.passed = passed};
  if (stream && !stream->recording.expired()) {
    impl_->recording = stream->recording;
    impl_->origin = stream->origin;
    impl_->before = stream->passed;
  } else if (stream && simt::late()) {
    simt::keep(stream->queue, pass);
    impl_->queue = stream->queue;
    impl_->end = stream->queue->end();
  } else {
    pass();
  }
}
void Event::mark(Stream) {}
void Event::hold_back(Stream stream) const {
  if (const auto recording = impl_->recording.lock()) {
    if (!stream) return;
    if (stream->recording.lock() != recording) stream->passed.clear();
    stream->recording = recording;
    stream->origin = impl_->origin;
    for (const auto& [other, count] : impl_->before) {
      std::size_t& passed = stream->passed[other];
      passed = std::max(passed, count);
    }
  } else if (impl_->queue) {
    const auto wait = [queue = impl_->queue, end = impl_->end] { simt::run_until(*queue, end); };
    simt::enqueue(stream, wait);
  }
}
void Event::synchronize() const {
  if (impl_->queue) simt::run_until(*impl_->queue, impl_->end);
}
double Event::seconds_since(const Event& before) const {
  for (const Event* event : {this, &before}) {
    const auto& queue = event->impl_->queue;
    if (queue && queue->num_begun < event->impl_->end) throw Failure("an event has not passed: wait for it first");
  }
  return std::chrono::duration<double>(*impl_->passed - *before.impl_->passed).count();
}

namespace {

// Pinned buffers by address, with their bytes.
std::map<const std::byte*, std::size_t>& pinned() {
  static auto& all = *new std::map<const std::byte*, std::size_t>;
  return all;
}
std::mutex pinned_mutex;

bool is_pinned(const void* address) {
  const std::lock_guard lock(pinned_mutex);
  const auto* const byte = static_cast<const std::byte*>(address);
  const auto next = pinned().upper_bound(byte);
  if (next == pinned().begin()) return false;
  const auto& [begin, bytes] = *std::prev(next);
  return byte < begin + bytes;
}

// Copy between host and device. The host waits unless its memory is pinned.
void copy_host_async(void* to, const void* from, std::size_t bytes, const void* host, Stream stream) {
  copy_async(to, from, bytes, stream);
  if (stream && stream->recording.expired() && !is_pinned(host)) simt::run_until(*stream->queue, stream->queue->end());
}

}  // namespace

PinnedBuffer::PinnedBuffer(std::size_t bytes) : data_(std::malloc(bytes > 0 ? bytes : 1)), bytes_(bytes) {
  if (!data_) throw Failure("no memory for a buffer of " + std::to_string(bytes) + " bytes");
  const std::lock_guard lock(pinned_mutex);
  pinned()[static_cast<const std::byte*>(data_)] = std::max<std::size_t>(bytes, 1);
}
PinnedBuffer::~PinnedBuffer() {
  simt::run_all_streams();  // as cudaFreeHost() does
  {
    const std::lock_guard lock(pinned_mutex);
    pinned().erase(static_cast<const std::byte*>(data_));
  }
  std::free(data_);
}

void copy_in_async(void* device, const void* host, std::size_t bytes, Stream stream) {
  copy_host_async(device, host, bytes, host, stream);
}
void copy_out_async(void* host, const void* device, std::size_t bytes, Stream stream) {
  copy_host_async(host, device, bytes, host, stream);
}
void copy_async(void* to, const void* from, std::size_t bytes, Stream stream) {
  simt::enqueue(stream, [=] { std::memmove(to, from, bytes); });
}
void set_bytes_async(void* device, int byte, std::size_t bytes, Stream stream) {
  simt::enqueue(stream, [=] { std::memset(device, byte, bytes); });
}

void run_on_host_async(std::function<void()> function, Stream stream) { simt::enqueue(stream, std::move(function)); }

std::vector<const void*> captured_nodes(Stream stream) {
  const auto recording = stream ? stream->recording.lock() : nullptr;
  std::vector<const void*> nodes;
  for (std::size_t i = 0; recording && i < recording->size(); ++i) {
    nodes.push_back(reinterpret_cast<void*>(i + 1));  // NOLINT(performance-no-int-to-ptr): a number stands for a node
  }
  return nodes;
}

struct Graph::Impl {
  std::shared_ptr<const simt::Recording> nodes;  // a replay may outlive its graph
  std::vector<std::size_t> latest;               // simt::latest_order()
};

Graph::Graph(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;
Graph::~Graph() = default;

Graph Graph::capture(const std::function<void(Stream)>& enqueue) {
  // Streams that join the capture through an event record as long as `nodes` exists.
  const auto nodes = std::make_shared<simt::Recording>();
  CUstream_st stream{.recording = nodes};
  enqueue(&stream);
  for (const auto& [other, count] : stream.enqueued) {
    if (stream.passed[other] < count) throw Failure("a capture ends before a stream that joined it was waited for");
  }
  auto impl = std::make_unique<Impl>();
  impl->nodes = std::make_shared<const simt::Recording>(std::move(*nodes));
  impl->latest = simt::latest_order(*impl->nodes);
  return Graph(std::move(impl));
}

// Replay, and report a failing kernel where its stream is waited for, as a GPU does.
void Graph::replay(Stream stream) const {
  std::vector<std::size_t> order = simt::late() ? impl_->latest : std::vector<std::size_t>();
  try {
    simt::enqueue(stream, [nodes = impl_->nodes, order = std::move(order)] {
      for (std::size_t i = 0; i < nodes->size(); ++i) (*nodes)[order.empty() ? i : order[i]].work();
    });
  } catch (...) {
    if (!stream) throw;
    if (!stream->queue->failure) stream->queue->failure = std::current_exception();
  }
}

std::size_t Graph::num_nodes() const { return impl_->nodes->size(); }
Graph::Edges Graph::edges() const { return {}; }

}  // namespace ladder
