#include "policy/policy.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "core/backend.h"
#include "core/error.h"
#include "core/graph.h"
#include "dev/diffusion/diffusion.h"
#include "nn/models/unet1d.h"
#include "policy/one_kernel_step.h"

namespace ladder::denoise {
namespace {

// Seed, offset and first sample of a Philox noise stream: the tensor philox [3] of dev/diffusion.
using Philox = std::int64_t[3];

// Byte offsets in the region `inputs`, which the host fills for each answer (one inference): Mish of the observations
// [samples, observation] fp32, then the Philox streams of the initial noise (`first`) and the steps' noise (`steps`).
struct InputLayout {
  explicit InputLayout(std::size_t observation_bytes)
      : first(padded(observation_bytes)),
        steps(first + padded(sizeof(Philox))),
        bytes(steps + padded(sizeof(Philox))) {}
  std::size_t first, steps, bytes;
};

// Throws Failure for a value that is not finite. `row_size`: values per observation or answer.
void check_finite(std::span<const float> values, std::size_t row_size, const char* what) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    throw Failure(fmt::format("number {} of {} {} is {}", i % row_size, what, i / row_size, values[i]));
  }
}

}  // namespace

struct Policy::Impl {
  // Throws Failure if a kernel cannot run on this device.
  Impl(const PolicyOptions& policy_options, const PolicyFile& file, const SamplingSchedule& denoising,
       const Promotions& promotions, StepChoice step_choice)
      : choice(std::move(step_choice)),
        options(policy_options),
        config(file.network),
        observation(file.observation),
        action(file.action),
        steps(denoising),
        model(config),
        parameters(choice.one_kernel ? model.declare_condition() : model.declare()),
        weights("weights", parameters.size() * sizeof(float)),
        table("condition of time steps", steps.rows.size() * rows_bytes()),
        // One extra row: a residual block's tensor `film` [samples, pitch] begins at the block's first column and has
        // full rows, so it ends beyond the last sample's row.
        rows("condition of observations", (options.samples + std::size_t{1}) * rows_bytes()),
        coefficients("the scheduler's table", steps.rows.size() * sizeof(diffusion::StepCoefficients)),
        counters("numbers of steps", steps.rows.size() * sizeof(std::int32_t)),
        noise("noise", steps.rows.size() * noise_elements() * sizeof(float)),
        zeros("zeros", elements() * size_of(taken())),
        first_time("time step of the first noise", options.samples * sizeof(std::int32_t)),
        all_noise("q_sample's table", diffusion::kTimesteps * sizeof(diffusion::Diffused)),
        x("x", elements() * sizeof(float)),
        given_x("first noise", options.given_noise ? x.bytes : 0),
        layout(num_observed() * sizeof(float)),
        inputs("an answer's inputs", layout.bytes),
        host_inputs(layout.bytes),
        host_actions(x.bytes),
        actions(elements()) {
    LADDER_CHECK(!steps.rows.empty());
    if (taken() != Dtype::f32) {
      y.emplace("x as the network takes it", elements() * size_of(taken()));
      if (options.given_noise) given_y.emplace("first noise as the network takes it", y->bytes);
    }
    load(file.weights);
    program = std::make_unique<Program>(tape(promotions), promotions);
    std::memset(host_inputs.data(), 0, host_inputs.bytes());
  }

  Dtype stored() const { return storage_dtype(options.dtype); }
  // Dtype of the network's input. Separate operations read x in the storage dtype: each step also writes y, a rounded
  // copy of x. The one-kernel step reads x in fp32 and rounds it itself.
  Dtype taken() const { return choice.one_kernel ? Dtype::f32 : stored(); }
  std::vector<std::int64_t> shape() const { return {options.samples, config.horizon, config.action_dim}; }
  std::size_t elements() const { return std::size_t{1} * options.samples * config.horizon * config.action_dim; }
  std::size_t num_observed() const { return std::size_t{1} * options.samples * config.observation; }
  std::size_t rows_bytes() const { return parameters.group(nn::kFilm).rows * sizeof(float); }
  // Elements of a step's noise, padded so that each step's noise begins at a multiple of 256 bytes.
  std::size_t noise_elements() const { return padded(elements() * sizeof(float)) / sizeof(float); }

