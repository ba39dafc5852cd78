#include "runtime/turns.h"

#include <algorithm>
#include <deque>
#include <utility>

namespace ladder {
namespace {

// Returns true if two values share a byte. A value outside regions has no address yet: it shares only with itself.
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

Tape beside_early(Tape tape) {
  std::vector<Operation> order;
  for (const Operation& each : tape.operations()) {
    auto place = order.end();
    if (each.beside) {
      const auto latest = std::find_if(order.rbegin(), order.rend(),
                                       [&](const Operation& before) { return in_order(tape, before, each); });
      if (!std::all_of(latest.base(), order.end(), [](const Operation& passed) { return passed.beside; })) {
        place = latest.base();
      }
    }
    order.insert(place, each);
  }
  tape.set_operations(std::move(order));
  return tape;
}

namespace {

// Limit of the bytes that side-stream operations keep alive in the arena. Beyond the limit, the main stream waits for
// the oldest of these operations.
constexpr std::size_t kMostHeld = std::size_t{96} << 20;

// Returns the bytes of the operation's values that lie in no region.
std::size_t held_by(const Tape& tape, const Operation& operation) {
  std::size_t bytes = 0;
  for (const ValueId id : operation.values) bytes += tape[id].region == nullptr ? tape[id].bytes() : 0;
  return bytes;
}

}  // namespace

std::vector<Turn> plan_turns(const Tape& tape, bool branches) {
  const auto& operations = tape.operations();
  const int count = static_cast<int>(operations.size());
  std::vector<Turn> turns(count);
  int waited_for[2] = {kNothing, kNothing};  // main, side stream: latest operation of the other that it waited for
  std::deque<int> running;                   // side-stream operations that the main stream has not waited for
  std::size_t held = 0;                      // bytes of the values of `running`
  int joined = 0;                            // `last` is final for operations [0, joined)
  // Sets `last` of the side-stream operations [joined, end): they may overlap main-stream operations up to `at`.
  const auto join = [&](int end, int at) {
    for (; joined < end; ++joined) {
      if (turns[joined].beside) turns[joined].last = at;
    }
  };
  for (int i = 0; i < count; ++i) {
    Turn& turn = turns[i];
    turn.beside = branches && operations[i].beside;
    // Latest operation of the other stream to wait for. A side-stream operation waits at least for kBegin.
    int latest = turn.beside ? kBegin : kNothing;
    for (int j = 0; j < i; ++j) {
      if (turns[j].beside != turn.beside && in_order(tape, operations[i], operations[j])) latest = j;
    }
    if (turn.beside) {
      running.push_back(i);
      held += held_by(tape, operations[i]);
    }
    while (!turn.beside && !running.empty() && (held > kMostHeld || running.front() <= latest)) {
      latest = std::max(latest, running.front());
      held -= held_by(tape, operations[running.front()]);
      running.pop_front();
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
