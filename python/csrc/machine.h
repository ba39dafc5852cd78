// The device that kernels run on, with one interface for both builds: machine_cuda.cpp uses PyTorch's streams,
// machine_emulator.cpp adapts the emulator to a Python process.
#pragma once

#include <cstddef>
#include <memory>

#include "core/stream.h"
#include "python/csrc/tensors.h"

namespace ladder::python {

// Scope in which PyTorch's device number `index` is the thread's current device. The emulator has a single device, and
// only one such scope exists at a time.
class CurrentDevice {
 public:
  explicit CurrentDevice(int index);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

  int number() const;
  Stream stream() const;  // PyTorch's current stream

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Device memory of PyTorch's allocator, 256-byte aligned. It is returned as soon as this object is destroyed, and the
// allocator reuses it only for later work on the same stream. `marks`: the memory is zeroed, for a version with a
// private workspace.
class Workspace {
 public:
  Workspace(const Tensor& like, std::size_t bytes, bool marks);
  void* pointer() const { return pointer_; }

 private:
  std::optional<Tensor> memory_;
  void* pointer_ = nullptr;
};

}  // namespace ladder::python
