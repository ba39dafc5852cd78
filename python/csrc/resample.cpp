// avg_pool2x2 and upsample2x with their gradients: dev/resample on images [n, c, h, w], channels innermost.
#include "dev/resample/resample.h"

#include "python/csrc/plans.h"

namespace ladder::python {
namespace {

using namespace resample;

// Resamples an image [n, c, h, w] to half (`half`) or twice its rows and columns.
template <class P>
Tensor resampled(const Tensor& given, const char* op, bool half) {
  expect(given.dim() == 4 && is_floating(given), op);
  const Sizes from = sizes_of(given);
  expect(!half || (from[2] % 2 == 0 && from[3] % 2 == 0), op);
  const Sizes to =
      half ? Sizes{from[0], from[1], from[2] / 2, from[3] / 2} : Sizes{from[0], from[1], from[2] * 2, from[3] * 2};
  const std::optional<Dtype> dtype = dtype_of(given);
  if (dtype && countable(from) && countable(to)) {
    const Sizes& large = half ? from : to;
    const Problem problem{.n = static_cast<int>(large[0]),
                          .h = static_cast<int>(large[2]),
                          .w = static_cast<int>(large[3]),
                          .c = static_cast<int>(large[1]),
                          .dtype = *dtype};
    const Tensor x = to_channels_last(given), y = empty_channels_last(x, to, x.scalar_type());
    if (run<P>(problem, {data(x), y.mutable_data_ptr()}, x)) return y;
  }
  return std::get<0>(call<Tensor>((std::string("ladder::") + op + "_formula").c_str(), "", given));
}

Tensor avg_pool2x2(const Tensor& x) { return resampled<Pool>(x, "avg_pool2x2", true); }
Tensor avg_pool2x2_backward(const Tensor& dy) { return resampled<PoolBackward>(dy, "avg_pool2x2_backward", false); }
Tensor upsample2x(const Tensor& x) { return resampled<Upsample>(x, "upsample2x", false); }
Tensor upsample2x_backward(const Tensor& dy) { return resampled<UpsampleBackward>(dy, "upsample2x_backward", true); }

LADDER_OPERATORS(m) {
  m.impl("avg_pool2x2", TORCH_BOX(&avg_pool2x2));
  m.impl("avg_pool2x2_backward", TORCH_BOX(&avg_pool2x2_backward));
  m.impl("upsample2x", TORCH_BOX(&upsample2x));
  m.impl("upsample2x_backward", TORCH_BOX(&upsample2x_backward));
}

}  // namespace
}  // namespace ladder::python
