// Conversions and arithmetic of 16-bit formats, bit intrinsics, functions with named rounding: bit for bit. Approximate
// functions: within the bounds that the CUDA C++ Programming Guide states for the GPU's ("Intrinsic Functions").
#include "core/device.h"
#include "tests/conformance/wrappers.h"

namespace ladder::conformance {
namespace {

constexpr int kCount = 2048;
constexpr int kThreads = 256;

// One word from three inputs.
template <class Body>
__global__ void map_kernel(const float* a, const float* b, const float* c, std::uint32_t* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = Body::run(a[i], b[i], c[i]);
}

template <class Body>
Output map(const std::vector<float>& a, const std::vector<float>& b, const std::vector<float>& c) {
  DeviceArray<float> da(a), db(b), dc(c);
  DeviceArray<std::uint32_t> out(kCount);
  launch(map_kernel<Body>, {kCount / kThreads, kThreads}, nullptr, da.get(), db.get(), dc.get(), out.get());
  return {.words = out.to_host(), .shape = {kCount}};
}

template <class Body>
Output on_awkward() {
  const std::vector<float> x = awkward_floats(kCount);
  return map<Body>(x, x, x);
}

// On [low, high), within the given bounds of each other.
template <class Body, int kLow, int kHigh>
Output on_interval(double absolute, double relative) {
  Inputs inputs;
  const auto a = inputs.uniforms(kCount, kLow, kHigh);
  const auto b = inputs.uniforms(kCount, kLow, kHigh);
  const auto c = inputs.uniforms(kCount, kLow, kHigh);
  Output output = map<Body>(a, b, c);
  output.absolute = absolute;
  output.relative = relative;
  return output;
}

__device__ std::uint32_t word(float x) { return __float_as_uint(x); }

struct ToBf16 {
  static __device__ std::uint32_t run(float a, float, float) { return __bfloat16_as_ushort(__float2bfloat16_rn(a)); }
};
struct ToF16 {
  static __device__ std::uint32_t run(float a, float, float) { return __half_as_ushort(__float2half_rn(a)); }
};
// Half of the words are other 16-bit patterns than those that floats' upper halves make.
struct FromBf16 {
  static __device__ std::uint32_t run(float a, float, float) {
    return word(__bfloat162float(__ushort_as_bfloat16(static_cast<unsigned short>(word(a) >> 16))));
  }
};
struct FromF16 {
  static __device__ std::uint32_t run(float a, float, float) {
    return word(__half2float(__ushort_as_half(static_cast<unsigned short>(word(a) >> 13))));
  }
};
struct Bf16Arithmetic {
  static __device__ std::uint32_t run(float a, float b, float c) {
    const __nv_bfloat16 x = __float2bfloat16_rn(a), y = __float2bfloat16_rn(b), z = __float2bfloat16_rn(c);
    return __bfloat16_as_ushort(__hadd(x, y)) ^ static_cast<std::uint32_t>(__bfloat16_as_ushort(__hmul(y, z))) << 16;
  }
};
struct F16Arithmetic {
  static __device__ std::uint32_t run(float a, float b, float c) {
    const __half x = __float2half_rn(a), y = __float2half_rn(b), z = __float2half_rn(c);
    return __half_as_ushort(__hadd(x, y)) ^ static_cast<std::uint32_t>(__half_as_ushort(__hmul(y, z))) << 16;
  }
};
struct Bf16Fma {
  static __device__ std::uint32_t run(float a, float b, float c) {
    return __bfloat16_as_ushort(__hfma(__float2bfloat16_rn(a), __float2bfloat16_rn(b), __float2bfloat16_rn(c)));
  }
};
struct F16Fma {
  static __device__ std::uint32_t run(float a, float b, float c) {
    return __half_as_ushort(__hfma(__float2half_rn(a), __float2half_rn(b), __float2half_rn(c)));
  }
};
struct Rounded {
  static __device__ std::uint32_t run(float a, float b, float c) {
    return word(__fmaf_rn(a, b, c)) ^ word(__fdiv_rn(a, b)) ^ word(__fsqrt_rn(fabsf(c))) ^ word(__frcp_rn(b)) ^
           static_cast<std::uint32_t>(__float2int_rn(a * 100)) ^ word(__saturatef(c));
  }
};
struct Bits {
  static __device__ std::uint32_t run(float a, float b, float c) {
    const std::uint32_t x = word(a), y = word(b), z = word(c);
    return __brev(x) ^ __byte_perm(x, y, z) ^ __funnelshift_l(x, y, z) ^ __umulhi(x, y) ^ __popc(y) ^
           __clz(static_cast<int>(z)) << 8 ^ __ffs(static_cast<int>(x)) << 16;
  }
};
struct Exp {
  static __device__ std::uint32_t run(float a, float, float) { return word(__expf(a)); }
};
struct Log {
  static __device__ std::uint32_t run(float a, float, float) { return word(__logf(a)); }
};
struct Sin {
  static __device__ std::uint32_t run(float a, float, float) { return word(__sinf(a)); }
};
struct Cos {
  static __device__ std::uint32_t run(float a, float, float) { return word(__cosf(a)); }
};
struct Divide {
  static __device__ std::uint32_t run(float a, float b, float) { return word(__fdividef(a, b)); }
};
struct Rsqrt {
  static __device__ std::uint32_t run(float a, float, float) { return word(rsqrtf(a)); }
};
struct Tanh {
  static __device__ std::uint32_t run(float a, float, float) { return word(tanhf(a)); }
};

constexpr double kUlp = 0x1p-23;

LADDER_CONFORMS(float_to_bf16, on_awkward<ToBf16>)
LADDER_CONFORMS(float_to_f16, on_awkward<ToF16>)
LADDER_CONFORMS(bf16_to_float, on_awkward<FromBf16>)
LADDER_CONFORMS(f16_to_float, on_awkward<FromF16>)
LADDER_CONFORMS(bf16_arithmetic, ([] { return on_interval<Bf16Arithmetic, -4, 4>(0, 0); }))
LADDER_CONFORMS(f16_arithmetic, ([] { return on_interval<F16Arithmetic, -4, 4>(0, 0); }))
LADDER_CONFORMS(bf16_fma, ([] { return on_interval<Bf16Fma, -4, 4>(0, 0); }))
LADDER_CONFORMS(f16_fma, ([] { return on_interval<F16Fma, -4, 4>(0, 0); }))
LADDER_CONFORMS(rounded_functions, ([] { return on_interval<Rounded, -4, 4>(0, 0); }))
LADDER_CONFORMS(bit_functions, on_awkward<Bits>)
// Maximum error 2 + floor(|1.173 x|) units in the last place: 13 on [-10, 10).
LADDER_CONFORMS(expf_fast, ([] { return on_interval<Exp, -10, 10>(0, 14 * kUlp); }))
// 2^-21.41 on [0.5, 2], else 3 units in the last place.
LADDER_CONFORMS(logf_fast, ([] { return on_interval<Log, 0, 8>(0x1p-21, 4 * kUlp); }))
// 2^-21.41 (sin) and 2^-21.19 (cos) on [-pi, pi].
LADDER_CONFORMS(sinf_fast, ([] { return on_interval<Sin, -3, 3>(0x1p-21, 0); }))
LADDER_CONFORMS(cosf_fast, ([] { return on_interval<Cos, -3, 3>(0x1p-21, 0); }))
LADDER_CONFORMS(fdividef_fast, ([] { return on_interval<Divide, 1, 100>(0, 3 * kUlp); }))
LADDER_CONFORMS(rsqrtf, ([] { return on_interval<Rsqrt, 0, 100>(0, 3 * kUlp); }))
LADDER_CONFORMS(tanhf, ([] { return on_interval<Tanh, -4, 4>(0, 4 * kUlp); }))

}  // namespace
}  // namespace ladder::conformance
