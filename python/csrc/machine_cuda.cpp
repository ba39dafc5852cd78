#include <torch/csrc/stable/accelerator.h>

#include "python/csrc/machine.h"

// Declared in PyTorch's shim.h only where CUDA's headers are.
extern "C" AOTITorchError aoti_torch_get_current_cuda_stream(std::int32_t device_index, void** ret_stream);

namespace ladder::python {

struct DeviceOf::State {
  explicit State(int device) : number(device), guard(device) {}
  int number;
  torch::stable::accelerator::DeviceGuard guard;
};

DeviceOf::DeviceOf(const Tensor& x) : state_(std::make_unique<State>(x.get_device())) {}
DeviceOf::~DeviceOf() = default;

int DeviceOf::number() const { return state_->number; }

Stream DeviceOf::stream() const {
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(state_->number, &stream));
  return static_cast<Stream>(stream);
}

}  // namespace ladder::python