  void load(const nn::PublishedWeights& published) {
    const std::vector<float> flat = nn::packed_weights(config, parameters, published);
    backend::copy_in(weights.base, flat.data(), weights.bytes);
    if (choice.one_kernel) {
      one_kernel.emplace(*choice.one_kernel, config, published);
      LADDER_CHECK(one_kernel->film_row() == parameters.group(nn::kFilm).rows);
    } else if (stored() != Dtype::f32) {
      copies.emplace("weights rounded", parameters.size() * size_of(stored()));
      nn::copy_rounded(flat, stored(), *copies);
    }
    const std::vector<float> film = nn::film_table(config, parameters, published, steps.timesteps);
    std::vector<std::int32_t> numbers(steps.rows.size());
    std::iota(numbers.begin(), numbers.end(), 0);
    backend::copy_in(table.base, film.data(), table.bytes);
    backend::copy_in(coefficients.base, steps.rows.data(), coefficients.bytes);
    backend::copy_in(counters.base, numbers.data(), counters.bytes);
    const diffusion::Diffused noise_alone{.signal = 0, .noise = 1};
    backend::copy_in(all_noise.base, &noise_alone, sizeof noise_alone);
  }

  // The tape: noise, the FiLM rows of the observations, then each step.

  diffusion::Problem problem(Dtype dtype) const {
    return {.n = options.samples, .h = config.horizon, .c = config.action_dim, .dtype = dtype};
  }
  ValueId value_of_x(Tape& tape) const { return tape.value("x", Dtype::f32, shape(), x); }
  ValueId network_input(Tape& tape) const { return tape.value("y", taken(), shape(), y ? *y : x); }

  Tape tape(const Promotions& promotions) {
    const nn::Binding binding{.parameters = &parameters,
                              .weights = {.values = &weights, .copies = copies ? &*copies : &weights},
                              .dtype = options.dtype,
                              .promotions = &promotions};
    Tape tape;
    if (!options.given_noise) append_noise(tape);
    const ValueId observations = tape.value("observations", Dtype::f32, {options.samples, config.observation}, inputs);
    model.observe(tape, binding, observations, rows);
    ends.push_back(tape.operations().size());
    for (int i = 0; i < static_cast<int>(steps.rows.size()); ++i) {
      append_step(tape, i, binding);
      ends.push_back(tape.operations().size());
    }
    return tape;
  }

  // Appends the initial noise, in x and, rounded to the network's dtype, in y. Then appends the noise of all steps.
  // q_sample makes the initial noise from x0 = 0 and a table of signal 0 and noise 1.
  void append_noise(Tape& tape) const {
    const auto philox = [&](std::size_t offset) { return tape.value("philox", Dtype::i64, {3}, inputs, offset); };
    const ValueId first = y ? value_of_x(tape) : tape.value("noise", Dtype::f32, shape());
    diffusion::Problem noised = problem(taken());
    tape.run<diffusion::QSample>("noise", noised,
                                 {{"x0", tape.value("x0", taken(), shape(), zeros)},
                                  {"t", tape.value("t", Dtype::i32, {options.samples}, first_time)},
                                  {"table", tape.value("table", Dtype::f32, {diffusion::kTimesteps, 2}, all_noise)},
                                  {"philox", philox(layout.first)},
                                  {"x_t", network_input(tape)},
                                  {"noise", first}});
    if (!steps.noisy()) return;
    diffusion::Problem of_steps;
    of_steps.h = static_cast<int>(steps.rows.size());
    of_steps.c = static_cast<int>(noise_elements());
    tape.run<diffusion::Noise>("steps' noise", of_steps,
                               {{"philox", philox(layout.steps)},
                                {"noise", tape.value("noise", Dtype::f32, {of_steps.h, of_steps.c}, noise)}});
  }

