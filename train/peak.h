// Peak arithmetic throughput of the device.
#pragma once

#include "core/backend.h"
#include "core/dtype.h"

namespace ladder::train {

// TFLOP/s at the highest SM clock that the device reports. FLOPs per SM and clock: dense tensor-core products in bf16
// and fp16 2048 (compute capability 8.0) and 4096 (9.0), TF32 half of that; fp32 128 FMA.
inline double peak_tflops(Dtype dtype) {
  const backend::DeviceInfo& device = backend::device();
  const double tensor = device.arch >= 90 ? 4096 : 2048;
  const double a_clock = dtype == Dtype::f32 ? 256 : dtype == Dtype::tf32 ? tensor / 2 : tensor;
  return a_clock * device.num_sms * device.sm_clock_khz * 1e3 * 1e-12;
}

}  // namespace ladder::train
