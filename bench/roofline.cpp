#include "bench/roofline.h"

#include <algorithm>

namespace ladder {
namespace {

// Multiply-adds per SM and clock. sm_80 and sm_90: the throughput tables of NVIDIA's A100 and H100 architecture
// whitepapers (dense tensor-core rates divided by SMs and boost clock); sm_86 and sm_89: the GA10x and Ada whitepapers,
// their rates with fp16 accumulation where that is the larger. fp32 is the "arithmetic instructions" table of the CUDA
// C++ Programming Guide.
struct Rates {
  int arch;
  int half;  // bf16 and fp16
  int tf32;
  int fp32;
};
constexpr Rates kRates[] = {
    {80, 1024, 512, 64},
    {86, 512, 256, 128},
    {89, 512, 256, 128},
    {90, 2048, 1024, 128},
};

int multiply_adds(const Rates& rates, Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
      return rates.fp32;
    case Dtype::tf32:
      return rates.tf32;
    case Dtype::bf16:
    case Dtype::f16:
    case Dtype::i32:
    case Dtype::i64:
    case Dtype::u8:
      break;
  }
  return rates.half;
}

// fp32 problems whose terms may be rounded to TF32 are multiplied at TF32's rate.
Dtype multiplied_in(const Case& c) {
  const bool rounded =
      std::ranges::any_of(c.tensors, [](const TensorSpec& t) { return t.intermediate == Dtype::tf32; });
  return c.dtype == Dtype::f32 && rounded ? Dtype::tf32 : c.dtype;
}

double seconds(double amount, double per_second) { return per_second > 0 ? amount / per_second : 0; }

double arithmetic_seconds(const backend::DeviceInfo& device, const Case& c) {
  return seconds(c.flops, peak_flops(device, multiplied_in(c)));
}

double streaming_seconds(const backend::DeviceInfo& device, const Case& c) {
  return seconds(c.traffic.bytes(), device.dram_bytes_per_s);
}

}  // namespace

double peak_flops(const backend::DeviceInfo& device, Dtype dtype) {
  for (const Rates& rates : kRates) {
    if (rates.arch == device.arch) {
      return 2.0 * multiply_adds(rates, dtype) * device.num_sms * 1e3 * device.sm_clock_khz;
    }
  }
  return 0;
}

double warm_lower_bound_seconds(const backend::DeviceInfo& device, const Case& c, const AnyVersionDef& def) {
  return seconds(c.flops * def.least_arithmetic, peak_flops(device, multiplied_in(c)));
}

double cold_lower_bound_seconds(const backend::DeviceInfo& device, const Case& c, const AnyVersionDef& def) {
  return std::max(warm_lower_bound_seconds(device, c, def), seconds(c.traffic.read_bytes, device.dram_bytes_per_s));
}

double roofline_seconds(const backend::DeviceInfo& device, const Case& c) {
  return std::max(arithmetic_seconds(device, c), streaming_seconds(device, c));
}

bool memory_bound(const backend::DeviceInfo& device, const Case& c) {
  const double arithmetic = arithmetic_seconds(device, c);
  return arithmetic > 0 && streaming_seconds(device, c) > arithmetic;
}

}  // namespace ladder
