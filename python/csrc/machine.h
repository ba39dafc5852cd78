// The device that work goes to, the same for both builds: machine_cuda.cpp asks PyTorch for its streams, and
// machine_emulator.cpp has the emulator behave inside of Python.
#pragma once

#include <cstddef>
#include <memory>

#include "core/stream.h"
#include "python/csrc/tensors.h"

namespace ladder::python {

// Makes a device, number `index` of PyTorch's, the thread's current one for as long as this lives. On the emulator, which has
// one, one of them lives at a time.
class CurrentDevice {
 public:
  explicit CurrentDevice(int index);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

  int number() const;
  Stream stream() const;  // PyTorch's current one

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Device memory of PyTorch's allocator, 256-byte aligned: it is given back at once, and taken again only by work that the
// same stream does later. `marks`: it begins as zeros, as a version with a private workspace wants it.
class Workspace {
 public:
  Workspace(const Tensor& like, std::size_t bytes, bool marks);
  void* pointer() const { return pointer_; }

 private:
  std::optional<Tensor> memory_;
  void* pointer_ = nullptr;
};

}  // namespace ladder::python
