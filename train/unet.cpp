#include "train/unet.h"

#include <map>
#include <memory>

#include <fmt/format.h>

#include "core/error.h"

namespace ladder::train {

Unet::Unet(const ModelConfig& config, const Parameters& parameters, Dtype dtype, int images,
           const WeightRegions& weights, const GradientRegions* gradients)
    : config_(config),
      architecture_(config),
      parameters_(parameters),
      dtype_(dtype),
      images_(images),
      weights_(weights),
      gradients_(gradients) {}

class Unet::Builder {
 public:
  Builder(const Unet& net, Tape& tape) : net_(net), tape_(tape), n_(net.images_) {}

  ValueId forward(ValueId x, ValueId t, const Region* prediction) {
    embed(t);
    std::vector<ValueId> skips;
    for (const Block& block : net_.architecture_.down) {
      x = run(block, x);
      skips.push_back(x);
    }
    x = run(net_.architecture_.middle, x);
    for (const Block& block : net_.architecture_.up) {
      const int c = block.layers.front().in - block.skip;
      x = concat(block.layers.front().name, x, skips.back(), c, block.skip, block.layers.front().side);
      skips.pop_back();
      x = run(block, x);
    }
    const int channels = net_.config_.level_channels(0);
    const int side = net_.config_.image_size;
    x = group_norm("out.0", x, channels, side, "silu");
    return conv3x3("out.2", x, channels, kImageChannels, side, prediction);
  }

 private:
  struct Concatenation {
    ValueId a, b;
    int channels_a;
  };

  // Values.
  ValueId image(const std::string& name, int side, int channels) {
    return tape_.value(name, net_.stored(), {n_, side, side, channels});
  }
  ValueId matrix(const std::string& name) {
    const Parameter& p = net_.parameters_[name];
    return tape_.value(name, net_.stored(), p.shape, *net_.weights_.copies, p.begin * size_of(net_.stored()));
  }
  ValueId fp32_parameter(const std::string& name) {
    const Parameter& p = net_.parameters_[name];
    return tape_.value(name, Dtype::f32, p.shape, *net_.weights_.values, p.begin * sizeof(float));
  }
  ValueId matrix_gradient(const std::string& name) {
    const Parameter& p = net_.parameters_[name];
    return tape_.value("d " + name, net_.stored(), p.shape, *net_.gradients_->matrices,
                       p.begin * size_of(net_.stored()));
  }
  ValueId fp32_gradient(const std::string& name) {
    const Parameter& p = net_.parameters_[name];
    return tape_.value("d " + name, Dtype::f32, p.shape, *net_.gradients_->others, p.begin * sizeof(float));
  }
  ValueId like(ValueId id) {
    const Value value = tape_[id];
    return tape_.value("d " + value.name, value.dtype, value.shape);
  }
  bool trains() const { return net_.gradients_ != nullptr; }
  const char* dtype() const { return ladder::name(net_.dtype_); }
  const char* stored() const { return ladder::name(net_.stored()); }

  ValueId run(const Block& block, ValueId x) {
    for (const Layer& layer : block.layers) {
      switch (layer.kind) {
        case Layer::Kind::conv:
          x = conv3x3(layer.name, x, layer.in, layer.out, layer.side);
          break;
        case Layer::Kind::res_block:
          x = res_block(layer, x);
          break;
        case Layer::Kind::attention:
          x = attention_block(layer, x);
          break;
        case Layer::Kind::pool:
          x = pool(layer, x);
          break;
        case Layer::Kind::upsample:
          x = upsample(layer, x);
          break;
      }
    }
    return x;
  }

