#include "python/csrc/machine.h"

namespace ladder::python {

Workspace::Workspace(const Tensor& like, std::size_t bytes, bool marks) {
  constexpr std::uintptr_t kAlignment = 256;
  if (bytes == 0) return;
  memory_ = empty(like, {static_cast<std::int64_t>(bytes + kAlignment)}, ScalarType::Byte);
  if (marks) torch::stable::zero_(*memory_);
  const auto address = reinterpret_cast<std::uintptr_t>(memory_->mutable_data_ptr());
  pointer_ = reinterpret_cast<void*>((address + kAlignment - 1) / kAlignment * kAlignment);
}

}  // namespace ladder::python
