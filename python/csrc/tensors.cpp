#include "python/csrc/tensors.h"

#include <functional>
#include <numeric>

namespace ladder::python {
namespace {

constexpr std::uintptr_t kAlignment = 16;

Sizes dense_strides(const Sizes& sizes, bool channels_last) {
  Sizes strides(sizes.size());
  std::int64_t next = 1;
  const auto place = [&](std::size_t i) {
    strides[i] = next;
    next *= std::max<std::int64_t>(sizes[i], 1);
  };
  if (channels_last) place(1);
  for (std::size_t i = sizes.size(); i-- > 0;) {
    if (!channels_last || i != 1) place(i);
  }
  return strides;
}

Tensor strided(const Tensor& like, const Sizes& sizes, const Sizes& strides, ScalarType type) {
  std::int32_t device_type = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(like.get(), &device_type));
  AtenTensorHandle made = nullptr;
  TORCH_ERROR_CODE_CHECK(
      aoti_torch_empty_strided(static_cast<std::int64_t>(sizes.size()), sizes.data(), strides.data(),
                               torch::stable::detail::to<std::int32_t>(torch::stable::detail::from(type)), device_type,
                               like.get_device(), &made));
  return Tensor(made);
}

Tensor dense(const Tensor& x, bool channels_last) {
  const Sizes sizes = sizes_of(x);
  const Sizes strides = dense_strides(sizes, channels_last);
  bool as_it_should = reinterpret_cast<std::uintptr_t>(x.const_data_ptr()) % kAlignment == 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    as_it_should = as_it_should && (sizes[i] == 1 || x.stride(static_cast<std::int64_t>(i)) == strides[i]);
  }
  if (as_it_should || product(sizes) == 0) return x;
  Tensor copy = strided(x, sizes, strides, x.scalar_type());
  return torch::stable::copy_(copy, x);
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

Tensor to_channels_last(const Tensor& x) { return dense(x, true); }

Tensor to_contiguous(const Tensor& x) { return dense(x, false); }

Tensor as_type(const Tensor& x, ScalarType type) {
  return x.scalar_type() == type ? x : torch::stable::to(x, std::optional(type));
}

}  // namespace ladder::python