  // h = conv(silu(norm(x))) + embedding;  y = skip(x) + conv(silu(norm(h)))
  ValueId res_block(const Layer& layer, ValueId x) {
    const std::string& name = layer.name;
    const std::string skip = name + ".skip_connection";
    const bool projects = layer.in != layer.out;
    const ValueId y = projects ? image(skip, layer.side, layer.out) : kNoValue;
    if (projects && trains()) {
      // Said first, so done last: x has the other path's gradient by then, to which this one is added on the way.
      tape_.on_backward([=, this] { conv1x1_input_gradient(skip, x, y, layer.in, layer.out, layer.side); });
    }
    ValueId h = group_norm(name + ".in_layers.0", x, layer.in, layer.side, "silu");
    h = conv3x3(name + ".in_layers.2", h, layer.in, layer.out, layer.side);
    h = add_embedding(name, h, layer.out, layer.side);
    h = group_norm(name + ".out_layers.0", h, layer.out, layer.side, "silu");
    h = conv3x3(name + ".out_layers.3", h, layer.out, layer.out, layer.side);
    if (!projects) return residual(name, x, h, layer.out, layer.side);
    conv1x1_to(y, skip, x, layer.in, layer.out, layer.side, h);
    return y;
  }

  // y = x + proj(attention(qkv(norm(x))))
  ValueId attention_block(const Layer& layer, ValueId x) {
    const std::string& name = layer.name;
    ValueId h = group_norm(name + ".norm", x, layer.in, layer.side, "");
    h = conv1x1(name + ".qkv", h, layer.in, 3 * layer.in, layer.side);
    h = attention(name, h, layer.in, layer.side);
    return conv1x1(name + ".proj_out", h, layer.in, layer.in, layer.side, x);
  }

  ValueId conv3x3(const std::string& name, ValueId x, int in, int out, int side, const Region* result = nullptr) {
    const std::string problem = fmt::format("n{} h{} w{} c{} k{} bias {}", n_, side, side, in, out, dtype());
    const ValueId w = matrix(name + ".weight");
    const ValueId y =
        result == nullptr ? image(name, side, out) : tape_.value(name, net_.stored(), {n_, side, side, out}, *result);
    tape_.run(name, "conv3x3/fprop", problem, {{"x", x}, {"w", w}, {"bias", fp32_parameter(name + ".bias")}, {"y", y}});
    if (trains()) {
      const bool is_first = tape_[x].region != nullptr;  // the noised image: nobody asks for its gradient
      tape_.on_backward([=, this] {
        const ValueId dy = tape_.gradient(y);
        tape_.run(name, "conv3x3/wgrad", problem,
                  {{"x", x},
                   {"dy", dy},
                   {"dw", matrix_gradient(name + ".weight")},
                   {"dbias", fp32_gradient(name + ".bias")}});
        if (is_first) return;
        const ValueId dx = like(x);
        tape_.run(name, "conv3x3/dgrad", problem, {{"dy", dy}, {"w", w}, {"dx", dx}});
        tape_.add_gradient(x, dx);
      });
    }
    return y;
  }

  ValueId conv1x1(const std::string& name, ValueId x, int in, int out, int side, ValueId residual = kNoValue) {
    const ValueId y = image(name, side, out);
    if (trains()) {
      tape_.on_backward([=, this] { conv1x1_input_gradient(name, x, y, in, out, side); });
    }
    conv1x1_to(y, name, x, in, out, side, residual);
    return y;
  }

  // With a residual where one is given, which is added. The input's gradient is the caller's.
  void conv1x1_to(ValueId y, const std::string& name, ValueId x, int in, int out, int side, ValueId residual) {
    const std::string problem = conv1x1_problem(in, out, side, "");
    tape_.run(name, "gemm/fprop", residual == kNoValue ? problem : conv1x1_problem(in, out, side, " residual"),
              {{"x", x},
               {"w", matrix(name + ".weight")},
               {"bias", fp32_parameter(name + ".bias")},
               {"r", residual},
               {"y", y}});
    if (!trains()) return;
    tape_.on_backward([=, this] {
      const ValueId dy = tape_.gradient(y);
      if (residual != kNoValue) tape_.add_gradient(residual, dy);
      tape_.run(
          name, "gemm/wgrad", problem,
          {{"x", x}, {"dy", dy}, {"dw", matrix_gradient(name + ".weight")}, {"dbias", fp32_gradient(name + ".bias")}});
    });
  }

