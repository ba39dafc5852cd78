#include "train/sample_grid.h"

#include <vector>

#include "core/backend.h"
#include "core/ceil_div.h"
#include "train/model_files.h"

namespace ladder::train {

SampleGrid::SampleGrid(const TrainingConfig& config, bool graph, const nn::Model& model,
                       const nn::Parameters& parameters, const nn::State& state, const Promotions& promotions,
                       Ranks& ranks)
    : config_(config),
      state_(state),
      ranks_(ranks),
      num_images_(backend::kind() == backend::Kind::gpu ? 64 : 4),
      images_of_rank_(ceil_div(num_images_, ranks.size())),
      copies_(state.copies ? std::make_unique<OwnedRegion>("average's copies", state.copies->bytes) : nullptr),
      sampler_(
          {.dtype = config.dtype, .images = images_of_rank_, .betas = config.betas, .graph = graph}, model, parameters,
          nn::WeightRegions{.values = &state.average, .copies = copies_ ? copies_.get() : &state.average}, promotions) {
}

void SampleGrid::draw(const std::filesystem::path& file) {
  if (copies_) nn::copy_rounded(state_.get(state_.average), state_.stored, *copies_);
  std::vector<float> images =
      ranks_.gather(sampler_.run(static_cast<std::int64_t>(config_.seed), ranks_.rank() * images_of_rank_));
  if (!ranks_.leads()) return;
  images.resize(num_images_ * config_.model.image_elements());  // without those that fill up the last rank's part
  std::filesystem::create_directories(file.parent_path());
  write_grid(file, images, config_.model.image_size);
}

}  // namespace ladder::train
