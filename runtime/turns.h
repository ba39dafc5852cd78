// Order of a tape's operations on two streams: those marked `beside` run on a side stream, the others on the main
// stream. An operation of either stream waits for those of the other that it shares a value with.
#pragma once

#include <vector>

#include "runtime/tape.h"

namespace ladder {

inline constexpr int kBegin = -1;    // the work enqueued before the program
inline constexpr int kNothing = -2;  // no operation at all

struct Turn {
  bool beside = false;
  // Operation of the other stream, or kBegin, whose end this one waits for, besides the previous operation of its own
  // stream.
  int waits_for = kNothing;
  // Main-stream operations [first, last] may overlap this side-stream operation. For a main-stream operation both are
  // its own index.
  int first = 0;
  int last = 0;
};

// Returns true if the order of the two matters: one of them writes what the other touches.
bool in_order(const Tape& tape, const Operation& a, const Operation& b);

// Returns the tape with each side-stream operation moved in front of all that it need not wait for, if any of those is
// on the main stream. Late on the side stream it would wait for the other work there, and the end of the program would
// wait for it.
Tape beside_early(Tape tape);

// Returns a Turn for each operation. If side-stream operations keep more than 96 MiB of the arena alive, the main
// stream waits for the first of them; at the end of the program, for all. Without `branches` all operations run on the
// main stream.
std::vector<Turn> plan_turns(const Tape& tape, bool branches);

}  // namespace ladder
