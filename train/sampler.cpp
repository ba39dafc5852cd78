#include "train/sampler.h"

#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "core/backend.h"
#include "core/error.h"
#include "core/graph.h"
#include "train/program.h"

namespace ladder::train {
namespace {

std::size_t padded(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

struct Sampler::Impl {
  Impl(const SamplerOptions& sampler_options, const Parameters& parameters, const WeightRegions& weights,
       const Promotions& promotions)
      : options(sampler_options),
        net(options.model, parameters, options.dtype, options.images, weights),
        rows(table()),
        step_at(padded(options.images * sizeof(float))),
        philox_at(step_at + 256),
        input_bytes(philox_at + 256),
        inputs("a step's inputs", input_bytes),
        coefficients("the sampler's table", rows.size() * sizeof(diffusion::Step)),
        x("x", elements() * sizeof(float)),
        host_inputs(input_bytes * rows.size()) {
    if (options.images < 1) throw UsageError("there is at least one image to sample");
    if (net.stored() != Dtype::f32) y.emplace("x as the model takes it", elements() * size_of(net.stored()));
    backend::copy_in(coefficients.base, rows.data(), coefficients.bytes);
    begin = std::make_unique<Program>(first_noise(), promotions);
    step = std::make_unique<Program>(denoising(), promotions);
  }

  std::size_t elements() const { return options.images * options.model.image_elements(); }

  std::vector<diffusion::Step> table() const {
    const auto schedule = diffusion::make_schedule(options.betas);
    const auto timesteps = diffusion::sampled_timesteps(diffusion::Spacing::leading, options.steps);
    if (options.kind == SamplerKind::ddim) {
      return diffusion::ddim_table(schedule, timesteps, options.eta_percent / 100.0, options.clip, false);
    }
    using diffusion::Variance;
    return diffusion::ddpm_table(schedule, timesteps, options.large ? Variance::fixed_large : Variance::fixed_small,
                                 options.clip);
  }

  std::string problem(Dtype dtype) const {
    const int side = options.model.image_size;
    std::string line = fmt::format("n{} h{} w{} c{}", options.images, side, side, kImageChannels);
    if (options.betas == diffusion::Betas::cosine) line += " cosine";
    if (options.large) line += " large";
    if (!options.clip) line += " no-clip";
    return fmt::format("{} steps{}{} {}", line, options.steps, eta() == 0 ? "" : fmt::format(" eta{}", eta()),
                       name(dtype));
  }
  int eta() const { return options.kind == SamplerKind::ddim ? options.eta_percent : 0; }
  std::vector<std::int64_t> shape() const {
    return {options.images, options.model.image_size, options.model.image_size, kImageChannels};
  }

  Tape first_noise() const {
    Tape tape;
    const ValueId philox = tape.value("philox", Dtype::i64, {2}, inputs, philox_at);
    tape.run("noise", "diffusion/noise", problem(Dtype::f32),
             {{"philox", philox}, {"noise", tape.value("x", Dtype::f32, shape(), x)}});
    return tape;
  }

  Tape denoising() const {
    Tape tape;
    const ValueId t = tape.value("t", Dtype::f32, {options.images}, inputs);
    const ValueId step_number = tape.value("step", Dtype::i32, {1}, inputs, step_at);
    const ValueId philox = tape.value("philox", Dtype::i64, {2}, inputs, philox_at);
    const ValueId table_rows = tape.value(
        "table", Dtype::f32, {static_cast<std::int64_t>(rows.size()), diffusion::kStepColumns}, coefficients);
    const ValueId now = tape.value("x", Dtype::f32, shape(), x);
    const ValueId input = y ? tape.value("y", net.stored(), shape(), *y) : now;
    const ValueId eps = net.forward(tape, input, t);
    const bool is_ddim = options.kind == SamplerKind::ddim;
    ValueId noise = kNoValue;
    if (!is_ddim || eta() != 0) {
      noise = tape.value("noise", Dtype::f32, shape());
      tape.run("noise", "diffusion/noise", problem(Dtype::f32), {{"philox", philox}, {"noise", noise}});
    }
    const char* const pass = is_ddim ? "diffusion/ddim_step" : "diffusion/ddpm_step";
    const std::string line = problem(net.stored());
    tape.run("step", pass, line,
             {{"eps", eps},
              {"noise", noise},
              {"table", table_rows},
              {"step", step_number},
              {"x", now},
              {"y", y ? input : kNoValue}});
    return tape;
  }

  // The inputs of every step; the first noise has a stream behind theirs.
  void write_inputs(std::int64_t seed, std::int64_t first) {
    const auto steps = static_cast<std::int64_t>(rows.size());
    for (std::int64_t i = 0; i < steps; ++i) {
      auto* const at = static_cast<std::byte*>(host_inputs.data()) + i * input_bytes;
      const std::vector<float> t(options.images, rows[i].timestep);
      const auto number = static_cast<std::int32_t>(i);
      const std::int64_t philox[2] = {seed, stream(first, i)};
      std::memcpy(at, t.data(), t.size() * sizeof(float));
      std::memcpy(at + step_at, &number, sizeof(number));
      std::memcpy(at + philox_at, philox, sizeof(philox));
    }
  }
  std::int64_t stream(std::int64_t first, std::int64_t step_number) const {
    return first / options.images * (diffusion::kTimesteps + 1) + step_number;
  }

  // x as the model takes it, where that is another type: what the steps do themselves behind the first noise.
  void round_x() const {
    if (!y) return;
    std::vector<float> values(elements());
    backend::copy_out(values.data(), x.base, x.bytes);
    std::vector<std::byte> rounded(y->bytes);
    encode(net.stored(), values.data(), values.size(), rounded.data());
    backend::copy_in(y->base, rounded.data(), rounded.size());
  }

  std::vector<float> run(std::int64_t seed, std::int64_t first) {
    const std::int64_t philox[2] = {seed, stream(first, diffusion::kTimesteps)};
    backend::copy_in(static_cast<std::byte*>(inputs.base) + philox_at, philox, sizeof(philox));
    begin->enqueue(queue);
    queue.synchronize();
    round_x();
    write_inputs(seed, first);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      copy_in_async(inputs.base, static_cast<const std::byte*>(host_inputs.data()) + i * input_bytes, input_bytes,
                    queue);
      if (graph) {
        graph->replay(queue);
        continue;
      }
      step->enqueue(queue);
      if (options.graph) {  // its kernels are loaded now
        queue.synchronize();
        graph.emplace(Graph::capture([&](Stream on) { step->enqueue(on); }));
      }
    }
    queue.synchronize();
    std::vector<float> images(elements());
    backend::copy_out(images.data(), x.base, x.bytes);
    return images;
  }

  SamplerOptions options;
  Unet net;
  std::vector<diffusion::Step> rows;
  std::size_t step_at, philox_at, input_bytes;  // t lies at 0
  OwnedRegion inputs, coefficients, x;
  std::optional<OwnedRegion> y;
  PinnedBuffer host_inputs;  // of all steps
  std::unique_ptr<Program> begin, step;
  OwnedStream queue;
  std::optional<Graph> graph;
};

Sampler::Sampler(const SamplerOptions& options, const Parameters& parameters, const WeightRegions& weights,
                 const Promotions& promotions)
    : impl_(std::make_unique<Impl>(options, parameters, weights, promotions)) {}

Sampler::~Sampler() = default;

std::vector<float> Sampler::run(std::int64_t seed, std::int64_t first) { return impl_->run(seed, first); }

}  // namespace ladder::train