  // Adds to what x has already, in the same operation; of a concatenation, as the gradients of its parts.
  void conv1x1_input_gradient(const std::string& name, ValueId x, ValueId y, int in, int out, int side) {
    const ValueId so_far = tape_.has_gradient(x) ? tape_.gradient(x) : kNoValue;
    const auto parts = concatenations_.find(x);
    const bool split = parts != concatenations_.end();
    const ValueId dx = like(split ? parts->second.a : x);
    const ValueId dx_rest = split ? like(parts->second.b) : kNoValue;
    const std::string words = fmt::format("{}{}", so_far == kNoValue ? "" : " accumulate",
                                          split ? fmt::format(" split{}", parts->second.channels_a) : "");
    tape_.run(
        name, "gemm/dgrad", conv1x1_problem(in, out, side, words),
        {{"dy", tape_.gradient(y)}, {"w", matrix(name + ".weight")}, {"r", so_far}, {"dx", dx}, {"dx_rest", dx_rest}});
    if (!split) return tape_.replace_gradient(x, dx);
    if (tape_.has_gradient(parts->second.b))
      throw Failure(name + ": the skip has a gradient before its concatenation's");
    tape_.add_gradient(parts->second.a, dx);
    tape_.add_gradient(parts->second.b, dx_rest);
  }

  std::string conv1x1_problem(int in, int out, int side, std::string_view words) const {
    return fmt::format("m{} n{} k{} bias{} {}", n_ * side * side, out, in, words, dtype());
  }

  ValueId group_norm(const std::string& name, ValueId x, int channels, int side, std::string_view activation) {
    const std::string problem = fmt::format("n{} h{} w{} c{} g{}{}{} {}", n_, side, side, channels, kGroups,
                                            activation.empty() ? "" : " ", activation, stored());
    const ValueId gamma = fp32_parameter(name + ".weight");
    const ValueId beta = fp32_parameter(name + ".bias");
    const ValueId y = image(name, side, channels);
    const ValueId mean = tape_.value(name + " mean", Dtype::f32, {n_, kGroups});
    const ValueId rstd = tape_.value(name + " rstd", Dtype::f32, {n_, kGroups});
    tape_.run(name, "groupnorm/forward", problem,
              {{"x", x}, {"gamma", gamma}, {"beta", beta}, {"y", y}, {"mean", mean}, {"rstd", rstd}});
    if (trains()) {
      tape_.on_backward([=, this] {
        const ValueId dx = like(x);
        tape_.run(name, "groupnorm/backward", problem,
                  {{"x", x},
                   {"dy", tape_.gradient(y)},
                   {"gamma", gamma},
                   {"beta", beta},
                   {"mean", mean},
                   {"rstd", rstd},
                   {"dx", dx},
                   {"dgamma", fp32_gradient(name + ".weight")},
                   {"dbeta", fp32_gradient(name + ".bias")}});
        tape_.add_gradient(x, dx);
      });
    }
    return y;
  }

  ValueId attention(const std::string& name, ValueId qkv, int channels, int side) {
    const int d = net_.config_.head_size;
    const std::string problem = fmt::format("n{} t{} heads{} d{} {}", n_, side * side, channels / d, d, dtype());
    const ValueId o = image(name + ".attention", side, channels);
    const ValueId lse = tape_.value(name + " lse", Dtype::f32, {n_, channels / d, side * side});
    tape_.run(name, "attention/forward", problem, {{"qkv", qkv}, {"o", o}, {"lse", lse}});
    if (trains()) {
      tape_.on_backward([=, this] {
        const ValueId dqkv = like(qkv);
        tape_.run(name, "attention/backward", problem,
                  {{"qkv", qkv}, {"o", o}, {"lse", lse}, {"d_o", tape_.gradient(o)}, {"dqkv", dqkv}});
        tape_.add_gradient(qkv, dqkv);
      });
    }
    return o;
  }

