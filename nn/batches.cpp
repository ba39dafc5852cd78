#include "nn/batches.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "dev/conv3x3/conv3x3.h"
#include "dev/gemm/gemm.h"
#include "runtime/stream_schedule.h"

namespace ladder::nn {
namespace {

constexpr std::size_t kMostBytes = std::size_t{64} << 20;

// Minimum number of 64 x 64-channel tiles in a group: at most eight thread blocks share a tile, so fewer tiles leave
// most SMs idle.
constexpr std::size_t kLeastTiles = 8;

// Returns whether the operation can be delayed to position `until`: no operation in between depends on its order.
bool can_wait(const Tape& tape, std::size_t operation, std::size_t until) {
  const auto& all = tape.operations();
  for (std::size_t i = operation + 1; i < until; ++i) {
    if (in_order(tape, all[operation], all[i])) return false;
  }
  return true;
}

std::size_t input_bytes(const Operation& operation) {
  std::size_t sum = 0;
  for (const TensorSpec& spec : operation.problem.tensors) sum += spec.is_read() ? spec.bytes() : 0;
  return sum;
}

// A pass and its batched pass, which runs several of its problems as one operation.
struct Kind {
  const Pass* single;
  std::size_t most;
  std::size_t taps;  // weights per (input channel, output channel) pair
  Case (*together)(const Case& single, std::size_t count);
};

template <class Single, class Batch>
Kind kind(std::size_t most, std::size_t taps) {
  return {
      .single = &pass_of<Single>(), .most = most, .taps = taps, .together = [](const Case& single, std::size_t count) {
        auto problem = *static_cast<const typename Single::Problem*>(single.problem.get());
        problem.batch = static_cast<int>(count);
        return case_of<Batch>(problem);
      }};
}

struct Group {
  const Kind* kind = nullptr;
  std::vector<std::size_t> members;  // operations, in the tape's order
};

// Returns null where the operation is not batched.
const Kind* kind_of(const Operation& operation, const Promotions& promotions) {
  static const Kind kinds[] = {kind<conv3x3::Wgrad, conv3x3::WgradBatch>(conv3x3::kMaxBatch, 9),
                               kind<gemm::Wgrad, gemm::WgradBatch>(gemm::kMaxBatch, 1)};
  const Case& problem = operation.problem;
  for (const Kind& kind : kinds) {
    if (problem.pass != kind.single || size_of(problem.dtype) != 2) continue;
    if (promotions.choose(problem).reason == "--use") return nullptr;
    // Batching gains nothing where the naive version (number 1) would run the batch.
    return promotions.choose(kind.together(problem, 2)).version->number > 1 ? &kind : nullptr;
  }
  return nullptr;
}

bool fills_the_card(const Tape& tape, const Group& group) {
  if (group.members.size() < 2) return false;
  const Operation& first = tape.operations()[group.members.front()];
  const std::size_t weights = first.problem.tensor("dw").elements() / group.kind->taps;
  return group.members.size() * weights >= kLeastTiles * 64 * 64;
}

// Groups of operations that can run together and have enough tiles to be worth it.
std::vector<Group> groups_of(const Tape& tape, const Promotions& promotions) {
  std::map<std::string, Group> open;  // by pass and problem
  std::vector<Group> closed;
  const auto& all = tape.operations();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Kind* const kind = kind_of(all[i], promotions);
    if (!kind) continue;
    Group& group = open[all[i].problem.pass->path() + all[i].problem.text];
    const std::size_t count = group.members.size();
    const bool full = count == kind->most || (count + 1) * input_bytes(all[i]) > kMostBytes;
    const auto waits = [&](std::size_t operation) { return can_wait(tape, operation, i); };
    if (full || !std::ranges::all_of(group.members, waits)) closed.push_back(std::exchange(group, {}));
    group.kind = kind;
    group.members.push_back(i);
  }
  for (auto& [problem, group] : open) closed.push_back(std::move(group));
  std::erase_if(closed, [&](const Group& group) { return !fills_the_card(tape, group); });
  return closed;
}

Operation together(const Tape& tape, const Group& group) {
  const Operation& first = tape.operations()[group.members.front()];
  Operation all{.name = "",
                .problem = group.kind->together(first.problem, group.members.size()),
                .values = {},
                .side_stream = first.side_stream};
  for (const std::size_t i : group.members) {
    const Operation& operation = tape.operations()[i];
    all.name += (all.name.empty() ? "" : ", ") + operation.name;
    all.values.insert(all.values.end(), operation.values.begin(), operation.values.end());
  }
  return all;
}

}  // namespace

Tape with_batches(Tape tape, const Promotions& promotions) {
  std::map<std::size_t, Operation> in_place;  // by the index of a group's last member
  std::vector<bool> moved(tape.operations().size());
  for (const Group& group : groups_of(tape, promotions)) {
    in_place.emplace(group.members.back(), together(tape, group));
    for (const std::size_t i : group.members) moved[i] = true;
  }
  std::vector<Operation> operations;
  for (std::size_t i = 0; i < moved.size(); ++i) {
    if (const auto batch = in_place.find(i); batch != in_place.end()) {
      operations.push_back(std::move(batch->second));
    } else if (!moved[i]) {
      operations.push_back(tape.operations()[i]);
    }
  }
  tape.set_operations(std::move(operations));
  return tape;
}

}  // namespace ladder::nn
