#include <cuda_runtime_api.h>
#include <torch/csrc/stable/accelerator.h>

#include "core/cuda_check.h"
#include "python/csrc/machine.h"

// Declared in PyTorch's shim.h only where CUDA's headers are on its path.
extern "C" AOTITorchError aoti_torch_get_current_cuda_stream(std::int32_t device_index, void** ret_stream);

namespace ladder::python {
namespace {

// Scope that allows loading kernels: a kernel's first launch loads it, which a stream capture elsewhere in the process
// would forbid.
class LoadingAllowed {
 public:
  LoadingAllowed() { LADDER_CUDA(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  ~LoadingAllowed() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  LoadingAllowed(const LoadingAllowed&) = delete;
  LoadingAllowed& operator=(const LoadingAllowed&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace

struct CurrentDevice::State {
  explicit State(int device) : number(device), guard(device) {}
  int number;
  torch::stable::accelerator::DeviceGuard guard;
  LoadingAllowed loading_allowed;
};

CurrentDevice::CurrentDevice(int index) : state_(std::make_unique<State>(index)) {}
CurrentDevice::~CurrentDevice() = default;

int CurrentDevice::number() const { return state_->number; }

Stream CurrentDevice::stream() const {
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(state_->number, &stream));
  return static_cast<Stream>(stream);
}

}  // namespace ladder::python
