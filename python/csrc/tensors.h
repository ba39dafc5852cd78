// PyTorch's tensors, by its stable ABI alone, as the kernels of dev/ take them: channels innermost, 16-byte aligned.
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

// LADDER_OPERATORS(m) { m.impl("silu", TORCH_BOX(&silu)); }: implementations for tensors of this build's device, once a file.
// python/ladder_torch/define.py has their schemas and says what the namespaces are.
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

// What kernels index has to be so. ladder_torch's functions have said what would be right; whoever calls an operator by
// itself gets one sentence. Both fit where they have these sizes and are on the device of `like`, and of its type, or of
// any floating-point one.
void expect(bool fitting, const char* op);  // throws UsageError
bool fits(const Tensor& x, const Sizes& sizes, const Tensor& like);
bool fits_parameter(const MaybeTensor& x, const Sizes& sizes, const Tensor& like);
bool is_floating(const Tensor& x);

bool countable(const Sizes& sizes);      // by kernels: not empty, below 2^31 elements
bool is_channels_last(const Tensor& x);  // dense, as of empty_channels_last(), and of three dimensions or more

// Nothing for a type that no kernel takes. `tf32`: fp32 may be rounded to it on the way into a product.
std::optional<Dtype> dtype_of(const Tensor& x, bool tf32 = false);

// Uninitialized, on the device of `like`. Of sizes [n, c, ...], the second dimension lies innermost.
Tensor empty(const Tensor& like, const Sizes& sizes, ScalarType type);
Tensor empty_channels_last(const Tensor& like, const Sizes& sizes, ScalarType type);
Tensor new_like(const Tensor& x);  // channels innermost where they are x's, else in the order of its sizes

// x itself where it lies so, or a copy: [n, c, ...] with the second dimension innermost; or in the order of its sizes.
Tensor to_channels_last(const Tensor& x);
Tensor to_contiguous(const Tensor& x);
Tensor to_dense(const Tensor& x, bool channels_last);  // one or the other
Tensor as_type(const Tensor& x, ScalarType type);

// Whether kernels take the parameter as it is beside x (a problem's params16); and the parameter as they take it, else fp32.
bool is_params16(const MaybeTensor& parameter, const Tensor& x);
MaybeTensor as_parameter(const MaybeTensor& x, bool params16 = false);

inline const void* data(const Tensor& x) { return x.const_data_ptr(); }
inline const void* data(const MaybeTensor& x) { return x ? x->const_data_ptr() : nullptr; }

inline const float* floats(const MaybeTensor& x) { return static_cast<const float*>(data(x)); }

// Calls an operator that is registered by name, of `Results`, with arguments of exactly its schema.
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
