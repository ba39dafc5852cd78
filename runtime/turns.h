// When the operations of a tape run: those marked `beside` on a stream of their own, each of either stream after those of the
// other that it shares a value with.
#pragma once

#include <vector>

#include "runtime/tape.h"

namespace ladder {

inline constexpr int kBegin = -1;    // what was enqueued before the program
inline constexpr int kNothing = -2;  // no operation at all

struct Turn {
  bool beside = false;
  // The operation of the other stream, or kBegin, whose end it waits for besides the operation in front of it on its own.
  int waits_for = kNothing;
  // Of those of the tape's own stream, the first and the last that may run at the same time; of one of these, itself.
  int first = 0;
  int last = 0;
};

// Whether the order of the two matters: one of them writes what the other touches.
bool in_order(const Tape& tape, const Operation& a, const Operation& b);

// The tape with operations that may run beside the others in front of all that they need not wait for, if any of those is not
// beside: on a stream of their own they would wait for what else is on it, and be what the end of the program waits for.
Tape beside_early(Tape tape);

// One for each operation. Where operations beside keep more than 96 MiB of the arena alive, the tape's own stream waits for the
// first of them; at the end of the program, for all. Without `branches` all are in
// one line.
std::vector<Turn> plan_turns(const Tape& tape, bool branches);

}  // namespace ladder
