#include "dev/add/add.h"

#include <random>

#include "core/problem_line.h"

namespace ladder::add {
namespace {

TensorSpec image(const char* name, Role role, const Problem& p) {
  return {.name = name, .role = role, .dtype = p.dtype, .shape = {p.n, p.h, p.w, p.c}, .layout = "nhwc"};
}

TensorSpec per_image(const char* name, Role role, const Problem& p) {
  return {.name = name, .role = role, .dtype = Dtype::f32, .shape = {p.n, p.row()}, .layout = "nc"};
}

double image_bytes(const Problem& p) { return static_cast<double>(p.elements()) * size_of(p.dtype); }
double row_bytes(const Problem& p) { return static_cast<double>(p.n) * p.c * sizeof(float); }

}  // namespace

std::string Problem::str() const {
  const auto word = [](char letter, int value) { return letter + std::to_string(value) + ' '; };
  return word('n', n) + word('h', h) + word('w', w) + word('c', c) +
         (pitch == 0 ? "" : "pitch" + std::to_string(pitch) + " first" + std::to_string(first) + ' ') + name(dtype);
}

Problem Problem::parse(std::string_view text) {
  ProblemLine line(text, "n32 h64 w64 c64 [pitch3712 first128] [fp32|bf16|fp16]");
  constexpr int kMax = 1 << 20;
  Problem p;
  p.n = static_cast<int>(line.size("n", 1, kMax));
  p.h = static_cast<int>(line.size("h", 1, kMax));
  p.w = static_cast<int>(line.size("w", 1, kMax));
  p.c = static_cast<int>(line.size("c", 1, kMax));
  p.pitch = static_cast<int>(line.size_or("pitch", 0, 1, kMax));
  if (p.pitch != 0) p.first = static_cast<int>(line.size("first", 0, kMax));
  p.dtype = line.dtype(Dtype::f32);
  line.finish();
  if (p.pitch != 0 && p.first + p.c > p.pitch) line.fail("c columns from `first` on are more than `pitch`");
  // Kernels index elements with 32 bits, and count images in a grid's y.
  constexpr double kMaxElements = 2147483647.0;
  constexpr int kMaxImages = 65535;
  if (double(p.n) * p.h * p.w * p.c > kMaxElements) line.fail("a tensor of more than 2^31 - 1 elements");
  if (p.n > kMaxImages) line.fail("more than 65535 images");
  return p;
}

Problem Problem::random(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  // Small sizes are drawn as often as large ones.
  const auto draw = [&](int most) { return static_cast<int>(1 + random() % (1 + random() % most)); };
  // The gradient of a single pixel is a copy.
  Problem p{.n = draw(4), .h = 1 + draw(15), .w = draw(16), .c = 1 + draw(90)};
  if (random() % 3 == 0) {
    p.first = draw(8) - 1;
    p.pitch = p.first + p.c + draw(8) - 1;
  }
  return p;
}

std::vector<TensorSpec> Residual::tensors(const Problem& p) {
  return {image("a", Role::input, p), image("b", Role::input, p), image("y", Role::output, p)};
}

double Residual::flops(const Problem& p) { return static_cast<double>(p.elements()); }

std::vector<TensorSpec> Embedding::tensors(const Problem& p) {
  return {image("x", Role::input, p), per_image("e", Role::input, p), image("y", Role::output, p)};
}

std::vector<TensorSpec> EmbeddingBackward::tensors(const Problem& p) {
  std::vector<TensorSpec> specs = {image("dy", Role::input, p),
                                   per_image("de", p.pitch == 0 ? Role::output : Role::inout, p)};
  specs.back().reduction_length = p.pixels();
  return specs;
}

Traffic Embedding::traffic(const Problem& p) {
  return {.read_bytes = image_bytes(p) + row_bytes(p), .write_bytes = image_bytes(p)};
}

Traffic EmbeddingBackward::traffic(const Problem& p) {
  return {.read_bytes = image_bytes(p), .write_bytes = row_bytes(p)};
}

}  // namespace ladder::add
