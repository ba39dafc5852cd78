// A tape made ready to run: every operation has a version, every value an address, and the kernels are bound. Running
// the program only enqueues, so that it can be captured into a graph.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/graph.h"
#include "core/kernel.h"
#include "core/stream.h"
#include "runtime/promoted.h"
#include "runtime/stream_schedule.h"
#include "runtime/tape.h"

namespace ladder {

class Program {
 public:
  // Prepare a tape. Throws Failure if no version runs an operation here. The regions of the tape's values must outlive
  // the program. With `branches`, operations marked `side_stream` run on a side stream, which the program owns.
  Program(Tape tape, const Promotions& promotions, bool branches = true);

  // Enqueue all operations in the order of the tape, those marked `side_stream` on the side stream; after(operation) is
  // called after each is enqueued.
  void enqueue(Stream stream, const std::function<void(std::size_t)>& after = {}) const {
    enqueue_first(launches_.size(), stream, after);
  }
  void enqueue_first(std::size_t count, Stream stream, const std::function<void(std::size_t)>& after = {}) const;

  // Enqueue all operations without branches, into an arena filled with NaN bytes. After each operation, ranges of the
  // arena that nobody reads any more are filled again. Values come out as from enqueue(), bit for bit, unless a value
  // is read before it was written or after it was given up.
  void enqueue_poisoned(Stream stream) const;

  // Enqueue one operation alone. All enqueue functions throw Failure naming the operation whose launch is refused.
  void enqueue(std::size_t operation, Stream stream) const;

  const Tape& tape() const { return tape_; }
  const VersionChoice& choice(std::size_t operation) const { return choices_[operation]; }
  std::size_t bytes() const;  // of device memory that the program itself holds: arena and workspaces

  // Device address of a value. A value in the arena keeps what was written to it only while operations read it.
  void* address(ValueId id) const { return addresses_[id]; }
  void* workspace(std::size_t operation) const { return workspaces_[operation]; }
  const std::vector<StreamSlot>& slots() const { return slots_; }  // by operation
  // The stream that enqueue(stream) puts an operation on.
  Stream stream_of(std::size_t operation, Stream stream) const {
    return slots_[operation].side_stream ? Stream(*side_stream_) : stream;
  }

 private:
  struct Range {
    std::size_t begin = 0;
    std::size_t bytes = 0;
  };

  void assign_addresses();
  void bind(const Promotions& promotions);

  Tape tape_;
  std::vector<StreamSlot> slots_;
  OwnedRegion arena_;
  std::vector<std::unique_ptr<OwnedRegion>> in_parts_;  // values that several operations write parts of
  // Workspaces shared by all kernels without a private one: [0] on the main stream, [1] on the side stream.
  std::array<std::unique_ptr<OwnedRegion>, 2> shared_workspaces_;
  std::vector<std::unique_ptr<OwnedRegion>> private_workspaces_;
  std::vector<void*> addresses_;              // by value
  std::vector<void*> workspaces_;             // by operation
  std::vector<std::vector<Range>> given_up_;  // by operation: arena ranges that nobody reads after it
  std::vector<VersionChoice> choices_;        // by operation
  std::vector<BoundLaunch> launches_;         // by operation
  std::optional<OwnedStream> side_stream_;    // side stream, if any operation runs there
  mutable Event begun_;
  std::vector<std::unique_ptr<Event>> ended_;  // by operation; null if the other stream does not wait for it
  mutable Event joined_;
};

}  // namespace ladder
