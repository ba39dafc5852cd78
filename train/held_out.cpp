#include "train/held_out.h"

#include <algorithm>

#include "core/backend.h"
#include "core/graph.h"
#include "runtime/program.h"

namespace ladder::train {
namespace {

constexpr std::int64_t kNoiseSeed = 0x68656c64;  // any number; not one that a person would choose for a training

}  // namespace

std::int32_t HeldOut::time_step(std::size_t i, std::size_t count) {
  return static_cast<std::int32_t>((2 * i + 1) * diffusion::kTimesteps / (2 * count));
}

struct HeldOut::Impl {
  Impl(const EpsilonOptions& options, std::vector<std::int32_t> held_out, const nn::Model& model,
       const nn::Binding& binding, const Region& pixels, const Promotions& promotions)
      : images(std::move(held_out)),
        objective({.dtype = options.dtype,
                   .batch = std::min<int>(options.batch, static_cast<int>(images.size())),
                   .betas = options.betas,
                   .images = options.images},
                  model, pixels),
        inputs("inputs", objective.input_bytes()),
        losses("losses", objective.batch() * sizeof(float)) {
    Tape tape;
    objective.append_batch(tape, inputs);
    objective.append_loss(tape, binding, objective.arrays(inputs),
                          tape.value("losses", Dtype::f32, {objective.batch()}, losses),
                          tape.value("loss", Dtype::f32, {1}));
    program = std::make_unique<Program>(std::move(tape), promotions);
  }

  double loss() {
    const auto n = static_cast<std::size_t>(objective.batch());
    double sum = 0;
    for (std::size_t first = 0; first < images.size(); first += n) {
      EpsilonInputs batch{.seed = kNoiseSeed, .offset = static_cast<std::int64_t>(first)};
      for (std::size_t i = 0; i < n; ++i) {  // the last batch is filled up with images that do not count
        const std::size_t image_idx = std::min(first + i, images.size() - 1);
        batch.index.push_back(images[image_idx]);
        batch.t.push_back(time_step(image_idx, images.size()));
      }
      const std::vector<std::byte> bytes = batch.bytes();
      backend::copy_in(inputs.base, bytes.data(), bytes.size());
      program->enqueue(queue);
      queue.synchronize();
      std::vector<float> batch_losses(n);
      backend::copy_out(batch_losses.data(), losses.base, losses.bytes);
      for (std::size_t i = 0; i < n && first + i < images.size(); ++i) sum += batch_losses[i];
    }
    return sum / static_cast<double>(images.size());
  }

  std::vector<std::int32_t> images;
  EpsilonObjective objective;
  OwnedRegion inputs, losses;
  std::unique_ptr<Program> program;
  OwnedStream queue;
};

HeldOut::HeldOut(const EpsilonOptions& options, std::vector<std::int32_t> images, const nn::Model& model,
                 const nn::Binding& binding, const Region& pixels, const Promotions& promotions)
    : impl_(std::make_unique<Impl>(options, std::move(images), model, binding, pixels, promotions)) {}

HeldOut::~HeldOut() = default;

double HeldOut::loss() { return impl_->loss(); }

}  // namespace ladder::train
