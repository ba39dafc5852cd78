// A tape made ready to run: a version chosen for every operation, addresses given to every value, kernels bound.
// Running it enqueues and does nothing else, so that it can be captured into a graph.
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
#include "runtime/tape.h"
#include "runtime/turns.h"

namespace ladder {

class Program {
 public:
  // Throws Failure where no version runs an operation here. The regions of the tape's values must outlive the program.
  // With `branches`, operations marked `beside` run on a stream of the program's own.
  Program(Tape tape, const Promotions& promotions, bool branches = true);

  // All operations in the order of the tape, but for branches; after(operation) is called after each.
  void enqueue(Stream stream, const std::function<void(std::size_t)>& after = {}) const {
    enqueue_first(launches_.size(), stream, after);
  }
  void enqueue_first(std::size_t count, Stream stream, const std::function<void(std::size_t)>& after = {}) const;

  // The same, without branches; before it the arena is filled with NaN bytes, after each operation what nobody reads any more. Values
  // come out as from enqueue(), bit for bit, unless one is read before it was written or after it was given up.
  void enqueue_poisoned(Stream stream) const;

  // One of the operations alone. All throw Failure naming the operation whose launch is refused.
  void enqueue(std::size_t operation, Stream stream) const;

  const Tape& tape() const { return tape_; }
  const VersionChoice& choice(std::size_t operation) const { return choices_[operation]; }
  std::size_t bytes() const;  // of device memory that the program itself holds: arena and workspaces

  // Where a value lies. One in the arena holds what was written to it only while operations read it.
  void* address(ValueId id) const { return addresses_[id]; }
  void* workspace(std::size_t operation) const { return workspaces_[operation]; }
  const std::vector<Turn>& turns() const { return turns_; }  // by operation

 private:
  struct Range {
    std::size_t begin = 0;
    std::size_t bytes = 0;
  };

  void place();
  void bind(const Promotions& promotions);

  Tape tape_;
  std::vector<Turn> turns_;
  OwnedRegion arena_;
  std::vector<std::unique_ptr<OwnedRegion>> in_parts_;  // values that several operations write parts of
  // Of all kernels that need none of their own: those of the tape's stream, those beside it.
  std::array<std::unique_ptr<OwnedRegion>, 2> shared_workspaces_;
  std::vector<std::unique_ptr<OwnedRegion>> private_workspaces_;
  std::vector<void*> addresses_;              // by value
  std::vector<void*> workspaces_;             // by operation
  std::vector<std::vector<Range>> given_up_;  // by operation: of the arena, after it
  std::vector<VersionChoice> choices_;        // by operation
  std::vector<BoundLaunch> launches_;         // by operation
  std::optional<OwnedStream> beside_;         // where any operation is
  mutable Event begun_;
  std::vector<std::unique_ptr<Event>> ended_;  // by operation; null where none of the other stream waits for it
  mutable Event joined_;
};

}  // namespace ladder