  ValueId residual(const std::string& name, ValueId a, ValueId b, int channels, int side) {
    const ValueId y = image(name, side, channels);
    tape_.run(name, "add/residual", fmt::format("n{} h{} w{} c{} {}", n_, side, side, channels, stored()),
              {{"a", a}, {"b", b}, {"y", y}});
    if (trains()) {
      tape_.on_backward([=, this] {
        tape_.add_gradient(a, tape_.gradient(y));
        tape_.add_gradient(b, tape_.gradient(y));
      });
    }
    return y;
  }

  // Its gradient is the skip convolution's behind it, which every block has whose input is wider than its output.
  ValueId concat(const std::string& name, ValueId a, ValueId b, int c, int k, int side) {
    const std::string problem = fmt::format("n{} h{} w{} c{} k{} {}", n_, side, side, c, k, stored());
    const ValueId y = image(name + " input", side, c + k);
    tape_.run(name, "concat/join", problem, {{"a", a}, {"b", b}, {"y", y}});
    concatenations_[y] = {.a = a, .b = b, .channels_a = c};
    return y;
  }

  ValueId pool(const Layer& layer, ValueId x) {
    const std::string problem = fmt::format("n{} h{} w{} c{} {}", n_, layer.side, layer.side, layer.in, stored());
    const ValueId y = image(layer.name, layer.side / 2, layer.in);
    tape_.run(layer.name, "resample/pool", problem, {{"x", x}, {"y", y}});
    if (trains()) {
      tape_.on_backward([=, this, name = layer.name] {
        const ValueId dx = like(x);
        tape_.run(name, "resample/pool_backward", problem, {{"dy", tape_.gradient(y)}, {"dx", dx}});
        tape_.add_gradient(x, dx);
      });
    }
    return y;
  }

  ValueId upsample(const Layer& layer, ValueId x) {
    const int side = 2 * layer.side;
    const std::string problem = fmt::format("n{} h{} w{} c{} {}", n_, side, side, layer.in, stored());
    const ValueId y = image(layer.name, side, layer.in);
    tape_.run(layer.name, "resample/upsample", problem, {{"x", x}, {"y", y}});
    if (trains()) {
      tape_.on_backward([=, this, name = layer.name] {
        const ValueId dx = like(x);
        tape_.run(name, "resample/upsample_backward", problem, {{"dy", tape_.gradient(y)}, {"dx", dx}});
        tape_.add_gradient(x, dx);
      });
    }
    return y;
  }

  // The time embedding: fp32 throughout, as 32 rows cost nothing.
  ValueId linear(const std::string& name, ValueId x, ValueId w, ValueId b, int in, int out,
                 const std::function<void(ValueId dy)>& weight_gradients, bool needs_dx, ValueId dy_region = kNoValue) {
    const std::string problem = fmt::format("m{} n{} k{} bias fp32", n_, out, in);
    const ValueId y = tape_.value(name, Dtype::f32, {n_, out});
    tape_.run(name, "gemm/fprop", problem, {{"x", x}, {"w", w}, {"bias", b}, {"y", y}});
    if (trains()) {
      tape_.on_backward([=, this] {
        const ValueId dy = dy_region == kNoValue ? tape_.gradient(y) : dy_region;
        weight_gradients(dy);
        if (!needs_dx) return;
        const ValueId dx = like(x);
        tape_.run(name, "gemm/dgrad", problem, {{"dy", dy}, {"w", w}, {"dx", dx}});
        tape_.add_gradient(x, dx);
      });
    }
    return y;
  }

  ValueId linear(const std::string& name, ValueId x, int in, int out, bool needs_dx) {
    const auto gradients = [=, this](ValueId dy) {
      tape_.run(
          name, "gemm/wgrad", fmt::format("m{} n{} k{} bias fp32", n_, out, in),
          {{"x", x}, {"dy", dy}, {"dw", fp32_gradient(name + ".weight")}, {"dbias", fp32_gradient(name + ".bias")}});
    };
    return linear(name, x, fp32_parameter(name + ".weight"), fp32_parameter(name + ".bias"), in, out, gradients,
                  needs_dx);
  }

