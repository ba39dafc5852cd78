#include "dev/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "core/parallel.h"
#include "core/problem_line.h"

namespace ladder::attention {

namespace {

Strides dense(const Problem& p) { return {.image = p.t * p.c(), .head = p.d, .token = p.c()}; }

// Heads of a separate q, k, v or d_o; zero strides mean dense.
HeadsView heads_of(const Problem& p, const Strides& strides) {
  return {.strides = strides == Strides{} ? dense(p) : strides};
}

struct StrideWords {
  const char* image;
  const char* head;
  const char* token;
  Strides Problem::*strides;
};
constexpr StrideWords kStrideWords[] = {{"q_image", "q_head", "q_token", &Problem::q},
                                        {"k_image", "k_head", "k_token", &Problem::k},
                                        {"v_image", "v_head", "v_token", &Problem::v},
                                        {"d_o_image", "d_o_head", "d_o_token", &Problem::d_o}};

// Elements from the first to the last, inclusive.
std::int64_t span(const Problem& p, const Strides& s) {
  return std::int64_t{p.n - 1} * s.image + std::int64_t{p.heads - 1} * s.head + std::int64_t{p.t - 1} * s.token + p.d;
}

}  // namespace

std::string Problem::str() const {
  const auto word = [](const char* name, int value) { return name + std::to_string(value) + ' '; };
  std::string line = word("n", n) + word("t", t) + word("heads", heads) + word("d", d);
  if (layout == QkvLayout::order_new) line += "order-new ";
  if (layout == QkvLayout::separate) {
    line += "separate ";
    const Strides usual = dense(*this);
    for (const StrideWords& words : kStrideWords) {
      const Strides strides = heads_of(*this, this->*words.strides).strides;
      if (strides.image != usual.image) line += word(words.image, strides.image);
      if (strides.head != usual.head) line += word(words.head, strides.head);
      if (strides.token != usual.token) line += word(words.token, strides.token);
    }
  }
  return line + name(dtype);
}

Problem Problem::parse(std::string_view text) {
  ProblemLine line(text,
                   "n32 t256 heads6 d32 [order-new|separate [q_image# q_head# q_token# k_...]] [fp32|tf32|bf16|fp16]");
  constexpr int kMax = 1 << 20;
  constexpr int kMaxElements = std::numeric_limits<int>::max();  // kernels index with 32-bit signed integers
  Problem p;
  p.n = static_cast<int>(line.size("n", 1, kMax));
  p.t = static_cast<int>(line.size("t", 1, kMaxTokens));
  p.heads = static_cast<int>(line.size("heads", 1, kMax));
  p.d = static_cast<int>(line.size("d", 1, kMax));
  if (p.d != 32 && p.d != 64) line.fail("d must be 32 or 64");
  p.dtype = line.dtype(Dtype::f32);
  if (line.flag("order-new")) p.layout = QkvLayout::order_new;
  if (3.0 * p.n * p.t * p.heads * p.d > kMaxElements) line.fail("a tensor of more than 2^31 - 1 elements");
  if (line.flag("separate")) {
    if (!p.packed() || p.layout == QkvLayout::order_new) line.fail("either order-new or separate");
    p.layout = QkvLayout::separate;
    const Strides usual = dense(p);
    for (const StrideWords& words : kStrideWords) {
      const auto stride = [&](const char* name, int otherwise, int least) {
        return static_cast<int>(line.size_or(name, otherwise, least, kMaxElements));
      };
      const Strides strides = {.image = stride(words.image, usual.image, 0),
                               .head = stride(words.head, usual.head, 0),
                               .token = stride(words.token, usual.token, 1)};
      if (span(p, strides) > kMaxElements) line.fail("a tensor of more than 2^31 - 1 elements");
      if (strides != usual) p.*words.strides = strides;
    }
  }
  line.finish();
  return p;
}

Problem Problem::without_strides() const {
  Problem p = *this;
  p.q = p.k = p.v = p.d_o = {};
  return p;
}

Problem Problem::random(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  // Small sizes are drawn as often as large ones.
  const auto draw = [&](int most) { return static_cast<int>(1 + random() % (1 + random() % most)); };
  Problem p{.n = draw(3), .t = 3 + draw(93), .heads = draw(3)};
  if (random() % 3 == 0) p.d = 64;
  p.layout = static_cast<QkvLayout>(random() % 3);
  if (p.packed()) return p;
  // Draw dense strides, [n, heads, t, d], or a view into a wider tensor with gaps of d to 3d elements; rows stay
  // aligned.
  for (const StrideWords& words : kStrideWords) {
    const int gap = p.d * draw(3);
    const Strides views[] = {{},
                             {.image = p.heads * p.t * p.d, .head = p.t * p.d, .token = p.d},
                             {.image = p.t * (p.c() + gap), .head = p.d, .token = p.c() + gap}};
    p.*words.strides = views[random() % std::size(views)];
    if (p.*words.strides == dense(p)) p.*words.strides = {};
  }
  return p;
}

const char* unaligned_rows(const Problem& p) {
  const int run = 16 / static_cast<int>(size_of(p.dtype));
  for (const StrideWords& words : kStrideWords) {
    const Strides& s = p.*words.strides;
    if (s.image % run != 0 || s.head % run != 0 || s.token % run != 0)
      return "it loads 16 bytes at a time: strides must be multiples of that";
  }
  return nullptr;
}

HeadsView heads_of_part(const Problem& p, int part) {
  const Strides* const separate[] = {&p.q, &p.k, &p.v};
  if (!p.packed()) return heads_of(p, *separate[part]);
  const bool legacy = p.layout == QkvLayout::legacy;
  return {.offset = part * (legacy ? p.d : p.c()),
          .strides = {.image = 3 * p.t * p.c(), .head = legacy ? 3 * p.d : p.d, .token = 3 * p.c()}};
}
HeadsView heads_of_d_o(const Problem& p) { return heads_of(p, p.d_o); }
HeadsView heads_of_o(const Problem& p) { return heads_of(p, {}); }

std::string tensor_of_part(const Problem& p, int part, const char* prefix) {
  return std::string(prefix) + (p.packed() ? "qkv" : std::string(1, "qkv"[part]));
}

namespace {

// Dtype to which p and ds may be rounded as operands of the second product.
std::optional<Dtype> operand_dtype(const Problem& p) {
  return p.dtype == Dtype::f32 ? std::nullopt : std::optional(p.dtype);
}

TensorSpec tokens(const char* name, Role role, const Problem& p, Dtype dtype, int channels) {
  return {.name = name, .role = role, .dtype = dtype, .shape = {p.n, p.t, channels}, .layout = "ntc"};
}

// Spec of a separate tensor: [n, t, heads, d] if dense, else as many elements as its strides span.
TensorSpec heads(std::string name, const Problem& p, const Strides& strides) {
  if (strides == Strides{} || strides == dense(p)) {
    return {.name = std::move(name), .dtype = p.dtype, .shape = {p.n, p.t, p.heads, p.d}, .layout = "nthd"};
  }
  return {.name = std::move(name), .dtype = p.dtype, .shape = {span(p, strides)}, .layout = "x"};
}

// qkv, or q, k and v.
std::vector<TensorSpec> parts(const Problem& p) {
  if (p.packed()) return {tokens("qkv", Role::input, p, p.dtype, 3 * p.c())};
  return {heads("q", p, p.q), heads("k", p, p.k), heads("v", p, p.v)};
}

TensorSpec log_sum_exp(Role role, const Problem& p) {
  return {.name = "lse", .role = role, .dtype = Dtype::f32, .shape = {p.n, p.heads, p.t}, .layout = "nht"};
}

// Reduction length: d channels in the first product, then t tokens in the second.
TensorSpec reduced(const Problem& p, TensorSpec output) {
  output.reduction_length = p.d + p.t;
  return output;
}

// Traffic of a kernel that touches each element once; gaps between rows do not count.
Traffic rows_once(const std::vector<TensorSpec>& specs, const std::vector<TensorSpec>& without_strides) {
  Traffic traffic;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const auto bytes = static_cast<double>(std::min(specs[i].bytes(), without_strides[i].bytes()));
    (specs[i].is_read() ? traffic.read_bytes : traffic.write_bytes) += bytes;
  }
  return traffic;
}

}  // namespace

