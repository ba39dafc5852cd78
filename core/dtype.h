// Number formats of a problem: how values are stored, and how they are rounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ladder {

// tf32 is stored as fp32 whose low 13 mantissa bits are zero: a problem in tf32 has tf32 inputs and fp32 outputs.
//
// The integers are for tensors that hold no measurements: labels, time steps, pixels of images. On the host all values
// are floats, which hold every integer up to 2^24.
enum class Dtype : std::uint8_t { f32, tf32, bf16, f16, i32, i64, u8 };

// Dtypes that a problem can have.
inline constexpr Dtype kProblemDtypes[] = {Dtype::f32, Dtype::tf32, Dtype::bf16, Dtype::f16};

inline bool is_integer(Dtype dtype) { return dtype == Dtype::i32 || dtype == Dtype::i64 || dtype == Dtype::u8; }

// Dtype in which results of a problem in `dtype` are stored: fp32 for tf32, else `dtype`.
inline Dtype storage_dtype(Dtype dtype) { return dtype == Dtype::tf32 ? Dtype::f32 : dtype; }

// Name of a dtype: "fp32", "tf32", "bf16" or "fp16", the words of problem lines and command lines, which alone are
// parsed; "int32", "int64" or "uint8".
const char* name(Dtype dtype);
std::optional<Dtype> parse_dtype(std::string_view word);

// Bytes of one stored element.
std::size_t size_of(Dtype dtype);

// Largest relative error of rounding a real number to `dtype` (Higham, "Accuracy and Stability", 2.1): 2^-24 for
// fp32, 2^-11 for tf32 and fp16, 2^-8 for bf16 (half the distance of 1 to the next number). 0 for integers.
double unit_roundoff(Dtype dtype);

// Round `value` to nearest even in `dtype`, or to the nearest integer that an integer dtype holds.
float round_to(Dtype dtype, float value);

// Convert `count` host values from fp32 to the stored bytes of `dtype`, and back. encode() rounds to nearest even.
void encode(Dtype dtype, const float* values, std::size_t count, void* stored);
void decode(Dtype dtype, const void* stored, std::size_t count, float* values);

}  // namespace ladder
