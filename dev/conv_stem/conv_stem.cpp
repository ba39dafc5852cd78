#include "dev/conv_stem/conv_stem.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "core/problem_line.h"

namespace ladder::conv_stem {

std::string Problem::str() const {
  const auto word = [](const char* letters, int value) { return letters + std::to_string(value) + ' '; };
  return word("n", n) + word("h", h) + word("w", w) + word("c", c) + word("k", k) + word("r", r) +
         word("stride", stride) + word("pad", pad) + (bias ? "bias " : "") + (allow_tf32 ? "allow_tf32 " : "") +
         name(dtype);
}

Problem Problem::parse(std::string_view text) {
  ProblemLine line(text, "n100 h224 w224 c3 k96 r11 stride4 pad2 [bias] [allow_tf32] [fp32]");
  constexpr int kMax = 1 << 20;
  Problem p;
  p.n = static_cast<int>(line.size("n", 1, kMax));
  p.h = static_cast<int>(line.size("h", 1, kMax));
  p.w = static_cast<int>(line.size("w", 1, kMax));
  p.c = static_cast<int>(line.size("c", 1, kMax));
  p.k = static_cast<int>(line.size("k", 1, kMax));
  p.r = static_cast<int>(line.size("r", 1, 255));
  p.stride = static_cast<int>(line.size("stride", 1, 255));
  p.pad = static_cast<int>(line.size("pad", 0, 254));
  p.bias = line.flag("bias");
  p.allow_tf32 = line.flag("allow_tf32");
  p.dtype = line.dtype(Dtype::f32);
  line.finish();
  if (p.dtype != Dtype::f32) line.fail("tensors are fp32; with allow_tf32 products may be rounded");
  if (p.pad >= p.r) line.fail("a filter that lies in the padding: pad must be less than r");
  if (p.h + 2 * p.pad < p.r || p.w + 2 * p.pad < p.r || p.out_h() < 3 || p.out_w() < 3) {
    line.fail("the convolution's output is smaller than a 3x3 pooling window");
  }
  // Kernels index elements with 32-bit signed integers.
  constexpr double kMaxElements = 2147483647.0;
  if (double(p.n) * p.h * p.w * p.c > kMaxElements || double(p.n) * p.out_h() * p.out_w() * p.k > kMaxElements ||
      double(p.r) * p.r * p.c * p.k > kMaxElements) {
    line.fail("a tensor of more than 2^31 - 1 elements");
  }
  return p;
}

Problem Problem::random(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  // Small sizes are drawn as often as large ones.
  const auto draw = [&](int most) { return static_cast<int>(1 + random() % (1 + random() % most)); };
  const auto coin = [&] { return random() % 2 == 0; };
  Problem p{.n = draw(3), .bias = coin()};
  if (coin()) {
    p.c = 3;
    p.k = 32 * (1 + static_cast<int>(random() % 3));
    p.r = 11;
    p.stride = 4;
    p.pad = 2;
    p.allow_tf32 = coin();
  } else {
    p.c = draw(6);
    p.k = draw(40);
    p.r = draw(7);
    p.stride = draw(4);
    p.pad = static_cast<int>(random() % static_cast<std::uint64_t>(p.r));
  }
  // At least three pixels of output each way, and rows and columns of x that no window reaches.
  const auto side = [&] {
    const int least = std::max(1, 2 * p.stride + p.r - 2 * p.pad);
    return least + draw(6 * p.stride) - 1;
  };
  p.h = side();
  p.w = side();
  if (coin()) p.w = (p.w + 3) / 4 * 4;  // whole pieces of 16 bytes a row
  return p;
}

namespace {

TensorSpec image(const char* name, Role role, int n, int rows, int columns, int channels, const char* layout) {
  return {.name = name, .role = role, .dtype = Dtype::f32, .shape = {n, rows, columns, channels}, .layout = layout};
}

std::vector<TensorSpec> tensors_with(const Problem& p, TensorSpec y) {
  std::vector<TensorSpec> specs = {
      image("x", Role::input, p.n, p.h, p.w, p.c, "nhwc"),
      {.name = "w", .role = Role::input, .dtype = Dtype::f32, .shape = {p.k, p.r, p.r, p.c}, .layout = "krsc"}};
  // Sums of products have unit variance: He et al. 2015, eq. 10 without the factor 2.
  specs[1].stddev = 1 / std::sqrt(static_cast<double>(p.filter()));
  if (p.bias) {
    specs.push_back({.name = "bias", .role = Role::input, .dtype = Dtype::f32, .shape = {p.k}, .layout = "k"});
  }
  y.reduction_length = p.filter() + (p.bias ? 1 : 0);
  if (p.allow_tf32) y.intermediate = Dtype::tf32;
  specs.push_back(std::move(y));
  return specs;
}

template <class Tensors>
Tensors bound(const Pointers& at) {
  return {.x = at.get<const float>("x"),
          .w = at.get<const float>("w"),
          .bias = at.get<const float>("bias"),
          .y = at.get<float>("y")};
}

}  // namespace

std::vector<TensorSpec> Fprop::tensors(const Problem& p) {
  return tensors_with(p, image("y", Role::output, p.n, p.out_h(), p.out_w(), p.k, "nhwk"));
}

Fprop::Tensors Fprop::bind(const Pointers& at) { return bound<Tensors>(at); }

double Fprop::flops(const Problem& p) { return 2.0 * p.filter() * p.k * p.n * p.out_h() * p.out_w(); }

std::vector<TensorSpec> ReluPool::tensors(const Problem& p) {
  return tensors_with(p, image("y", Role::output, p.n, p.pool_h(), p.pool_w(), p.k, "nhwk"));
}

ReluPool::Tensors ReluPool::bind(const Pointers& at) { return bound<Tensors>(at); }

}  // namespace ladder::conv_stem
