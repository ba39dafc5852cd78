// Layouts of weights: PyTorch's in files, KRSC on the device, for convolutions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/error.h"

namespace ladder::io {

namespace layout_detail {

// out[a][c][b] = in[a][b][c]
inline std::vector<float> swap_last_two(const std::vector<float>& in, std::size_t na, std::size_t nb, std::size_t nc) {
  std::vector<float> out(in.size());
  for (std::size_t a = 0; a < na; ++a) {
    for (std::size_t b = 0; b < nb; ++b) {
      for (std::size_t c = 0; c < nc; ++c) out[(a * nc + c) * nb + b] = in[(a * nb + b) * nc + c];
    }
  }
  return out;
}

struct Extents {
  std::size_t outputs = 0, inputs = 0, taps = 0;
};

// Extents of a weight [O, I, R, S].
inline Extents extents_of(const std::vector<std::int64_t>& shape, std::size_t num_values) {
  const Extents e{static_cast<std::size_t>(shape[0]), static_cast<std::size_t>(shape[1]),
                  static_cast<std::size_t>(shape[2] * shape[3])};
  LADDER_CHECK(e.outputs * e.inputs * e.taps == num_values);
  return e;
}

}  // namespace layout_detail

// Convert a convolution's weight from PyTorch's [O, I, R, S] to KRSC, [O, R, S, I]. Values of any other rank (vectors,
// [O, I] matrices, [O, I, 1] of a Conv1d) have the same layout in both and come back unchanged. `shape` is PyTorch's
// either way.
inline std::vector<float> to_krsc(std::vector<float> values, const std::vector<std::int64_t>& shape) {
  if (shape.size() != 4) return values;
  const auto [outputs, inputs, taps] = layout_detail::extents_of(shape, values.size());
  return layout_detail::swap_last_two(values, outputs, inputs, taps);
}

// Convert a weight from KRSC back to PyTorch's layout.
inline std::vector<float> from_krsc(std::vector<float> values, const std::vector<std::int64_t>& shape) {
  if (shape.size() != 4) return values;
  const auto [outputs, inputs, taps] = layout_detail::extents_of(shape, values.size());
  return layout_detail::swap_last_two(values, outputs, taps, inputs);
}

}  // namespace ladder::io
