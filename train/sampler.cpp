#include "train/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "core/backend.h"
#include "core/ceil_div.h"
#include "core/error.h"
#include "core/graph.h"
#include "runtime/program.h"
#include "train/epsilon_objective.h"

namespace ladder::train {
namespace {

// Arguments that a sampling step reads from the device, besides images and time steps.
struct StepArguments {
  std::int64_t philox[3];   // seed, offset and first image of the step's noise
  std::int32_t number;      // the step's row of the coefficient table
  std::int32_t unused = 0;  // 8-byte alignment
};

const SamplerOptions& checked(const SamplerOptions& options) {
  if (options.images < 1) throw UsageError("there is at least one image to sample");
  if (options.graph_steps < 1) throw UsageError("there is at least one step in a graph");
  return options;
}

}  // namespace

// Runs the sampling in chunks of steps. The program `steps` is one chunk: the embeddings of all its steps, then each
// step.
struct Sampler::Impl {
  Impl(const SamplerOptions& sampler_options, const nn::Model& network, const nn::Parameters& parameters,
       const nn::WeightRegions& weights, const Promotions& promotions)
      : options(checked(sampler_options)),
        model(network),
        binding{.parameters = &parameters, .weights = weights, .dtype = options.dtype, .promotions = &promotions},
        timesteps(diffusion::scheduler_timesteps(scheduler(), options.steps)),
        rows(diffusion::scheduler_table(scheduler(), timesteps)),
        chunk(std::min(options.graph_steps, options.steps)),
        steps_offset(padded(std::size_t{1} * chunk * options.images * sizeof(float))),
        input_bytes(steps_offset + padded((chunk + 1) * sizeof(StepArguments))),
        inputs("a chunk's inputs", input_bytes),
        embeddings("embeddings", std::size_t{1} * chunk * options.images * embedding_bytes()),
        coefficients("the sampler's table", rows.size() * sizeof(diffusion::StepCoefficients)),
        all_noise("q_sample's table", diffusion::kTimesteps * sizeof(diffusion::Diffused)),
        zeros("zeros", std::max(options.images * sizeof(std::int32_t), elements() * size_of(stored()))),
        x("x", elements() * sizeof(float)),
        host_inputs(input_bytes * num_chunks()) {
    if (stored() != Dtype::f32) y.emplace("x as the model takes it", elements() * size_of(stored()));
    backend::copy_in(coefficients.base, rows.data(), coefficients.bytes);
    const diffusion::Diffused noise_alone{.signal = 0, .noise = 1};
    backend::copy_in(all_noise.base, &noise_alone, sizeof noise_alone);
    begin = std::make_unique<Program>(first_noise(), promotions);
    steps = std::make_unique<Program>(denoising(), promotions);
  }

  Dtype stored() const { return storage_dtype(options.dtype); }
  std::vector<std::int64_t> shape() const { return model.shape(options.images); }
  std::size_t elements() const { return static_cast<std::size_t>(model.elements(options.images)); }
  std::int64_t embedding_columns() const { return model.embedding_columns(*binding.parameters); }
  std::size_t embedding_bytes() const { return embedding_columns() * sizeof(float); }  // of an image in a step
  int num_chunks() const { return ceil_div(options.steps, chunk); }

