// PyTorch's tensors through its stable ABI, converted to the layout that kernels of dev/ take: channels innermost,
// 16-byte aligned.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "core/dtype.h"

// LADDER_OPERATORS(m) { m.impl("silu", TORCH_BOX(&silu)); } registers implementations for tensors of this build's
// device; use it once per file. python/ladder_torch/define.py defines the schemas and explains the namespaces.
#ifdef LADDER_TORCH_CUDA
#define LADDER_OPERATORS(m)                                                   \
  void ladder_operators(torch::stable::detail::StableLibrary&);               \
  STABLE_TORCH_LIBRARY_IMPL(ladder, CUDA, l) { ladder_operators(l); }         \
  STABLE_TORCH_LIBRARY_IMPL(ladder_kernels, CUDA, l) { ladder_operators(l); } \
  void ladder_operators(torch::stable::detail::StableLibrary& m)
#else
#define LADDER_OPERATORS(m) STABLE_TORCH_LIBRARY_IMPL(ladder_emulator, CPU, m)
#endif

namespace ladder::python {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using MaybeTensor = std::optional<Tensor>;
using Sizes = std::vector<std::int64_t>;

Sizes sizes_of(const Tensor& x);
std::int64_t product(const Sizes& sizes);

// Checks of an operator's tensors, so that kernels never index out of bounds. ladder_torch's functions check the same
// with detailed messages before; a direct call of an operator gets one sentence. fits() requires the given sizes, and
// device and type of `like`; fits_parameter() allows any floating-point type, and nullopt.
void expect(bool fitting, const char* op);  // throws UsageError
bool fits(const Tensor& x, const Sizes& sizes, const Tensor& like);
bool fits_parameter(const MaybeTensor& x, const Sizes& sizes, const Tensor& like);
bool is_floating(const Tensor& x);

bool countable(const Sizes& sizes);      // 1 to 2^31 - 1 elements, as kernels require
bool is_channels_last(const Tensor& x);  // dense as empty_channels_last(), with three dimensions or more

// Returns nullopt for a type that no kernel takes. `tf32`: products may round fp32 to TF32.
std::optional<Dtype> dtype_of(const Tensor& x, bool tf32 = false);

// Uninitialized tensors on the device of `like`: contiguous, or [n, c, ...] with the second dimension innermost.
Tensor empty(const Tensor& like, const Sizes& sizes, ScalarType type);
Tensor empty_channels_last(const Tensor& like, const Sizes& sizes, ScalarType type);
Tensor new_like(const Tensor& x);  // channels innermost if x's are, else contiguous

// Return x itself if it is 16-byte aligned and has the layout, else a copy: [n, c, ...] with the second dimension
// innermost, or contiguous.
Tensor to_channels_last(const Tensor& x);
Tensor to_contiguous(const Tensor& x);
Tensor to_dense(const Tensor& x, bool channels_last);  // the layout that `channels_last` selects
Tensor as_type(const Tensor& x, ScalarType type);

// is_params16() returns whether kernels take the parameter in x's 16-bit type (a problem's params16). as_parameter()
// returns the parameter in the type that kernels take: its own if `params16`, else fp32.
bool is_params16(const MaybeTensor& parameter, const Tensor& x);
MaybeTensor as_parameter(const MaybeTensor& x, bool params16 = false);

inline const void* data(const Tensor& x) { return x.const_data_ptr(); }
inline const void* data(const MaybeTensor& x) { return x ? x->const_data_ptr() : nullptr; }

inline const float* floats(const MaybeTensor& x) { return static_cast<const float*>(data(x)); }

// Calls the registered operator `name`, which returns `Results`, with arguments that match its schema exactly.
template <class... Results, class... Arguments>
std::tuple<Results...> call(const char* name, const char* overload, const Arguments&... arguments) {
  constexpr std::size_t kSlots = std::max(sizeof...(Results), sizeof...(Arguments));
  std::array<StableIValue, kSlots> stack{torch::stable::detail::from(arguments)...};
  TORCH_ERROR_CODE_CHECK(torch_call_dispatcher(name, overload, stack.data(), TORCH_ABI_VERSION));
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return std::tuple<Results...>(torch::stable::detail::to<Results>(stack[I])...);
  }
  (std::index_sequence_for<Results...>());
}

}  // namespace ladder::python
