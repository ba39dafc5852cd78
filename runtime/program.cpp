#include "runtime/program.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/backend.h"
#include "core/early_tensors.h"
#include "core/error.h"
#include "core/graph.h"
#include "runtime/arena.h"
#include "runtime/early_weights.h"

namespace ladder {
namespace {

struct Placement {
  ArenaPlan plan;
  std::vector<ValueId> values;  // those of the arena, in the order of the plan's offsets
  std::vector<Lifetime> lifetimes;
};

// A value that an operation beside the others touches is kept while any of these may run at the same time.
Placement placement(const Tape& tape, const std::vector<StreamSlot>& slots) {
  constexpr int kNever = -1;
  std::vector<Lifetime> uses(tape.values().size(), {.first = kNever, .last = kNever});
  const auto& operations = tape.operations();
  for (int i = 0; i < static_cast<int>(operations.size()); ++i) {
    const Operation& operation = operations[i];
    for (std::size_t j = 0; j < operation.values.size(); ++j) {
      const ValueId id = operation.values[j];
      if (tape[id].region != nullptr || tape[id].in_parts) continue;
      Lifetime& use = uses[id];
      if (use.first == kNever) {
        const TensorSpec& spec = operation.problem.tensors[j];
        if (spec.role != Role::output) {
          throw Failure(operation.name + " reads " + tape[id].name + " before anything has written it");
        }
        use.first = slots[i].first;
      }
      use.first = std::min(use.first, slots[i].first);
      use.last = std::max(use.last, slots[i].last);
    }
  }
  Placement placed;
  for (ValueId id = 0; id < static_cast<ValueId>(uses.size()); ++id) {
    if (uses[id].first == kNever) continue;
    uses[id].bytes = tape[id].bytes();
    placed.values.push_back(id);
    placed.lifetimes.push_back(uses[id]);
  }
  placed.plan = plan_arena(placed.lifetimes);
  return placed;
}

}  // namespace

Program::Program(Tape tape, const Promotions& promotions, bool branches)
    : tape_(std::move(tape)),
      slots_(plan_streams(tape_, branches)),
      arena_("arena", placement(tape_, slots_).plan.bytes),
      ended_(slots_.size()) {
  assign_addresses();
  bind(promotions);
  for (const StreamSlot& slot : slots_) {
    if (slot.side_stream && !side_stream_) side_stream_.emplace();
    if (slot.waits_for >= 0 && !ended_[slot.waits_for]) ended_[slot.waits_for] = std::make_unique<Event>();
  }
}

void Program::assign_addresses() {
  const Placement placed = placement(tape_, slots_);
  addresses_.resize(tape_.values().size(), nullptr);
  given_up_.resize(tape_.operations().size());
  for (std::size_t i = 0; i < placed.values.size(); ++i) {
    addresses_[placed.values[i]] = static_cast<std::byte*>(arena_.base) + placed.plan.offsets[i];
    given_up_[placed.lifetimes[i].last].push_back({placed.plan.offsets[i], placed.lifetimes[i].bytes});
  }
  for (std::size_t id = 0; id < addresses_.size(); ++id) {
    const Value& value = tape_[static_cast<ValueId>(id)];
    if (value.in_parts) {
      in_parts_.push_back(std::make_unique<OwnedRegion>(value.name, value.bytes()));
      addresses_[id] = in_parts_.back()->base;
    }
    if (value.region == nullptr) continue;
    LADDER_CHECK(value.offset + value.bytes() <= value.region->bytes, value.name + " in " + value.region->name);
    addresses_[id] = static_cast<std::byte*>(value.region->base) + value.offset;
  }
}

void Program::bind(const Promotions& promotions) {
  std::vector<Kernel> kernels;
  std::array<std::size_t, 2> shared_bytes = {};
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Case& problem = tape_.operations()[i].problem;
    choices_.push_back(promotions.choose(problem));
    kernels.push_back(plan(*choices_.back().version, problem));
    std::size_t& bytes = shared_bytes[slots_[i].side_stream ? 1 : 0];
    if (!kernels.back().private_workspace) bytes = std::max(bytes, kernels.back().workspace_bytes);
  }
  const std::vector<std::vector<const void*>> early = early_weights(tape_, addresses_);
  for (int i : {0, 1}) shared_workspaces_[i] = std::make_unique<OwnedRegion>("workspace", shared_bytes[i]);
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    const Operation& operation = tape_.operations()[i];
    void* workspace = shared_workspaces_[slots_[i].side_stream ? 1 : 0]->base;
    if (kernels[i].private_workspace) {
      private_workspaces_.push_back(std::make_unique<OwnedRegion>(operation.name, kernels[i].workspace_bytes));
      workspace = private_workspaces_.back()->base;
    }
    workspaces_.push_back(workspace);
    std::vector<void*> pointers;
    for (const ValueId id : operation.values) pointers.push_back(addresses_[id]);
    const EarlyTensors loaded_early(early[i]);
    launches_.push_back(kernels[i].bind(Pointers(operation.problem.tensors, pointers.data()), workspace));
  }
}

void Program::enqueue_first(std::size_t count, Stream stream, const std::function<void(std::size_t)>& after) const {
  if (side_stream_) begun_.record(stream);
  for (std::size_t i = 0; i < count; ++i) {
    const StreamSlot& slot = slots_[i];
    const Stream on = stream_of(i, stream);
    if (slot.waits_for != kNothing) (slot.waits_for == kBegin ? begun_ : *ended_[slot.waits_for]).hold_back(on);
    enqueue(i, on);
    if (ended_[i]) ended_[i]->record(on);
    if (after) after(i);
  }
  if (!side_stream_) return;
  joined_.record(*side_stream_);
  joined_.hold_back(stream);
}

void Program::enqueue(std::size_t operation, Stream stream) const {
  try {
    launches_[operation](stream);
  } catch (const Failure& failure) {
    const Case& problem = tape_.operations()[operation].problem;
    throw Failure(fmt::format("{}: {}/{} '{}': {}", tape_.operations()[operation].name, problem.pass->path(),
                              choices_[operation].version->label(), problem.text, failure.what()));
  }
}

void Program::enqueue_poisoned(Stream stream) const {
  constexpr int kNanByte = 0xff;
  set_bytes_async(arena_.base, kNanByte, arena_.bytes, stream);
  for (std::size_t i = 0; i < launches_.size(); ++i) {
    enqueue(i, stream);
    for (const Range& range : given_up_[i]) {
      set_bytes_async(static_cast<std::byte*>(arena_.base) + range.begin, kNanByte, range.bytes, stream);
    }
  }
}

std::size_t Program::bytes() const {
  std::size_t sum = arena_.bytes;
  for (const auto& workspace : shared_workspaces_) sum += workspace->bytes;
  for (const auto* regions : {&private_workspaces_, &in_parts_}) {
    for (const auto& region : *regions) sum += region->bytes;
  }
  return sum;
}

}  // namespace ladder
