#include "train/epsilon_objective.h"

#include <cstring>

#include <fmt/format.h>

#include "core/backend.h"
#include "core/error.h"

namespace ladder::train {
namespace {

// Byte offsets of the arrays of EpsilonInputs on the device, each a multiple of 256 bytes.
struct Layout {
  explicit Layout(std::size_t batch)
      : t(padded(batch * sizeof(std::int32_t))), philox(2 * t), bytes(philox + padded(3 * sizeof(std::int64_t))) {}
  std::size_t index = 0;
  std::size_t t, philox, bytes;
};

}  // namespace

diffusion::Problem diffusion_problem(const nn::Model& model, int samples, Dtype dtype) {
  const std::vector<std::int64_t> shape = model.shape(samples);
  return {.n = samples,
          .h = static_cast<int>(shape[1]),
          .w = static_cast<int>(shape[2]),
          .c = static_cast<int>(shape[3]),
          .dtype = dtype};
}

std::vector<std::byte> EpsilonInputs::bytes() const {
  LADDER_CHECK(index.size() == t.size());
  const Layout layout(t.size());
  std::vector<std::byte> made(layout.bytes);
  const std::int64_t philox[3] = {seed, offset, first};
  std::memcpy(made.data() + layout.index, index.data(), index.size() * sizeof(std::int32_t));
  std::memcpy(made.data() + layout.t, t.data(), t.size() * sizeof(std::int32_t));
  std::memcpy(made.data() + layout.philox, philox, sizeof(philox));
  return made;
}

EpsilonObjective::EpsilonObjective(const EpsilonOptions& options, const nn::Model& model, const Region& pixels)
    : options_(options),
      model_(model),
      pixels_(pixels),
      noised_("noised images", model_.elements(options.batch) * size_of(stored())),
      noise_("noise", model_.elements(options.batch) * sizeof(float)),
      table_("q_sample's table", diffusion::kTimesteps * sizeof(diffusion::Diffused)),
      predicted_("prediction",
                 model_.elements(options.batch / std::max(options.micro_batches, 1)) * size_of(stored())) {
  if (options.batch < 1 || options.micro_batches < 1 || options.batch % options.micro_batches != 0) {
    throw UsageError(
        fmt::format("a batch of {} cannot be cut into {} equal micro-batches", options.batch, options.micro_batches));
  }
  const std::vector<diffusion::Diffused> rows = diffusion::diffused_table(diffusion::make_schedule(options.betas));
  backend::copy_in(table_.base, rows.data(), table_.bytes);
}

std::size_t EpsilonObjective::input_bytes() const { return Layout(options_.batch).bytes; }

// Computes x0 from the batch's pixels, then x_t and its noise.
void EpsilonObjective::append_batch(Tape& tape, const Region& inputs) const {
  const int n = options_.batch;
  const Layout layout(n);
  diffusion::Problem problem = diffusion_problem(model_, n, stored());
  const ValueId x0 = tape.value("x0", stored(), model_.shape(n));
  diffusion::Problem batch = problem;
  batch.images = options_.images;
  tape.run<diffusion::Batch>("batch", batch,
                             {{"pixels", tape.value("pixels", Dtype::u8, model_.shape(options_.images), pixels_)},
                              {"index", tape.value("index", Dtype::i32, {n}, inputs, layout.index)},
                              {"x0", x0}});
  problem.cosine = options_.betas == diffusion::Betas::cosine;
  tape.run<diffusion::QSample>("noise", problem,
                               {{"x0", x0},
                                {"t", tape.value("t", Dtype::i32, {n}, inputs, layout.t)},
                                {"table", tape.value("table", Dtype::f32, {diffusion::kTimesteps, 2}, table_)},
                                {"philox", tape.value("philox", Dtype::i64, {3}, inputs, layout.philox)},
                                {"x_t", tape.value("x_t", stored(), model_.shape(n), noised_)},
                                {"noise", tape.value("noise", Dtype::f32, model_.shape(n), noise_)}});
}

std::vector<ArrayRows> EpsilonObjective::arrays(const Region& inputs) const {
  const std::size_t image_elements = model_.elements(1);
  return {{.region = &noised_, .row_bytes = image_elements * size_of(stored())},
          {.region = &noise_, .row_bytes = image_elements * sizeof(float)},
          {.region = &inputs, .offset = Layout(options_.batch).t, .row_bytes = sizeof(std::int32_t)}};
}

void EpsilonObjective::append_loss(Tape& tape, const nn::Binding& binding, const std::vector<ArrayRows>& rows,
                                   ValueId losses, ValueId loss) const {
  const int n = part();
  const auto value = [&](const char* name, Dtype dtype, std::vector<std::int64_t> extents, const ArrayRows& array) {
    return tape.value(name, dtype, std::move(extents), *array.region, array.offset);
  };
  const ValueId x = value("x_t", stored(), model_.shape(n), rows[0]);
  const ValueId noise = value("noise", Dtype::f32, model_.shape(n), rows[1]);
  const ValueId t = value("t", Dtype::i32, {n}, rows[2]);
  const ValueId prediction = model_.forward(tape, binding, x, t, &predicted_);
  const ValueId gradient = tape.value("d prediction", stored(), model_.shape(n));
  tape.run<diffusion::Loss>(
      "loss", diffusion_problem(model_, n, stored()),
      {{"pred", prediction}, {"noise", noise}, {"dpred", gradient}, {"losses", losses}, {"loss", loss}});
  if (binding.gradients == nullptr) return;
  tape.add_gradient(prediction, gradient);
  tape.backward();
}

std::vector<float> EpsilonObjective::decoded(const Region& region, Dtype dtype) {
  std::vector<std::byte> raw(region.bytes);
  backend::copy_out(raw.data(), region.base, region.bytes);
  std::vector<float> values(region.bytes / size_of(dtype));
  decode(dtype, raw.data(), values.size(), values.data());
  return values;
}

void EpsilonObjective::set_batch(const std::vector<float>& noised, const std::vector<float>& noise) {
  nn::copy_rounded(noised, stored(), noised_);
  nn::copy_rounded(noise, Dtype::f32, noise_);
}

}  // namespace ladder::train
