// The arithmetic that the device could do at most.
#pragma once

#include "core/backend.h"
#include "core/dtype.h"

namespace ladder::train {

// TFLOP/s at the highest SM clock that the device announces: dense tensor-core products of an SM of compute capability
// 8.0 and 9.0 (bf16 and fp16 2048 and 4096 a clock, TF32 half of that), 128 FMA of fp32.
inline double peak_tflops(Dtype dtype) {
  const backend::DeviceInfo& device = backend::device();
  const double tensor = device.arch >= 90 ? 4096 : 2048;
  const double a_clock = dtype == Dtype::f32 ? 256 : dtype == Dtype::tf32 ? tensor / 2 : tensor;
  return a_clock * device.num_sms * device.sm_clock_khz * 1e3 * 1e-12;
}

}  // namespace ladder::train