  void append_step(Tape& tape, int i, const nn::Binding& binding) const {
    const auto num_rows = static_cast<std::int64_t>(steps.rows.size());
    const ValueId x_now = value_of_x(tape);
    const ValueId of_step = tape.value("noise", Dtype::f32, shape(), noise, i * noise_elements() * sizeof(float));
    const ValueId step_table = tape.value("table", Dtype::f32, {num_rows, diffusion::kStepColumns}, coefficients);
    const ValueId number = tape.value("step", Dtype::i32, {1}, counters, i * sizeof(std::int32_t));
    if (one_kernel) {
      const std::int64_t width = one_kernel->film_row();
      return one_kernel->append(tape, {.film_table = tape.value("film_table", Dtype::f32, {num_rows, width}, table),
                                       .film = tape.value("film", Dtype::f32, {options.samples, width}, rows),
                                       .table = step_table,
                                       .step = number,
                                       .noise = of_step,
                                       .x = x_now});
    }
    const ValueId prediction = model.forward(tape, binding, network_input(tape), table, i, rows);
    tape.run("step", steps.case_of(problem(stored())),
             {{"pred", prediction},
              {"noise", steps.noisy() ? of_step : kNoValue},
              {"table", step_table},
              {"step", number},
              {"x", x_now},
              {"y", y ? network_input(tape) : kNoValue}});
  }

  // Answers.

  void enqueue(Stream stream) const {
    if (options.given_noise) {
      copy_async(x.base, given_x.base, x.bytes, stream);
      if (y) copy_async(y->base, given_y->base, y->bytes, stream);
    }
    if (options.run == PolicyOptions::Run::poisoned) return program->enqueue_poisoned(stream);
    program->enqueue(stream);
  }