std::vector<TensorSpec> Forward::tensors(const Problem& p) {
  std::vector<TensorSpec> specs = parts(p);
  specs.push_back(reduced(p, tokens("o", Role::output, p, storage_dtype(p.dtype), p.c())));
  specs.back().intermediate = operand_dtype(p);
  specs.push_back(reduced(p, log_sum_exp(Role::output, p)));
  return specs;
}

Forward::Tensors Forward::bind(const Pointers& at) {
  return {.qkv = at.get<const void>("qkv"),
          .o = at["o"],
          .lse = at.get<float>("lse"),
          .q = at.get<const void>("q"),
          .k = at.get<const void>("k"),
          .v = at.get<const void>("v")};
}

Traffic Forward::traffic(const Problem& p) { return rows_once(tensors(p), tensors(p.without_strides())); }

double Forward::flops(const Problem& p) { return 4.0 * static_cast<double>(p.scores()) * p.d; }

std::vector<TensorSpec> Backward::tensors(const Problem& p) {
  std::vector<TensorSpec> specs = parts(p);
  specs.push_back(tokens("o", Role::input, p, storage_dtype(p.dtype), p.c()));
  specs.push_back(log_sum_exp(Role::input, p));
  specs.push_back(p.packed() ? tokens("d_o", Role::input, p, p.dtype, p.c()) : heads("d_o", p, p.d_o));
  for (TensorSpec gradient : parts(p.without_strides())) {
    gradient.name.insert(0, "d");
    gradient.role = Role::output;
    gradient.dtype = storage_dtype(p.dtype);
    gradient.intermediate = operand_dtype(p);
    specs.push_back(reduced(p, std::move(gradient)));
  }
  return specs;
}

