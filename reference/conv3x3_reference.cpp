// The reference of conv3x3: the formula of dev/conv3x3/conv3x3.h in double precision. A product of two fp32 numbers is
// exact in double, so the only rounding is that of the sum, 2^29 times finer than fp32's.
#include <algorithm>
#include <cmath>
#include <string>

#include "core/check/check.h"
#include "core/parallel.h"
#include "dev/conv3x3/conv3x3.h"

namespace ladder::conv3x3 {
namespace {

// Taps outermost, then the channels that are summed over: [r][s][in][out]. The innermost loop runs over output channels,
// which are contiguous in the output as well.
struct Weights {
  int in = 0;
  int out = 0;
  std::vector<double> values;
};

Weights fprop_weights(const Problem& p, const std::vector<float>& krsc) {
  Weights w{.in = p.c, .out = p.k, .values = std::vector<double>(krsc.size())};
  for (std::int64_t k = 0, from = 0; k < p.k; ++k) {
    for (std::int64_t tap = 0; tap < 9; ++tap) {
      for (std::int64_t c = 0; c < p.c; ++c) w.values[(tap * p.c + c) * p.k + k] = krsc[from++];
    }
  }
  return w;
}

// Of the convolution that takes dy to dx: taps flipped, channels exchanged.
Weights dgrad_weights(const Problem& p, const std::vector<float>& krsc) {
  Weights w{.in = p.k, .out = p.c, .values = std::vector<double>(krsc.size())};
  for (std::int64_t k = 0, from = 0; k < p.k; ++k) {
    for (std::int64_t tap = 0; tap < 9; ++tap) {
      for (std::int64_t c = 0; c < p.c; ++c) w.values[((8 - tap) * p.k + k) * p.c + c] = krsc[from++];
    }
  }
  return w;
}

void add_terms(double factor, const auto* others, int count, double* value, double* magnitude) {
  for (int i = 0; i < count; ++i) {
    const double term = factor * others[i];
    value[i] += term;
    magnitude[i] += std::abs(term);
  }
}

// Calls body(tap, index of the pixel under that tap) for every tap that lies inside the image.
void for_each_tap(const Problem& p, std::int64_t row, int col, const auto& body) {
  const auto row_in_image = static_cast<int>(row % p.h);
  for (int r = std::max(0, 1 - row_in_image); r < 3 && row_in_image + r - 1 < p.h; ++r) {
    for (int s = std::max(0, 1 - col); s < 3 && col + s - 1 < p.w; ++s) {
      body(r * 3 + s, (row + r - 1) * p.w + col + s - 1);
    }
  }
}

// `images` [n, h, w, in] convolved with w, plus what added(pixel, channel, add) calls add(term) with: [n, h, w, out].
Expected convolve(const Problem& p, const std::vector<float>& images, const Weights& w, const auto& added) {
  const std::size_t count = static_cast<std::size_t>(p.pixels()) * w.out;
  Expected y{.value = std::vector<double>(count), .magnitude = std::vector<double>(count)};
  parallel_for(std::int64_t{p.n} * p.h, 1, [&](std::int64_t first_row, std::int64_t last_row) {
    for (std::int64_t row = first_row; row < last_row; ++row) {
      for (int col = 0; col < p.w; ++col) {
        double* value = &y.value[(row * p.w + col) * w.out];
        double* magnitude = &y.magnitude[(row * p.w + col) * w.out];
        for (int i = 0; i < w.out; ++i) {
          added(row * p.w + col, i, [&](double term) {
            value[i] += term;
            magnitude[i] += std::abs(term);
          });
        }
        for_each_tap(p, row, col, [&](int tap, std::int64_t pixel) {
          const double* w_row = &w.values[std::int64_t{tap} * w.in * w.out];
          for (int c = 0; c < w.in; ++c, w_row += w.out) {
            add_terms(images[pixel * w.in + c], w_row, w.out, value, magnitude);
          }
        });
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

// Of the layer whose tensors' names end so.
void add_wgrad(NamedOutputs& outputs, const Problem& p, const HostTensors& in, const std::string& number) {
  const std::vector<float>& x = in["x" + number];
  const std::vector<float>& dy = in["dy" + number];
  const std::size_t count = std::size_t{9} * p.k * p.c;
  Expected dw{.value = std::vector<double>(count), .magnitude = std::vector<double>(count)};
  Expected dbias{.value = std::vector<double>(p.k), .magnitude = std::vector<double>(p.k)};
  parallel_for(p.k, 1, [&](std::int64_t first_k, std::int64_t last_k) {
    for (std::int64_t row = 0; row < std::int64_t{p.n} * p.h; ++row) {
      for (int col = 0; col < p.w; ++col) {
        const float* dy_pixel = &dy[(row * p.w + col) * p.k];
        for (std::int64_t k = first_k; k < last_k; ++k) {
          dbias.value[k] += dy_pixel[k];
          dbias.magnitude[k] += std::abs(dy_pixel[k]);
        }
        for_each_tap(p, row, col, [&](int tap, std::int64_t pixel) {
          for (std::int64_t k = first_k; k < last_k; ++k) {
            const std::int64_t at = (k * 9 + tap) * p.c;
            add_terms(dy_pixel[k], &x[pixel * p.c], p.c, &dw.value[at], &dw.magnitude[at]);
          }
        });
      }
    }
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
