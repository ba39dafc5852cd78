// The reference of conv3x3: the formula of dev/conv3x3/conv3x3.h in double precision. A product of two fp32 numbers is
// exact in double, so the only rounding is that of the sum, 2^29 times finer than fp32's. Images are padded with zeros:
// a tap outside of the image adds zero to value and magnitude.
#include <algorithm>
#include <cmath>
#include <string>

#include "core/check/check.h"
#include "core/parallel.h"
#include "dev/conv3x3/conv3x3.h"
#include "reference/products.h"

namespace ladder::conv3x3 {
namespace {

using reference::add_products;
using reference::kBlockCols;
using reference::kBlockRows;
using reference::ProductBlock;
using reference::round_up;

// Weights of a convolution from `in` to `out` channels, [out / kBlockCols][r][s][in][kBlockCols]. Zeros fill the last
// block.
struct BlockedWeights {
  int in = 0;
  int out = 0;
  std::vector<double> values;

  BlockedWeights(int in, int out)
      : in(in), out(out), values(static_cast<std::size_t>(9 * in) * round_up(out, kBlockCols)) {}
  double& element(std::int64_t tap, std::int64_t c, std::int64_t k) {
    return values[((k / kBlockCols * 9 + tap) * in + c) * kBlockCols + k % kBlockCols];
  }
  const double* row(std::int64_t first_k, std::int64_t r) const {
    return &values[(first_k * 9 + r * 3 * kBlockCols) * in];
  }
};

BlockedWeights fprop_weights(const Problem& p, const std::vector<float>& krsc) {
  BlockedWeights w(p.c, p.k);
  for (std::int64_t k = 0, from = 0; k < p.k; ++k) {
    for (std::int64_t tap = 0; tap < 9; ++tap) {
      for (std::int64_t c = 0; c < p.c; ++c) w.element(tap, c, k) = krsc[from++];
    }
  }
  return w;
}

// Weights of dgrad as a convolution of dy: taps flipped, input and output channels exchanged.
BlockedWeights dgrad_weights(const Problem& p, const std::vector<float>& krsc) {
  BlockedWeights w(p.k, p.c);
  for (std::int64_t k = 0, from = 0; k < p.k; ++k) {
    for (std::int64_t tap = 0; tap < 9; ++tap) {
      for (std::int64_t c = 0; c < p.c; ++c) w.element(8 - tap, k, c) = krsc[from++];
    }
  }
  return w;
}

// Images [n, h, w, c] in double precision, zero-padded to [n, h + 2, w + 2, round_up(c)]. Zeros after the last
// image keep the last block's reads in bounds.
struct PaddedImages {
  std::int64_t row_pitch;    // elements from one image row to the next
  std::int64_t image_pitch;  // elements from one image to the next
  std::int64_t channels;     // channels of a pixel, including the zeros that fill the last block
  std::vector<double> values;

  PaddedImages(const Problem& p, const std::vector<float>& images, int c, int channel_block)
      : row_pitch((p.w + 2) * round_up(c, channel_block)),
        image_pitch((p.h + 2) * row_pitch),
        channels(round_up(c, channel_block)),
        values(p.n * image_pitch + kBlockRows * row_pitch) {
    parallel_for(std::int64_t{p.n} * p.h, 1, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t row = first; row < last; ++row) {
        double* to = &values[row / p.h * image_pitch + (row % p.h + 1) * row_pitch + channels];
        const float* from = &images[row * p.w * c];
        for (int col = 0; col < p.w; ++col) std::copy_n(from + col * c, c, to + col * channels);
      }
    });
  }
};

// Convolve images [n, h, w, in] with w to [n, h, w, out]. added(pixel, channel, add) calls add(term) for each further
// addend of an output. The terms of a block of pixels and output channels are three contiguous runs, one for each
// filter row.
Expected convolve(const Problem& p, const std::vector<float>& images, const BlockedWeights& w, const auto& added) {
  const PaddedImages padded(p, images, w.in, 1);
  const std::size_t count = static_cast<std::size_t>(p.pixels()) * w.out;
  Expected y{.value = std::vector<double>(count), .magnitude = std::vector<double>(count)};
  const auto convolve_block = [&](std::int64_t row, int first_col, int first_k) {
    ProductBlock block;
    for (int r = 0; r < 3; ++r) {
      const double* x = &padded.values[row / p.h * padded.image_pitch + (row % p.h + r) * padded.row_pitch];
      add_products(x + first_col * w.in, w.in, w.row(first_k, r), kBlockCols, 3 * w.in, block);
    }
    for (int col = first_col; col < std::min(first_col + kBlockRows, p.w); ++col) {
      for (int k = first_k; k < std::min(first_k + kBlockCols, w.out); ++k) {
        const std::int64_t pixel = row * p.w + col;
        double& value = y.value[pixel * w.out + k] = block.value[col - first_col][k - first_k];
        double& magnitude = y.magnitude[pixel * w.out + k] = block.magnitude[col - first_col][k - first_k];
        added(pixel, k, [&](double term) {
          value += term;
          magnitude += std::abs(term);
        });
      }
    }
  };
  parallel_for(std::int64_t{p.n} * p.h, 1, [&](std::int64_t first_row, std::int64_t last_row) {
    for (std::int64_t row = first_row; row < last_row; ++row) {
      for (int first_k = 0; first_k < w.out; first_k += kBlockCols) {
        for (int first_col = 0; first_col < p.w; first_col += kBlockRows) convolve_block(row, first_col, first_k);
      }
    }
  });
  return y;
}

