// Streams, events, asynchronous copies, and graphs: a sequence of launches recorded once and replayed. On the emulator
// work runs when it is enqueued, so that streams and events have nothing to order; a graph there is the list of what
// was enqueued.
//
//     OwnedStream stream;
//     const Graph graph = Graph::capture([&](Stream on) { first(on); second(on); });
//     graph.replay(stream);
//     stream.synchronize();
//
// Kernels load at their first launch, which a capture does not allow: run the work once before it is captured.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "core/stream.h"

namespace ladder {

// A stream that neither waits for the default stream nor the default stream for it.
class OwnedStream {
 public:
  OwnedStream();
  ~OwnedStream();
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;

  operator Stream() const { return stream_; }  // NOLINT(google-explicit-constructor): it is one
  void synchronize() const;                    // waits for what was enqueued; throws Failure if it failed

 private:
  Stream stream_ = nullptr;
};

// A point in a stream. Recorded in a stream that is being captured, it takes the streams that wait for it into the
// capture.
class Event {
 public:
  Event();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(Stream stream);
  void mark(Stream stream);             // the same, but recorded anew by every replay of a graph that it is in
  void hold_back(Stream stream) const;  // what is enqueued there next waits until the event has passed
  void synchronize() const;             // until the event has passed
  double seconds_since(const Event& before) const;  // both passed; the emulator's by the host's clock

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Host memory that asynchronous copies take without a detour.
class PinnedBuffer {
 public:
  explicit PinnedBuffer(std::size_t bytes);
  ~PinnedBuffer();
  PinnedBuffer(const PinnedBuffer&) = delete;
  PinnedBuffer& operator=(const PinnedBuffer&) = delete;

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Enqueue a copy: host to device, device to host, within the device; bytes all of one value. Host memory must be pinned
// for the host not to wait, and stay until the copy is done.
void copy_in_async(void* device, const void* host, std::size_t bytes, Stream stream);
void copy_out_async(void* host, const void* device, std::size_t bytes, Stream stream);
void copy_async(void* to, const void* from, std::size_t bytes, Stream stream);
void set_bytes_async(void* device, int byte, std::size_t bytes, Stream stream);

// The nodes of the capture that `stream` is in, by handles that KernelRecords knows (core/kernel_records.h).
std::vector<const void*> captured_nodes(Stream stream);

// What a function enqueued, to be enqueued again as a whole.
class Graph {
 public:
  // Calls `enqueue` with a stream on which nothing runs yet. It may use other streams that wait for an Event recorded
  // in that one, and must have that one wait for them in the end. Throws Failure where something cannot be captured.
  static Graph capture(const std::function<void(Stream)>& enqueue);

  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;
  ~Graph();

  void replay(Stream stream) const;
  std::size_t num_nodes() const;  // launches, copies and fills

  // Along a programmatic edge a launch may begin before the one in front has ended. The emulator has neither.
  struct Edges {
    std::size_t plain = 0;
    std::size_t programmatic = 0;
  };
  Edges edges() const;

 private:
  struct Impl;
  explicit Graph(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ladder