Backward::Tensors Backward::bind(const Pointers& at) {
  return {.qkv = at.get<const void>("qkv"),
          .o = at["o"],
          .lse = at.get<const float>("lse"),
          .d_o = at["d_o"],
          .dqkv = at.get<void>("dqkv"),
          .q = at.get<const void>("q"),
          .k = at.get<const void>("k"),
          .v = at.get<const void>("v"),
          .dq = at.get<void>("dq"),
          .dk = at.get<void>("dk"),
          .dv = at.get<void>("dv")};
}

Traffic Backward::traffic(const Problem& p) { return rows_once(tensors(p), tensors(p.without_strides())); }

double Backward::flops(const Problem& p) { return 10.0 * static_cast<double>(p.scores()) * p.d; }

void Backward::derive(const Problem& p, HostTensors& inputs) {
  const Attended a = attend(p, inputs);
  std::vector<float>& o = inputs["o"];
  o.resize(a.o.size());
  std::transform(a.o.begin(), a.o.end(), o.begin(),
                 [&](double value) { return round_to(storage_dtype(p.dtype), static_cast<float>(value)); });
  inputs["lse"].assign(a.lse.begin(), a.lse.end());
}

Attended attend(const Problem& p, const HostTensors& inputs) {
  Attended a{.o = std::vector<double>(p.tokens() * p.c()), .lse = std::vector<double>(p.tokens() * p.heads)};
  const double scale = 1 / std::sqrt(static_cast<double>(p.d));
  const std::vector<float>& qs = inputs[tensor_of_part(p, 0)];
  const std::vector<float>& ks = inputs[tensor_of_part(p, 1)];
  const std::vector<float>& vs = inputs[tensor_of_part(p, 2)];
  parallel_for(std::int64_t{p.n} * p.heads, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> e(p.t);
    for (std::int64_t index = begin; index < end; ++index) {
      const std::int64_t image = index / p.heads;
      const auto head = static_cast<int>(index % p.heads);
      const HeadView q = heads_of_part(p, 0).head_view(image, head);
      const HeadView k = heads_of_part(p, 1).head_view(image, head);
      const HeadView v = heads_of_part(p, 2).head_view(image, head);
      const HeadView out = heads_of_o(p).head_view(image, head);
      for (int i = 0; i < p.t; ++i) {
        for (int j = 0; j < p.t; ++j) {
          const float* q_row = &qs[q.first + i * q.pitch];
          const float* k_row = &ks[k.first + j * k.pitch];
          double dot = 0;
          for (int x = 0; x < p.d; ++x) dot += double(q_row[x]) * k_row[x];
          e[j] = scale * dot;
        }
        const double most = *std::max_element(e.begin(), e.end());
        double sum = 0;
        for (double& value : e) sum += value = std::exp(value - most);
        a.lse[index * p.t + i] = most + std::log(sum);
        double* o_row = &a.o[out.first + i * out.pitch];
        for (int j = 0; j < p.t; ++j) {
          const float* v_row = &vs[v.first + j * v.pitch];
          for (int x = 0; x < p.d; ++x) o_row[x] += e[j] / sum * v_row[x];
        }
      }
    }
  });
  return a;
}

}  // namespace ladder::attention
