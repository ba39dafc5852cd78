#include "python/csrc/tensors.h"

#include <functional>
#include <limits>
#include <numeric>
#include <string>

#include "core/error.h"

namespace ladder::python {
namespace {

constexpr std::uintptr_t kAlignment = 16;

Sizes dense_strides(const Sizes& sizes, bool channels_last) {
  Sizes strides(sizes.size());
  std::int64_t next = 1;
  const auto set_stride = [&](std::size_t i) {
    strides[i] = next;
    next *= std::max<std::int64_t>(sizes[i], 1);
  };
  if (channels_last) set_stride(1);
  for (std::size_t i = sizes.size(); i-- > 0;) {
    if (!channels_last || i != 1) set_stride(i);
  }
  return strides;
}

std::int32_t device_type_of(const Tensor& x) {
  std::int32_t type = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(x.get(), &type));
  return type;
}

bool on_device_of(const Tensor& x, const Tensor& like) {
  return device_type_of(x) == device_type_of(like) && x.get_device() == like.get_device();
}

Tensor strided(const Tensor& like, const Sizes& sizes, const Sizes& strides, ScalarType type) {
  AtenTensorHandle made = nullptr;
  TORCH_ERROR_CODE_CHECK(
      aoti_torch_empty_strided(static_cast<std::int64_t>(sizes.size()), sizes.data(), strides.data(),
                               torch::stable::detail::to<std::int32_t>(torch::stable::detail::from(type)),
                               device_type_of(like), like.get_device(), &made));
  return Tensor(made);
}

bool is_dense(const Tensor& x, bool channels_last) {
  const Sizes sizes = sizes_of(x), strides = dense_strides(sizes, channels_last);
  if (product(sizes) == 0) return true;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] != 1 && x.stride(static_cast<std::int64_t>(i)) != strides[i]) return false;
  }
  return true;
}

}  // namespace

Sizes sizes_of(const Tensor& x) {
  Sizes sizes(x.dim());
  for (std::size_t i = 0; i < sizes.size(); ++i) sizes[i] = x.size(static_cast<std::int64_t>(i));
  return sizes;
}

std::int64_t product(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

bool countable(const Sizes& sizes) {
  const std::int64_t count = product(sizes);
  return count > 0 && count <= std::numeric_limits<std::int32_t>::max();
}

void expect(bool fitting, const char* op) {
  if (!fitting) {
    throw UsageError(std::string(op) + ": sizes, types or devices of its tensors do not fit together");
  }
}

bool is_floating(const Tensor& x) { return dtype_of(x) || x.scalar_type() == ScalarType::Double; }

bool fits(const Tensor& x, const Sizes& sizes, const Tensor& like) {
  return fits_parameter(x, sizes, like) && x.scalar_type() == like.scalar_type();
}

bool fits_parameter(const MaybeTensor& x, const Sizes& sizes, const Tensor& like) {
  return !x || (sizes_of(*x) == sizes && on_device_of(*x, like) && is_floating(*x));
}

bool is_channels_last(const Tensor& x) { return x.dim() >= 3 && is_dense(x, true); }

std::optional<Dtype> dtype_of(const Tensor& x, bool tf32) {
  switch (x.scalar_type()) {
    case ScalarType::Float:
      return tf32 ? Dtype::tf32 : Dtype::f32;
    case ScalarType::BFloat16:
      return Dtype::bf16;
    case ScalarType::Half:
      return Dtype::f16;
    default:
      return std::nullopt;
  }
}

Tensor empty(const Tensor& like, const Sizes& sizes, ScalarType type) {
  return strided(like, sizes, dense_strides(sizes, false), type);
}

Tensor empty_channels_last(const Tensor& like, const Sizes& sizes, ScalarType type) {
  return strided(like, sizes, dense_strides(sizes, true), type);
}

Tensor new_like(const Tensor& x) {
  return strided(x, sizes_of(x), dense_strides(sizes_of(x), is_channels_last(x)), x.scalar_type());
}

Tensor to_dense(const Tensor& x, bool channels_last) {
  const bool aligned = reinterpret_cast<std::uintptr_t>(x.const_data_ptr()) % kAlignment == 0;
  if (aligned && is_dense(x, channels_last)) return x;
  const Sizes sizes = sizes_of(x);
  Tensor copy = strided(x, sizes, dense_strides(sizes, channels_last), x.scalar_type());
  return torch::stable::copy_(copy, x);
}

Tensor to_channels_last(const Tensor& x) { return to_dense(x, true); }

Tensor to_contiguous(const Tensor& x) { return to_dense(x, false); }

Tensor as_type(const Tensor& x, ScalarType type) {
  return x.scalar_type() == type ? x : torch::stable::to(x, std::optional(type));
}

bool is_params16(const MaybeTensor& parameter, const Tensor& x) {
  const std::optional<Dtype> dtype = dtype_of(x);
  return parameter && parameter->scalar_type() == x.scalar_type() && dtype && size_of(*dtype) == 2;
}

MaybeTensor as_parameter(const MaybeTensor& x, bool params16) {
  return x ? MaybeTensor(to_contiguous(params16 ? *x : as_type(*x, ScalarType::Float))) : std::nullopt;
}

}  // namespace ladder::python
