// Streams, events, asynchronous copies, and graphs: a sequence of launches recorded once and replayed. On the emulator
// work runs when it is enqueued, but under the schedule late, which keeps it until something waits for it; a graph there
// is the list of what was enqueued.
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
  void synchronize() const;                    // waits for enqueued work; throws Failure if any failed

 private:
  Stream stream_ = nullptr;
};

// A point in a stream. If the stream is being captured, streams that wait for the event join the capture.
class Event {
 public:
  Event();
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(Stream stream);
  void mark(Stream stream);                         // record(), repeated by every replay of a graph that has it
  void hold_back(Stream stream) const;              // later work on `stream` waits for the event
  void synchronize() const;                         // the host waits for the event
  double seconds_since(const Event& before) const;  // both have passed; host clock on the emulator

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Page-locked host memory, which asynchronous copies access directly.
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

// Enqueue a copy (host to device, device to host, within the device) or a fill with one byte value. The host waits
// unless host memory is pinned, which must stay valid until the copy is done.
void copy_in_async(void* device, const void* host, std::size_t bytes, Stream stream);
void copy_out_async(void* host, const void* device, std::size_t bytes, Stream stream);
void copy_async(void* to, const void* from, std::size_t bytes, Stream stream);
void set_bytes_async(void* device, int byte, std::size_t bytes, Stream stream);

// Run `function` on the host between the work before it on `stream` and the work after it; on a GPU on a thread of the
// driver, where it must call nothing of CUDA and must not throw. The stream keeps `function` until it has run; a graph that
// captured it, as long as the graph lives.
void run_on_host_async(std::function<void()> function, Stream stream);

// Nodes of the capture that `stream` is in, as handles for KernelRecords::id_of() (core/kernel_records.h).
std::vector<const void*> captured_nodes(Stream stream);

// A CUDA graph: work captured from a function and replayed as a whole.
class Graph {
 public:
  // Capture the work that `enqueue` puts on its stream. `enqueue` may use other streams that wait for an Event recorded
  // in that stream, which must wait for them in the end. Throws Failure if some call cannot be captured.
  static Graph capture(const std::function<void(Stream)>& enqueue);

  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;
  ~Graph();

  void replay(Stream stream) const;
  std::size_t num_nodes() const;  // launches, copies and fills

  // Numbers of edges. A launch at the end of a programmatic edge may begin before its predecessor has ended. Both are 0
  // on the emulator.
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