  ValueId silu(const std::string& name, ValueId x, int channels) {
    const std::string problem = fmt::format("n{} c{} fp32", n_, channels);
    const ValueId y = tape_.value(name, Dtype::f32, {n_, channels});
    tape_.run(name, "silu/forward", problem, {{"x", x}, {"y", y}});
    if (trains()) {
      tape_.on_backward([=, this] {
        const ValueId dx = like(x);
        tape_.run(name, "silu/backward", problem, {{"x", x}, {"dy", tape_.gradient(y)}, {"dx", dx}});
        tape_.add_gradient(x, dx);
      });
    }
    return y;
  }

  void embed(ValueId t) {
    const int channels = net_.config_.channels;
    const int wide = net_.config_.embedding_channels();
    const bool real = tape_[t].dtype == Dtype::f32;
    const ValueId sines = tape_.value("time_embed.sinusoids", Dtype::f32, {n_, channels});
    tape_.run("time_embed", "embedding/timestep", fmt::format("n{} c{}{} fp32", n_, channels, real ? " real" : ""),
              {{"t", t}, {"y", sines}});
    ValueId h = linear("time_embed.0", sines, channels, wide, false);
    h = silu("time_embed.1", h, wide);
    h = linear("time_embed.2", h, wide, wide, true);
    h = silu("emb_layers.0", h, wide);

    // The linear layers of all residual blocks, as one.
    const Parameters& parameters = net_.parameters_;
    const auto rows = static_cast<int>(parameters.embedding_rows());
    const std::size_t w_at = parameters.embedding_weights_begin() * sizeof(float);
    const std::size_t b_at = parameters.embedding_bias_begin() * sizeof(float);
    const ValueId w = tape_.value("emb_layers.1.weight", Dtype::f32, {rows, wide}, *net_.weights_.values, w_at);
    const ValueId b = tape_.value("emb_layers.1.bias", Dtype::f32, {rows}, *net_.weights_.values, b_at);
    if (trains()) {
      embedding_gradient_ = tape_.value("d emb_layers.1", Dtype::f32, {n_, rows}, *net_.gradients_->embedding);
    }
    const auto gradients = [=, this](ValueId dy) {
      const Region& others = *net_.gradients_->others;
      tape_.run("emb_layers.1", "gemm/wgrad", fmt::format("m{} n{} k{} bias fp32", n_, rows, wide),
                {{"x", h},
                 {"dy", dy},
                 {"dw", tape_.value("d emb_layers.1.weight", Dtype::f32, {rows, wide}, others, w_at)},
                 {"dbias", tape_.value("d emb_layers.1.bias", Dtype::f32, {rows}, others, b_at)}});
    };
    embedding_ = linear("emb_layers.1", h, w, b, wide, rows, gradients, true, embedding_gradient_);
  }

  ValueId add_embedding(const std::string& name, ValueId x, int channels, int side) {
    const std::string problem =
        fmt::format("n{} h{} w{} c{} pitch{} first{} {}", n_, side, side, channels, net_.parameters_.embedding_rows(),
                    net_.parameters_.embedding_row(name), stored());
    const ValueId y = image(name + ".embedded", side, channels);
    tape_.run(name, "add/embedding", problem, {{"x", x}, {"e", embedding_}, {"y", y}});
    if (trains()) {
      tape_.on_backward([=, this] {
        const ValueId dy = tape_.gradient(y);
        tape_.run(name, "add/embedding_backward", problem, {{"dy", dy}, {"de", embedding_gradient_}});
        tape_.add_gradient(x, dy);
      });
    }
    return y;
  }

  const Unet& net_;
  Tape& tape_;
  int n_;
  ValueId embedding_ = kNoValue;           // [n, rows of all blocks]
  ValueId embedding_gradient_ = kNoValue;  // likewise
  std::map<ValueId, Concatenation> concatenations_;
};

ValueId Unet::forward(Tape& tape, ValueId x, ValueId t, const Region* prediction) const {
  const auto builder = std::make_shared<Builder>(*this, tape);
  // The steps of the backward pass refer to it: the one that runs last holds it.
  if (gradients_ != nullptr) tape.on_backward([builder] {});
  return builder->forward(x, t, prediction);
}

}  // namespace ladder::train
