#include "core/dependent_launch.h"

#include <algorithm>
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

}  // namespace ladder