  diffusion::SchedulerConfig scheduler() const {
    using diffusion::SchedulerKind, diffusion::Variance;
    diffusion::SchedulerConfig config{.beta_schedule = options.betas, .clip_sample = options.clip};
    config.kind = options.kind == SamplerKind::ddim ? SchedulerKind::ddim : SchedulerKind::ddpm;
    config.variance_type = options.large ? Variance::fixed_large : Variance::fixed_small;
    config.eta = options.eta_percent / 100.0;
    config.in_double = true;
    return config;
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

  // x in the model's storage dtype
  ValueId model_input(Tape& tape) const { return tape.value("y", stored(), shape(), y ? *y : x); }
  ValueId philox(Tape& tape, int i) const {
    return tape.value("philox", Dtype::i64, {3}, inputs, inputs_of(i) + offsetof(StepArguments, philox));
  }
  std::size_t inputs_of(int i) const { return steps_offset + i * sizeof(StepArguments); }

  // Sets x to noise, in fp32 and in the model's storage dtype: q_sample of zeros with a table of signal 0 and noise 1.
  Tape first_noise() const {
    Tape tape;
    const ValueId noise = y ? tape.value("x", Dtype::f32, shape(), x) : tape.value("noise", Dtype::f32, shape());
    tape.run<diffusion::QSample>("noise", problem(stored()),
                                 {{"x0", tape.value("x0", stored(), shape(), zeros)},
                                  {"t", tape.value("t", Dtype::i32, {options.images}, zeros)},
                                  {"table", tape.value("table", Dtype::f32, {diffusion::kTimesteps, 2}, all_noise)},
                                  {"philox", philox(tape, chunk)},
                                  {"x_t", model_input(tape)},
                                  {"noise", noise}});
    return tape;
  }

  Tape denoising() {
    Tape tape;
    const std::int64_t images = std::int64_t{1} * chunk * options.images;
    model.embed(tape, binding, tape.value("t", Dtype::f32, {images}, inputs), &embeddings);
    for (int i = 0; i < chunk; ++i) {
      append_step(tape, i);
      ends.push_back(tape.operations().size());
    }
    return tape;
  }

  void append_step(Tape& tape, int i) const {
    const ValueId input = model_input(tape);
    const ValueId embedding = tape.value("embedding", Dtype::f32, {options.images, embedding_columns()}, embeddings,
                                         i * options.images * embedding_bytes());
    const ValueId eps = model.forward_embedded(tape, binding, input, embedding);
    const bool is_ddim = options.kind == SamplerKind::ddim;
    ValueId noise = kNoValue;
    if (!is_ddim || eta() != 0) {
      noise = tape.value("noise", Dtype::f32, shape());
      tape.run<diffusion::Noise>("noise", problem(Dtype::f32), {{"philox", philox(tape, i)}, {"noise", noise}});
    }
    const Case step =
        is_ddim ? case_of<diffusion::DdimStep>(problem(stored())) : case_of<diffusion::DdpmStep>(problem(stored()));
    const auto num_rows = static_cast<std::int64_t>(rows.size());
    tape.run("step", step,
             {{"pred", eps},
              {"noise", noise},
              {"table", tape.value("table", Dtype::f32, {num_rows, diffusion::kStepColumns}, coefficients)},
              {"step", tape.value("step", Dtype::i32, {1}, inputs, inputs_of(i) + offsetof(StepArguments, number))},
              {"x", tape.value("x", Dtype::f32, shape(), x)},
              {"y", y ? input : kNoValue}});
  }

  // Writes the inputs of all chunks. The Philox offset of a step's noise is the step's number. The arguments of the
  // initial noise follow those of the first chunk's steps; its offset is kTimesteps, beyond the number of any step.
  void write_inputs(std::int64_t seed, std::int64_t first) {
    std::memset(host_inputs.data(), 0, host_inputs.bytes());
    for (int i = 0; i < options.steps; ++i) {
      auto* const chunk_inputs = static_cast<std::byte*>(host_inputs.data()) + i / chunk * input_bytes;
      std::fill_n(reinterpret_cast<float*>(chunk_inputs) + i % chunk * options.images, options.images,
                  static_cast<float>(timesteps[i]));
      reinterpret_cast<StepArguments*>(chunk_inputs + steps_offset)[i % chunk] = {.philox = {seed, i, first},
                                                                                  .number = i};
    }
    auto* const of_first_chunk = static_cast<std::byte*>(host_inputs.data()) + steps_offset;
    reinterpret_cast<StepArguments*>(of_first_chunk)[chunk] = {.philox = {seed, diffusion::kTimesteps, first},
                                                               .number = 0};
  }

  // Enqueues the first `count` steps of a chunk, as a graph if enabled.
  void enqueue(int count) {
    if (const auto graph = graphs.find(count); graph != graphs.end()) return graph->second.replay(queue);
    const auto on = [&](Stream stream) { steps->enqueue_first(ends[count - 1], stream); };
    on(queue);
    if (!options.graph) return;
    queue.synchronize();  // kernels are loaded now, so that capture can follow
    graphs.emplace(count, Graph::capture(on));
  }

  std::vector<float> run(std::int64_t seed, std::int64_t first, const std::function<void(int)>& after_graph) {
    write_inputs(seed, first);
    const auto told = [&](int done) {
      if (after_graph) after_graph(done);
    };
    for (int i = 0; i < num_chunks(); ++i) {
      const int done = i * chunk;
      copy_in_async(inputs.base, static_cast<const std::byte*>(host_inputs.data()) + i * input_bytes, input_bytes,
                    queue);
      if (i == 0) begin->enqueue(queue);
      enqueue(std::min(chunk, options.steps - done));
      ended[i % 2].record(queue);
      if (i == 0) continue;
      ended[(i - 1) % 2].synchronize();  // limits chunks in flight to two
      told(done);
    }
    queue.synchronize();
    told(options.steps);
    std::vector<float> images(elements());
    backend::copy_out(images.data(), x.base, x.bytes);
    check_finite(images, first);
    return images;
  }

  // Throws Failure for a value that is not finite, because an 8-bit pixel would hide it.
  void check_finite(const std::vector<float>& images, std::int64_t first) const {
    const auto wrong = std::ranges::find_if_not(images, [](float value) { return std::isfinite(value); });
    if (wrong == images.end()) return;
    const std::int64_t image = (wrong - images.begin()) / model.elements(1);
    throw Failure(
        fmt::format("image {} has a number that is not finite: the network's prediction is not finite", first + image));
  }

  SamplerOptions options;
  const nn::Model& model;
  nn::Binding binding;
  std::vector<int> timesteps;
  std::vector<diffusion::StepCoefficients> rows;
  int chunk;  // steps per chunk
  std::size_t steps_offset,
      input_bytes;  // a chunk's inputs: [chunk, images] time steps, at steps_offset [chunk + 1] StepArguments
  OwnedRegion inputs, embeddings, coefficients, all_noise, zeros, x;
  std::optional<OwnedRegion> y;
  PinnedBuffer host_inputs;  // of all chunks
  std::unique_ptr<Program> begin, steps;
  std::vector<std::size_t> ends;  // by step of a chunk: number of operations up to the step's end
  OwnedStream queue;
  std::array<Event, 2> ended;
  std::map<int, Graph> graphs;  // by number of steps
};

Sampler::Sampler(const SamplerOptions& options, const nn::Model& model, const nn::Parameters& parameters,
                 const nn::WeightRegions& weights, const Promotions& promotions)
    : impl_(std::make_unique<Impl>(options, model, parameters, weights, promotions)) {}

Sampler::~Sampler() = default;

std::vector<float> Sampler::run(std::int64_t seed, std::int64_t first, const std::function<void(int)>& after_graph) {
  return impl_->run(seed, first, after_graph);
}

const Program& Sampler::program() const { return *impl_->steps; }

}  // namespace ladder::train
