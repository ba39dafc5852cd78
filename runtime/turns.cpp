#include "runtime/turns.h"

namespace ladder {
namespace {

// Whether two values share a byte.
bool share(const Tape& tape, ValueId a, ValueId b) {
  if (a == b) return true;
  const Value &x = tape[a], &y = tape[b];
  if (x.region == nullptr || y.region == nullptr) return false;
  const auto* const x_begin = static_cast<const std::byte*>(x.region->base) + x.offset;
  const auto* const y_begin = static_cast<const std::byte*>(y.region->base) + y.offset;
  return x_begin < y_begin + y.bytes() && y_begin < x_begin + x.bytes();
}

}  // namespace

bool in_order(const Tape& tape, const Operation& a, const Operation& b) {
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    for (std::size_t j = 0; j < b.values.size(); ++j) {
      const bool written = a.problem.tensors[i].is_written() || b.problem.tensors[j].is_written();
      if (written && share(tape, a.values[i], b.values[j])) return true;
    }
  }
  return false;
}

std::vector<Turn> plan_turns(const Tape& tape, bool branches) {
  const auto& operations = tape.operations();
  const int count = static_cast<int>(operations.size());
  std::vector<Turn> turns(count);
  int waited_for[2] = {kNothing, kNothing};  // by stream: the latest of the other
  int joined = 0;                            // operations that the tape's own stream has waited for, or are its own
  const auto join = [&](int end, int at) {
    for (; joined < end; ++joined) {
      if (turns[joined].beside) turns[joined].last = at;
    }
  };
  for (int i = 0; i < count; ++i) {
    Turn& turn = turns[i];
    turn.beside = branches && operations[i].beside;
    int latest = turn.beside ? kBegin : kNothing;
    for (int j = 0; j < i; ++j) {
      if (turns[j].beside != turn.beside && in_order(tape, operations[i], operations[j])) latest = j;
    }
    int& before = waited_for[turn.beside ? 1 : 0];
    if (latest > before) turn.waits_for = before = latest;
    turn.first = turn.beside ? before + 1 : i;
    turn.last = i;
    if (!turn.beside && turn.waits_for >= 0) join(turn.waits_for + 1, i - 1);
  }
  join(count, count - 1);
  return turns;
}

}  // namespace ladder