NamedOutputs fprop(const Case& c, const HostTensors& in) {
  const auto& p = problem_of<Fprop>(c);
  const std::vector<float>* bias = in.find("bias");
  const std::vector<float>* e = in.find("e");
  const std::vector<float>* r = in.find("r");
  const auto added = [&](std::int64_t pixel, int k, const auto& add) {
    if (bias) add((*bias)[k]);
    if (e) add((*e)[pixel / (p.h * p.w) * p.embedding + p.first + k]);
    if (r) add((*r)[pixel * p.k + k]);
  };
  return {{"y", convolve(p, in["x"], fprop_weights(p, in["w"]), added)}};
}

NamedOutputs dgrad(const Case& c, const HostTensors& in) {
  const auto& p = problem_of<Dgrad>(c);
  return {{"dx", convolve(p, in["dy"], dgrad_weights(p, in["w"]), [](std::int64_t, int, const auto&) {})}};
}

// Add dw and dbias of the layer whose tensor names end in `number`. dw[k][tap][c] sums over an image's pixels in one
// contiguous run: dy is repacked to the padded images' row length w + 2, with zeros in the two added columns.
void add_wgrad(NamedOutputs& outputs, const Problem& p, const HostTensors& in, const std::string& number) {
  const PaddedImages x(p, in["x" + number], p.c, kBlockCols);
  const std::vector<float>& dy = in["dy" + number];
  const std::size_t count = std::size_t{9} * p.k * p.c;
  Expected dw{.value = std::vector<double>(count), .magnitude = std::vector<double>(count)};
  Expected dbias{.value = std::vector<double>(p.k), .magnitude = std::vector<double>(p.k)};
  const std::int64_t run = std::int64_t{p.h} * (p.w + 2);

  const auto add_block = [&](std::int64_t first_k) {
    std::vector<double> of_dy(kBlockRows * p.n * run);  // [kBlockRows][n][h][w + 2]
    const std::int64_t last_k = std::min<std::int64_t>(first_k + kBlockRows, p.k);
    for (std::int64_t pixel = 0; pixel < p.pixels(); ++pixel) {
      for (std::int64_t k = first_k; k < last_k; ++k) {
        const double value = dy[pixel * p.k + k];
        of_dy[(k - first_k) * p.n * run + pixel / p.w * (p.w + 2) + pixel % p.w] = value;
        dbias.value[k] += value;
        dbias.magnitude[k] += std::abs(value);
      }
    }
    for (std::int64_t tap = 0; tap < 9; ++tap) {
      for (std::int64_t first_c = 0; first_c < p.c; first_c += kBlockCols) {
        ProductBlock block;
        for (std::int64_t n = 0; n < p.n; ++n) {
          const double* under_tap =
              &x.values[n * x.image_pitch + tap / 3 * x.row_pitch + tap % 3 * x.channels + first_c];
          add_products(&of_dy[n * run], p.n * run, under_tap, x.channels, run, block);
        }
        for (std::int64_t k = first_k; k < last_k; ++k) {
          for (std::int64_t c = first_c; c < std::min<std::int64_t>(first_c + kBlockCols, p.c); ++c) {
            dw.value[(k * 9 + tap) * p.c + c] = block.value[k - first_k][c - first_c];
            dw.magnitude[(k * 9 + tap) * p.c + c] = block.magnitude[k - first_k][c - first_c];
          }
        }
      }
    }
  };
  parallel_for(round_up(p.k, kBlockRows) / kBlockRows, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t block = first; block < last; ++block) add_block(block * kBlockRows);
  });
  outputs["dw" + number] = std::move(dw);
  if (p.bias) outputs["dbias" + number] = std::move(dbias);
}

NamedOutputs wgrad(const Case& c, const HostTensors& in) {
  NamedOutputs outputs;
  add_wgrad(outputs, problem_of<Wgrad>(c), in, "");
  return outputs;
}

NamedOutputs wgrad_batch(const Case& c, const HostTensors& in) {
  const auto& p = problem_of<WgradBatch>(c);
  NamedOutputs outputs;
  for (int i = 0; i < p.batch; ++i) add_wgrad(outputs, p, in, std::to_string(i));
  return outputs;
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_REFERENCE(ladder::conv3x3::Fprop, ladder::conv3x3::fprop)
LADDER_REFERENCE(ladder::conv3x3::Dgrad, ladder::conv3x3::dgrad)
LADDER_REFERENCE(ladder::conv3x3::Wgrad, ladder::conv3x3::wgrad)
LADDER_REFERENCE(ladder::conv3x3::WgradBatch, ladder::conv3x3::wgrad_batch)
