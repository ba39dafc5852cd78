#include "core/early_tensors.h"

#include <algorithm>
#include <atomic>
#include <utility>

namespace ladder {
namespace {

std::atomic<bool> allowed{true};
thread_local std::vector<const void*> declared;

}  // namespace

EarlyTensors::EarlyTensors(std::vector<const void*> tensors) : before_(std::exchange(declared, std::move(tensors))) {}
EarlyTensors::~EarlyTensors() { declared = std::move(before_); }

bool loads_early(const void* tensor) { return allowed && std::ranges::find(declared, tensor) != declared.end(); }

void load_early(bool on) { allowed = on; }

bool is_weights(const TensorSpec& spec) { return spec.role == Role::input && spec.name == "w"; }

}  // namespace ladder
