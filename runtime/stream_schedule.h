// Schedule of a tape's operations on two streams: operations marked `side_stream` run on the side stream, the others on the
// main stream. Each stream runs its operations in the tape's order. An operation waits for an earlier one of the other
// stream if in_order() holds for the two.
#pragma once

#include <vector>

#include "runtime/tape.h"

namespace ladder {

// Values of StreamSlot::waits_for that are no operation's index.
inline constexpr int kBegin = -1;    // the work on the main stream before the program
inline constexpr int kNothing = -2;  // no wait

struct StreamSlot {
  bool side_stream = false;
  // The other stream's operation that must end before this one starts: an index, kBegin or kNothing. Operations of the
  // same stream need no wait.
  int waits_for = kNothing;
  // Main-stream operations [first, last] may overlap this side-stream operation. For a main-stream operation, `first`
  // and `last` are its own index.
  int first = 0;
  int last = 0;
};

// Returns true if a and b must keep their order: one of them writes bytes that the other reads or writes.
bool in_order(const Tape& tape, const Operation& a, const Operation& b);

// Returns the tape with each side-stream operation at its earliest place, right after the last operation that it must
// follow. An operation stays where the move would pass side-stream operations alone. Late in the tape, an operation
// queues on the side stream after unrelated ones and delays the end of the program: for example, the gradients of the
// time embedding after the last weight gradients.
Tape hoist_side_stream(Tape tape);

// Returns a StreamSlot for each operation. The arena holds a side-stream operation's values until the main stream has waited
// for that operation. If these values exceed 96 MiB, the main stream waits for the oldest such operations. At the end
// of the program it waits for all of them. Without `branches`, all operations run on the main stream.
std::vector<StreamSlot> plan_streams(const Tape& tape, bool branches);

}  // namespace ladder
