#include "dev/conv1d/conv1d.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "core/problem_line.h"

namespace ladder::conv1d {
namespace {

TensorSpec sequence(const char* name, Role role, const Problem& p, int length, int channels, const char* layout) {
  return {.name = name, .role = role, .dtype = p.dtype, .shape = {p.n, length, channels}, .layout = layout};
}

TensorSpec per_channel(const char* name, const Problem& p) {
  return {.name = name, .role = Role::input, .dtype = Dtype::f32, .shape = {p.k}, .layout = "k"};
}

TensorSpec weights(const Problem& p) {
  TensorSpec w{.name = "w", .role = Role::input, .dtype = p.dtype, .shape = {p.k, p.taps, p.c}, .layout = "ktc"};
  // Sums of products have unit variance: He et al. 2015, eq. 10 without the factor 2.
  w.stddev = 1 / std::sqrt(static_cast<double>(p.terms()) * p.c);
  return w;
}

TensorSpec sum_of(std::int64_t terms, TensorSpec output) {
  output.reduction_length = terms;
  return output;
}

}  // namespace

std::string Problem::str() const {
  const auto word = [](const char* letters, int value) { return letters + std::to_string(value) + ' '; };
  const auto flag = [](const char* text, bool set) { return set ? std::string(text) + ' ' : std::string(); };
  return word("n", n) + word("l", l) + word("c", c) + word("k", k) + word("taps", taps) + flag("stride2", stride2) +
         flag("transposed", transposed) + flag("bias", bias) + (g > 1 ? word("g", g) : "") + flag("mish", mish) +
         flag("film", film) + flag("shift", shift) + (pitch != film_width() ? word("pitch", pitch) : "") +
         (split != 0 ? word("split", split) : "") + flag("residual", residual) + name(dtype);
}

Problem Problem::parse(std::string_view text) {
  ProblemLine line(text,
                   "n1 l16 c256 k256 taps5 [stride2|transposed] [bias] [g8] [mish] [film|shift] [pitch1024] [split128] "
                   "[residual] [fp32|bf16|fp16]");
  constexpr int kMax = 1 << 20;
  constexpr int kMaxTaps = 7;
  Problem p;
  p.n = static_cast<int>(line.size("n", 1, kMax));
  p.l = static_cast<int>(line.size("l", 1, kMax));
  p.c = static_cast<int>(line.size("c", 1, kMax));
  p.k = static_cast<int>(line.size("k", 1, kMax));
  p.taps = static_cast<int>(line.size("taps", 1, kMaxTaps));
  p.stride2 = line.flag("stride2");
  p.transposed = line.flag("transposed");
  p.bias = line.flag("bias");
  p.g = static_cast<int>(line.size_or("g", 1, 1, kMax));
  p.mish = line.flag("mish");
  p.film = line.flag("film");
  p.shift = line.flag("shift");
  p.pitch = static_cast<int>(line.size_or("pitch", p.film_width(), 1, kMax));
  p.split = static_cast<int>(line.size_or("split", 0, 1, kMax));
  p.residual = line.flag("residual");
  p.dtype = line.dtype(Dtype::f32);
  line.finish();
  if (p.dtype == Dtype::tf32) line.fail("tensors are fp32, bf16 or fp16");
  if (p.stride2 && p.transposed) line.fail("stride2 and transposed exclude each other");
  if (p.transposed && p.taps != kTransposedTaps) line.fail("transposed has taps4");
  if (p.stride2 && p.taps != 3) line.fail("stride2 has taps3");
  if (!p.transposed && p.taps % 2 == 0) line.fail("taps must be 1, 3, 5 or 7");
  if (p.film && p.shift) line.fail("film has a shift already");
  if (p.pitch < p.film_width() || (p.film_width() == 0 && p.pitch != 0)) {
    line.fail("pitch: rows of film are 2k floats or more, with shift k");
  }
  if (p.k % p.g != 0) line.fail("g must divide k");
  if (p.split >= p.c) line.fail("split: x has all of c's channels");
  // Kernels index elements with 32-bit signed integers.
  constexpr double kMaxElements = 2147483647.0;
  if (double(p.n) * p.l * p.c > kMaxElements || double(p.n) * p.out_l() * p.k > kMaxElements ||
      double(p.k) * p.taps * p.c > kMaxElements || double(p.n) * p.pitch > kMaxElements) {
    line.fail("a tensor of more than 2^31 - 1 elements");
  }
  return p;
}

Problem Problem::random(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  // Small sizes are drawn as often as large ones.
  const auto draw = [&](int most) { return static_cast<int>(1 + random() % (1 + random() % most)); };
  const auto coin = [&] { return random() % 2 == 0; };
  Problem p{.n = draw(4), .l = draw(33)};
  const int multiple = coin() ? 8 : 1;  // whole vectors, or any number
  p.c = multiple * draw(48 / multiple);
  p.g = draw(8);
  p.k = multiple * p.g * draw(6);
  p.taps = 2 * draw(4) - 1;
  const auto kind = random() % 4;
  if (kind == 0) {
    p.stride2 = true;
    p.taps = 3;
  } else if (kind == 1) {
    p.transposed = true;
    p.taps = kTransposedTaps;
  }
  // A group of few elements has little to normalise.
  while (p.group_channels() * p.out_l() < 8) p.k += p.g;
  p.bias = coin();
  p.residual = coin();
  p.mish = coin();
  p.film = coin();
  p.shift = !p.film && random() % 4 == 0;
  p.pitch = p.film_width();
  if (p.pitch > 0 && coin()) p.pitch += draw(9);
  if (p.c > multiple && random() % 4 == 0) p.split = multiple * draw(p.c / multiple - 1);
  return p;
}

std::vector<TensorSpec> Fprop::tensors(const Problem& p) {
  std::vector<TensorSpec> specs = {sequence("x", Role::input, p, p.l, p.c, "nlc"), weights(p)};
  if (p.bias) specs.push_back(per_channel("bias", p));
  if (p.residual) specs.push_back(sequence("residual", Role::input, p, p.out_l(), p.k, "nlk"));
  const int addends = (p.bias ? 1 : 0) + (p.residual ? 1 : 0);
  specs.push_back(
      sum_of(std::int64_t{p.terms()} * p.c + addends, sequence("y", Role::output, p, p.out_l(), p.k, "nlk")));
  return specs;
}

Fprop::Tensors Fprop::bind(const Pointers& at) {
  return {.x = at["x"],
          .w = at["w"],
          .bias = at.get<const float>("bias"),
          .residual = at.get<const void>("residual"),
          .y = at["y"]};
}

double Fprop::flops(const Problem& p) { return 2.0 * p.terms() * p.c * p.k * p.n * p.out_l(); }

std::vector<TensorSpec> Block::tensors(const Problem& p) {
  std::vector<TensorSpec> specs = {sequence("x", Role::input, p, p.l, p.split > 0 ? p.split : p.c, "nlc")};
  if (p.split > 0) specs.push_back(sequence("x_rest", Role::input, p, p.l, p.c - p.split, "nlc"));
  specs.push_back(weights(p));
  for (const char* name : {"bias", "gamma", "beta"}) specs.push_back(per_channel(name, p));
  if (p.film_width() > 0) {
    specs.push_back({.name = "film_step", .dtype = Dtype::f32, .shape = {p.film_width()}, .layout = "f"});
    specs.push_back({.name = "film", .dtype = Dtype::f32, .shape = {p.n, p.pitch}, .layout = "nf"});
  }
  if (p.residual) specs.push_back(sequence("residual", Role::input, p, p.out_l(), p.k, "nlk"));
  specs.push_back(
      sum_of(std::max<std::int64_t>(std::int64_t{p.terms()} * p.c + 1, std::int64_t{p.group_channels()} * p.out_l()),
             sequence("y", Role::output, p, p.out_l(), p.k, "nlk")));
  return specs;
}

Traffic Block::traffic(const Problem& p) {
  Problem dense = p;
  dense.pitch = p.film_width();
  return each_once(tensors(dense));
}

Block::Tensors Block::bind(const Pointers& at) {
  return {.x = at["x"],
          .x_rest = at.get<const void>("x_rest"),
          .w = at["w"],
          .bias = at.get<const float>("bias"),
          .gamma = at.get<const float>("gamma"),
          .beta = at.get<const float>("beta"),
          .film_step = at.get<const float>("film_step"),
          .film = at.get<const float>("film"),
          .residual = at.get<const void>("residual"),
          .y = at["y"]};
}

}  // namespace ladder::conv1d
