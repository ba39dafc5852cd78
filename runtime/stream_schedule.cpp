#include "runtime/stream_schedule.h"

#include <algorithm>
#include <deque>
#include <utility>

namespace ladder {
namespace {

// Returns true if two values share a byte. A value outside regions has no address yet: it shares only with itself.
bool share_bytes(const Tape& tape, ValueId a, ValueId b) {
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
      if (written && share_bytes(tape, a.values[i], b.values[j])) return true;
    }
  }
  return false;
}

Tape hoist_side_stream(Tape tape) {
  std::vector<Operation> order;
  for (const Operation& operation : tape.operations()) {
    auto position = order.end();
    if (operation.side_stream) {
      const auto latest = std::find_if(order.rbegin(), order.rend(),
                                       [&](const Operation& before) { return in_order(tape, before, operation); });
      if (!std::all_of(latest.base(), order.end(), [](const Operation& passed) { return passed.side_stream; })) {
        position = latest.base();
      }
    }
    order.insert(position, operation);
  }
  tape.set_operations(std::move(order));
  return tape;
}

namespace {

// Limit of the bytes that side-stream operations keep alive in the arena. Beyond the limit, the main stream waits for
// the oldest of these operations.
constexpr std::size_t kMaxResidentBytes = std::size_t{96} << 20;

// Returns the bytes of the operation's values that lie in no region.
std::size_t arena_bytes(const Tape& tape, const Operation& operation) {
  std::size_t bytes = 0;
  for (const ValueId id : operation.values) bytes += tape[id].region == nullptr ? tape[id].bytes() : 0;
  return bytes;
}

}  // namespace

std::vector<StreamSlot> plan_streams(const Tape& tape, bool branches) {
  const auto& operations = tape.operations();
  const int count = static_cast<int>(operations.size());
  std::vector<StreamSlot> slots(count);
  int waited_for[2] = {kNothing, kNothing};  // main, side stream: latest operation of the other that it waited for
  std::deque<int> running;                   // side-stream operations that the main stream has not waited for
  std::size_t resident_bytes = 0;            // bytes of the values of `running`
  int joined = 0;                            // `last` is final for operations [0, joined)
  // Sets `last` of the side-stream operations [joined, end): they may overlap main-stream operations up to `at`.
  const auto join = [&](int end, int last) {
    for (; joined < end; ++joined) {
      if (slots[joined].side_stream) slots[joined].last = last;
    }
  };
  for (int i = 0; i < count; ++i) {
    StreamSlot& slot = slots[i];
    slot.side_stream = branches && operations[i].side_stream;
    // Latest operation of the other stream to wait for. A side-stream operation waits at least for kBegin.
    int latest = slot.side_stream ? kBegin : kNothing;
    for (int j = 0; j < i; ++j) {
      if (slots[j].side_stream != slot.side_stream && in_order(tape, operations[i], operations[j])) latest = j;
    }
    if (slot.side_stream) {
      running.push_back(i);
      resident_bytes += arena_bytes(tape, operations[i]);
    }
    while (!slot.side_stream && !running.empty() && (resident_bytes > kMaxResidentBytes || running.front() <= latest)) {
      latest = std::max(latest, running.front());
      resident_bytes -= arena_bytes(tape, operations[running.front()]);
      running.pop_front();
    }
    int& before = waited_for[slot.side_stream ? 1 : 0];
    if (latest > before) slot.waits_for = before = latest;
    slot.first = slot.side_stream ? before + 1 : i;
    slot.last = i;
    if (!slot.side_stream && slot.waits_for >= 0) join(slot.waits_for + 1, i - 1);
  }
  join(count, count - 1);
  return slots;
}

}  // namespace ladder
