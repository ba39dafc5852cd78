#include <memory>

#include "python/csrc/machine.h"

namespace ladder::python {

Workspace::Workspace(const Tensor& like, std::size_t bytes, bool marks) {
  constexpr std::size_t kAlignment = 256;
  if (bytes == 0) return;
  memory_ = empty(like, {static_cast<std::int64_t>(bytes + kAlignment)}, ScalarType::Byte);
  if (marks) torch::stable::zero_(*memory_);
  void* begin = memory_->mutable_data_ptr();
  std::size_t space = bytes + kAlignment;
  pointer_ = std::align(kAlignment, bytes, begin, space);
}

}  // namespace ladder::python
