// A tape made ready to run: a version chosen for every operation, addresses given to every value, kernels bound.
// Running it enqueues and does nothing else, so that it can be captured into a graph.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/kernel.h"
#include "core/stream.h"
#include "runtime/promoted.h"
#include "runtime/tape.h"

namespace ladder {

class Program {
 public:
  // Throws Failure where no version runs an operation here. The regions of the tape's values must outlive the program.
  Program(Tape tape, const Promotions& promotions);

  // All operations in the order of the tape.
  void enqueue(Stream stream) const;

  // The same; before it the arena is filled with NaN bytes, after each operation what nobody reads any more. Values
  // come out as from enqueue(), bit for bit, unless one is read before it was written or after it was given up.
  void enqueue_poisoned(Stream stream) const;

  // One of the operations alone. All throw Failure naming the operation whose launch is refused.
  void enqueue(std::size_t operation, Stream stream) const;

  const Tape& tape() const { return tape_; }
  const VersionChoice& choice(std::size_t operation) const { return choices_[operation]; }
  std::size_t bytes() const;  // of device memory that the program itself holds: arena and workspaces

  // Where a value lies. One in the arena holds what was written to it only while operations read it.
  void* address(ValueId id) const { return addresses_[id]; }

 private:
  struct Range {
    std::size_t begin = 0;
    std::size_t bytes = 0;
  };

  void place();
  void bind(const Promotions& promotions);

  Tape tape_;
  OwnedRegion arena_;
  std::vector<std::unique_ptr<OwnedRegion>> in_parts_;  // values that several operations write parts of
  std::unique_ptr<OwnedRegion> workspace_;              // of all kernels that need none of their own
  std::vector<std::unique_ptr<OwnedRegion>> private_workspaces_;
  std::vector<void*> addresses_;              // by value
  std::vector<std::vector<Range>> given_up_;  // by operation: of the arena, after it
  std::vector<VersionChoice> choices_;        // by operation
  std::vector<BoundLaunch> launches_;         // by operation
};

}  // namespace ladder
