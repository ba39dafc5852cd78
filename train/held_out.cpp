#include "train/held_out.h"

#include <algorithm>

#include "core/backend.h"
#include "core/ceil_div.h"
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
  Impl(const EpsilonOptions& options, std::vector<std::int32_t> held_out, Ranks& all_ranks, const nn::Model& model,
       const nn::Binding& binding, const Region& pixels, const Promotions& promotions)
      : images(std::move(held_out)),
        ranks(all_ranks),
        group(std::min(options.batch, static_cast<int>(images.size()))),
        objective({.dtype = options.dtype,
                   .batch = ceil_div(group, ranks.size()),
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

  // Returns this rank's losses of the group of images that begins with image `first`. An image's time step and noise
  // follow from its place among all images and in its group, whatever the number of ranks.
  std::vector<float> group_losses(int first) {
    const int count = objective.batch(), place = ranks.rank() * count;
    EpsilonInputs batch{.seed = kNoiseSeed, .offset = first, .first = place};
    for (int i = 0; i < count; ++i) {  // a part is filled up with images that do not count
      const auto image_idx = std::min<std::size_t>(first + place + i, images.size() - 1);
      batch.index.push_back(images[image_idx]);
      batch.t.push_back(time_step(image_idx, images.size()));
    }
    const std::vector<std::byte> bytes = batch.bytes();
    backend::copy_in(inputs.base, bytes.data(), bytes.size());
    program->enqueue(queue);
    queue.synchronize();
    std::vector<float> found(count);
    backend::copy_out(found.data(), losses.base, losses.bytes);
    return found;
  }

  double loss() {
    const auto all = static_cast<int>(images.size());
    std::vector<float> found;
    for (int first = 0; first < all; first += group) {
      const std::vector<float> part = group_losses(first);
      found.insert(found.end(), part.begin(), part.end());
    }
    const auto of_rank = static_cast<int>(found.size());  // losses of each rank
    const std::vector<float> of_ranks = ranks.exchange(found);
    const int count = objective.batch();
    double sum = 0;
    for (int i = 0; i < all; ++i) {
      const int in_group = i % group;
      sum += of_ranks[in_group / count * of_rank + i / group * count + in_group % count];
    }
    return sum / all;
  }

  std::vector<std::int32_t> images;
  Ranks& ranks;
  int group;  // images of one run of the program on all ranks
  EpsilonObjective objective;
  OwnedRegion inputs, losses;
  std::unique_ptr<Program> program;
  OwnedStream queue;
};

HeldOut::HeldOut(const EpsilonOptions& options, std::vector<std::int32_t> images, Ranks& ranks, const nn::Model& model,
                 const nn::Binding& binding, const Region& pixels, const Promotions& promotions)
    : impl_(std::make_unique<Impl>(options, std::move(images), ranks, model, binding, pixels, promotions)) {}

HeldOut::~HeldOut() = default;

double HeldOut::loss() { return impl_->loss(); }

}  // namespace ladder::train
