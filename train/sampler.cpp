#include "train/sampler.h"

#include <cstring>
#include <optional>

#include "core/backend.h"
#include "core/error.h"
#include "core/graph.h"
#include "runtime/program.h"
#include "train/denoising.h"

namespace ladder::train {
struct Sampler::Impl {
  Impl(const SamplerOptions& sampler_options, const nn::Model& network, const nn::Parameters& parameters,
       const nn::WeightRegions& weights, const Promotions& promotions)
      : options(sampler_options),
        model(network),
        binding{.parameters = &parameters, .weights = weights, .dtype = options.dtype, .promotions = &promotions},
        rows(table()),
        step_at(padded(options.images * sizeof(float))),
        philox_at(step_at + 256),
        input_bytes(philox_at + 256),
        inputs("a step's inputs", input_bytes),
        coefficients("the sampler's table", rows.size() * sizeof(diffusion::Step)),
        x("x", elements() * sizeof(float)),
        host_inputs(input_bytes * rows.size()) {
    if (options.images < 1) throw UsageError("there is at least one image to sample");
    if (stored() != Dtype::f32) y.emplace("x as the model takes it", elements() * size_of(stored()));
    backend::copy_in(coefficients.base, rows.data(), coefficients.bytes);
    begin = std::make_unique<Program>(first_noise(), promotions);
    step = std::make_unique<Program>(denoising(), promotions);
  }

  Dtype stored() const { return storage_dtype(options.dtype); }
  std::vector<std::int64_t> shape() const { return model.shape(options.images); }
  std::size_t elements() const { return static_cast<std::size_t>(model.elements(options.images)); }

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

  diffusion::Problem problem(Dtype dtype) const {
    diffusion::Problem p = diffusion_problem(model, options.images, dtype);
    p.cosine = options.betas == diffusion::Betas::cosine;
    p.large = options.large;
    p.no_clip = !options.clip;
    p.steps = options.steps;
    p.eta = eta();
    return p;
  }
  int eta() const { return options.kind == SamplerKind::ddim ? options.eta_percent : 0; }

  Tape first_noise() const {
    Tape tape;
    const ValueId philox = tape.value("philox", Dtype::i64, {2}, inputs, philox_at);
    tape.run<diffusion::Noise>("noise", problem(Dtype::f32),
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
    const ValueId input = y ? tape.value("y", stored(), shape(), *y) : now;
    const ValueId eps = model.forward(tape, binding, input, t);
    const bool is_ddim = options.kind == SamplerKind::ddim;
    ValueId noise = kNoValue;
    if (!is_ddim || eta() != 0) {
      noise = tape.value("noise", Dtype::f32, shape());
      tape.run<diffusion::Noise>("noise", problem(Dtype::f32), {{"philox", philox}, {"noise", noise}});
    }
    const Case step =
        is_ddim ? case_of<diffusion::DdimStep>(problem(stored())) : case_of<diffusion::DdpmStep>(problem(stored()));
    tape.run("step", step,
             {{"eps", eps},
              {"noise", noise},
              {"table", table_rows},
              {"step", step_number},
              {"x", now},
              {"y", y ? input : kNoValue}});
    return tape;
  }

  // The inputs of every step; the first noise has a stream after theirs.
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

  // x as the model takes it, where that is another type: what the steps do themselves after the first noise.
  void round_x() const {
    if (!y) return;
    std::vector<float> values(elements());
    backend::copy_out(values.data(), x.base, x.bytes);
    std::vector<std::byte> rounded(y->bytes);
    encode(stored(), values.data(), values.size(), rounded.data());
    backend::copy_in(y->base, rounded.data(), rounded.size());
  }

  std::vector<float> run(std::int64_t seed, std::int64_t first, const std::function<void(int)>& after_step) {
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
      } else {
        step->enqueue(queue);
        if (options.graph) {  // its kernels are loaded now
          queue.synchronize();
          graph.emplace(Graph::capture([&](Stream on) { step->enqueue(on); }));
        }
      }
      if (after_step) after_step(static_cast<int>(i + 1));
    }
    queue.synchronize();
    std::vector<float> images(elements());
    backend::copy_out(images.data(), x.base, x.bytes);
    return images;
  }

  SamplerOptions options;
  const nn::Model& model;
  nn::Binding binding;
  std::vector<diffusion::Step> rows;
  std::size_t step_at, philox_at, input_bytes;  // t lies at 0
  OwnedRegion inputs, coefficients, x;
  std::optional<OwnedRegion> y;
  PinnedBuffer host_inputs;  // of all steps
  std::unique_ptr<Program> begin, step;
  OwnedStream queue;
  std::optional<Graph> graph;
};

Sampler::Sampler(const SamplerOptions& options, const nn::Model& model, const nn::Parameters& parameters,
                 const nn::WeightRegions& weights, const Promotions& promotions)
    : impl_(std::make_unique<Impl>(options, model, parameters, weights, promotions)) {}

Sampler::~Sampler() = default;

std::vector<float> Sampler::run(std::int64_t seed, std::int64_t first, const std::function<void(int)>& after_step) {
  return impl_->run(seed, first, after_step);
}

}  // namespace ladder::train
