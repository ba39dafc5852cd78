// Static race check of a program's branches: pairs of operations without an order that touch the same bytes, at least
// one of them writing.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/program.h"

namespace ladder::test {

inline bool touch_the_same(const Program& program, int a, int b) {
  const Tape& tape = program.tape();
  const Operation &x = tape.operations()[a], &y = tape.operations()[b];
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    for (std::size_t j = 0; j < y.values.size(); ++j) {
      const TensorSpec &of_x = x.problem.tensors[i], &of_y = y.problem.tensors[j];
      if (!of_x.is_written() && !of_y.is_written()) continue;
      const auto* const at_x = static_cast<const std::byte*>(program.address(x.values[i]));
      const auto* const at_y = static_cast<const std::byte*>(program.address(y.values[j]));
      if (at_x < at_y + of_y.bytes() && at_y < at_x + of_x.bytes()) return true;
    }
  }
  return program.workspace(a) == program.workspace(b);
}

// Returns "a and b" for each such pair, given `slots`, which a test may have spoiled, and the addresses of `program`.
inline std::vector<std::string> unordered_pairs(const Program& program, const std::vector<StreamSlot>& slots) {
  const int count = static_cast<int>(slots.size());
  // ended[i][j]: operation j has ended before operation i begins.
  std::vector<std::vector<bool>> ended(count, std::vector<bool>(count, false));
  int newest[2] = {kNothing, kNothing};  // newest operation of each stream
  std::vector<std::string> found;
  for (int i = 0; i < count; ++i) {
    int& in_front = newest[slots[i].side_stream ? 1 : 0];
    for (const int before : {in_front, slots[i].waits_for}) {
      if (before < 0) continue;
      for (int j = 0; j <= before; ++j) ended[i][j] = ended[i][j] || ended[before][j] || j == before;
    }
    in_front = i;
    const auto& operations = program.tape().operations();
    for (int j = 0; j < i; ++j) {
      if (ended[i][j] || !touch_the_same(program, i, j)) continue;
      found.push_back(operations[j].name + " and " + operations[i].name);
    }
  }
  return found;
}

}  // namespace ladder::test