  // Loads the kernels and captures the graph; called after the constructor. A kernel loads at its first launch, and
  // loading is not allowed during capture. The steps between the first and the last launch no other kernels.
  void start() {
    copy_in_async(inputs.base, host_inputs.data(), inputs.bytes, queue);
    const auto launch = [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) program->enqueue(i, queue);
    };
    launch(0, ends[1]);
    launch(ends[ends.size() - 2], ends.back());
    queue.synchronize();
    if (options.run == PolicyOptions::Run::graph) {
      graph.emplace(Graph::capture([this](Stream stream) { enqueue(stream); }));
    }
  }

  void set_noise(std::span<const float> initial, std::span<const float> of_steps) {
    LADDER_CHECK(options.given_noise && initial.size() == elements());
    LADDER_CHECK(!steps.noisy() || of_steps.size() == steps.rows.size() * elements());
    backend::copy_in(given_x.base, initial.data(), given_x.bytes);
    if (given_y) nn::copy_rounded({initial.begin(), initial.end()}, taken(), *given_y);
    for (std::size_t i = 0; steps.noisy() && i < steps.rows.size(); ++i) {
      backend::copy_in(static_cast<float*>(noise.base) + i * noise_elements(), of_steps.data() + i * elements(),
                       elements() * sizeof(float));
    }
  }

  // Applies the policy's normalizer, then Mish, to the observations. A normalizer with fewer numbers than one
  // observation repeats: the observation's time steps share it. The Philox streams of a seed have different offsets.
  void write_inputs(std::span<const float> observations, std::int64_t seed, std::int64_t number) {
    auto* const input_bytes = static_cast<std::byte*>(host_inputs.data());
    auto* const condition = reinterpret_cast<float*>(input_bytes);
    const std::size_t columns = config.observation, period = std::max<std::size_t>(observation.scale.size(), 1);
    for (std::size_t i = 0; i < observations.size(); ++i) {
      double value = observations[i];
      if (const std::size_t j = i % columns % period; !observation.scale.empty()) {
        value = value * observation.scale[j] + observation.offset[j];
      }
      condition[i] = static_cast<float>(nn::mish(value));
    }
    const Philox first = {seed, 2 * number, 0}, of_steps = {seed, 2 * number + 1, 0};
    std::memcpy(input_bytes + layout.first, first, sizeof first);
    std::memcpy(input_bytes + layout.steps, of_steps, sizeof of_steps);
  }

  void run(Stream stream) const {
    if (graph) {
      graph->replay(stream);
    } else {
      enqueue(stream);
    }
  }

  // Enqueues an answer after that of the previous enqueue(), which may be in flight on another stream.
  void enqueue(const OnDevice& tensors, Stream stream) {
    LADDER_CHECK(options.given_noise);
    answered.hold_back(stream);
    copy_async(inputs.base, tensors.condition, num_observed() * sizeof(float), stream);
    copy_async(given_x.base, tensors.initial, x.bytes, stream);
    if (given_y) copy_async(given_y->base, tensors.rounded, given_y->bytes, stream);
    if (steps.noisy()) copy_async(noise.base, tensors.steps, noise.bytes, stream);
    run(stream);
    copy_async(tensors.actions, x.base, x.bytes, stream);
    answered.record(stream);
  }

  std::span<const float> answer(std::span<const float> observations, std::int64_t seed, std::int64_t number) {
    LADDER_CHECK(observations.size() == num_observed());
    check_finite(observations, config.observation, "observation");
    write_inputs(observations, seed, number);
    answered.hold_back(queue);
    copy_in_async(inputs.base, host_inputs.data(), inputs.bytes, queue);
    run(queue);
    copy_out_async(host_actions.data(), x.base, x.bytes, queue);
    queue.synchronize();
    const auto* const normalised = static_cast<const float*>(host_actions.data());
    for (std::size_t i = 0; i < actions.size(); ++i) {
      const std::size_t j = i % static_cast<std::size_t>(config.action_dim);
      actions[i] =
          action.scale.empty() ? normalised[i] : static_cast<float>(action.scale[j] * normalised[i] + action.offset[j]);
    }
    check_finite(actions, std::size_t{1} * config.horizon * config.action_dim, "answer");
    return actions;
  }

  StepChoice choice;
  PolicyOptions options;
  nn::Unet1dConfig config;
  Affine observation, action;
  SamplingSchedule steps;
  nn::Unet1d model;
  nn::Parameters parameters;
  OwnedRegion weights;
  std::optional<OwnedRegion> copies;
  std::optional<OneKernelStep> one_kernel;
  OwnedRegion table, rows, coefficients, counters;
  OwnedRegion noise;                         // [steps, noise_elements()]
  OwnedRegion zeros, first_time, all_noise;  // constant inputs of the initial noise's q_sample
  OwnedRegion x, given_x;                    // given_x: the initial noise of set_noise() or enqueue()
  std::optional<OwnedRegion> y, given_y;
  InputLayout layout;
  OwnedRegion inputs;
  PinnedBuffer host_inputs, host_actions;
  std::vector<float> actions;
  std::vector<std::size_t> ends;  // ends[0]: number of operations before step 0; ends[i + 1]: to the end of step i
  std::unique_ptr<Program> program;
  OwnedStream queue;
  Event answered;  // the latest enqueue() is done
  std::optional<Graph> graph;
};

Policy::Policy(const PolicyOptions& options, const PolicyFile& file, const SamplingSchedule& steps,
               const Promotions& promotions) {
  const auto made = [&](const StepChoice& choice) {
    return std::make_unique<Impl>(options, file, steps, promotions, choice);
  };
  const StepChoice choice = choose_step(file.network, steps, options.dtype, options.samples, promotions);
  try {
    impl_ = made(choice);
  } catch (const Failure& refusal) {  // for example a cooperative grid that is not co-resident on this device
    if (!choice.one_kernel) throw;
    impl_ = made(choice.refused(refusal.what()));
  }
  impl_->start();
}

Policy::~Policy() = default;

void Policy::set_noise(std::span<const float> initial, std::span<const float> steps) {
  impl_->set_noise(initial, steps);
}

std::span<const float> Policy::answer(std::span<const float> observations, std::int64_t seed, std::int64_t number) {
  return impl_->answer(observations, seed, number);
}

void Policy::enqueue(const OnDevice& tensors, Stream stream) { impl_->enqueue(tensors, stream); }
std::size_t Policy::noise_row() const { return impl_->noise_elements(); }

const Program& Policy::program() const { return *impl_->program; }
std::string Policy::step() const { return impl_->choice.str(); }

}  // namespace ladder::denoise
