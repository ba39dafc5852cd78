// core/graph.h on the emulator.
#include "core/graph.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <utility>

#include "core/error.h"
#include "core/simt/stream.h"

// Number of operations in a capture, by the stream that enqueued them.
using Counts = std::map<const CUstream_st*, std::size_t>;

struct CUstream_st {
  std::weak_ptr<ladder::simt::Recording> recording;  // of the graph being captured, which owns it; else expired
  CUstream_st* origin = this;                        // the stream that the graph is captured from
  Counts passed = {};                                // operations ordered before its next one
  Counts enqueued = {};                              // in the origin: operations of all streams of the capture
  std::exception_ptr failure = nullptr;              // first failure of a replay, until the stream is waited for
};

namespace ladder {
namespace simt {

std::shared_ptr<Recording> recording(Stream stream) {
  if (!stream) return nullptr;
  auto to = stream->recording.lock();
  if (to) stream->origin->enqueued[stream] = ++stream->passed[stream];
  return to;
}

}  // namespace simt

OwnedStream::OwnedStream() : stream_(new CUstream_st) {}
OwnedStream::~OwnedStream() { delete stream_; }
void OwnedStream::synchronize() const {
  if (!stream_->recording.expired()) throw Failure("a stream cannot be waited for while it is being captured");
  if (const auto failure = std::exchange(stream_->failure, nullptr)) std::rethrow_exception(failure);
}

struct Event::Impl {
  std::weak_ptr<simt::Recording> recording;  // capture of the stream that the event was recorded in
  Stream origin = nullptr;
  Counts before;
  std::chrono::steady_clock::time_point passed;
};

Event::Event() : impl_(std::make_unique<Impl>()) {}
Event::~Event() = default;
void Event::record(Stream stream) {
  if (stream) {
    impl_->recording = stream->recording;
    impl_->origin = stream->origin;
    impl_->before = stream->passed;
  }
  impl_->passed = std::chrono::steady_clock::now();
}
void Event::mark(Stream) {}
void Event::hold_back(Stream stream) const {
  const auto recording = impl_->recording.lock();
  if (!stream || !recording) return;
  if (stream->recording.lock() != recording) stream->passed.clear();
  stream->recording = recording;
  stream->origin = impl_->origin;
  for (const auto& [other, count] : impl_->before) {
    std::size_t& passed = stream->passed[other];
    passed = std::max(passed, count);
  }
}
void Event::synchronize() const {}
double Event::seconds_since(const Event& before) const {
  return std::chrono::duration<double>(impl_->passed - before.impl_->passed).count();
}

PinnedBuffer::PinnedBuffer(std::size_t bytes) : data_(std::malloc(bytes > 0 ? bytes : 1)), bytes_(bytes) {
  if (!data_) throw Failure("no memory for a buffer of " + std::to_string(bytes) + " bytes");
}
PinnedBuffer::~PinnedBuffer() { std::free(data_); }

void copy_in_async(void* device, const void* host, std::size_t bytes, Stream stream) {
  copy_async(device, host, bytes, stream);
}
void copy_out_async(void* host, const void* device, std::size_t bytes, Stream stream) {
  copy_async(host, device, bytes, stream);
}
void copy_async(void* to, const void* from, std::size_t bytes, Stream stream) {
  simt::enqueue(stream, [=] { std::memmove(to, from, bytes); });
}
void set_bytes_async(void* device, int byte, std::size_t bytes, Stream stream) {
  simt::enqueue(stream, [=] { std::memset(device, byte, bytes); });
}

std::vector<const void*> captured_nodes(Stream stream) {
  const auto recording = simt::recording(stream);
  std::vector<const void*> nodes;
  for (std::size_t i = 0; recording && i < recording->size(); ++i) {
    nodes.push_back(reinterpret_cast<void*>(i + 1));  // NOLINT(performance-no-int-to-ptr): a number stands for a node
  }
  return nodes;
}

struct Graph::Impl {
  std::shared_ptr<simt::Recording> nodes;
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
  impl->nodes = std::make_shared<simt::Recording>(std::move(*nodes));
  return Graph(std::move(impl));
}

// Replay, and report a failing kernel where its stream is waited for, as a GPU does.
void Graph::replay(Stream stream) const {
  try {
    simt::enqueue(stream, [nodes = impl_->nodes] {
      for (const auto& node : *nodes) node();
    });
  } catch (...) {
    if (!stream) throw;
    if (!stream->failure) stream->failure = std::current_exception();
  }
}

std::size_t Graph::num_nodes() const { return impl_->nodes->size(); }
Graph::Edges Graph::edges() const { return {}; }

}  // namespace ladder
