#include "runtime/early_weights.h"

#include <algorithm>
#include <cstddef>

#include "core/early_tensors.h"

namespace ladder {

std::vector<std::vector<const void*>> early_weights(const Tape& tape, const std::vector<void*>& addresses) {
  constexpr std::size_t kFirst = 2;
  struct Written {
    const std::byte* begin;
    const std::byte* end;
  };
  std::vector<Written> written;
  std::vector<std::vector<const void*>> early(tape.operations().size());
  for (std::size_t i = 0; i < early.size(); ++i) {
    const Operation& operation = tape.operations()[i];
    for (std::size_t j = 0; j < operation.values.size(); ++j) {
      const TensorSpec& spec = operation.problem.tensors[j];
      const ValueId id = operation.values[j];
      if (tape[id].region == nullptr) continue;
      const auto* const begin = static_cast<const std::byte*>(addresses[id]);
      const std::byte* const end = begin + tape[id].bytes();
      const auto overlaps = [&](const Written& other) { return other.begin < end && begin < other.end; };
      if (spec.is_written()) {
        written.push_back({begin, end});
      } else if (is_weights(spec) && i >= kFirst && std::ranges::none_of(written, overlaps)) {
        early[i].push_back(begin);
      }
    }
  }
  return early;
}

}  // namespace ladder
