#include "train/image_source.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/backend.h"
#include "core/error.h"

namespace ladder::train {

ImageSource::ImageSource(const Dataset& data, int batch, std::size_t device_bytes)
    : data_(data),
      batch_(batch),
      streams_(data.image_bytes() * (data.num_training() + data.num_held_out()) > device_bytes) {
  const auto training = static_cast<int>(data.num_training());
  const int held_out = std::min(static_cast<int>(data.num_held_out()), kMaxHeldOut);
  held_out_.resize(held_out);
  const std::size_t image_bytes = data.image_bytes();
  if (!streams_) {
    images_ = training + static_cast<int>(data.num_held_out());
    std::iota(held_out_.begin(), held_out_.end(), training);
    pixels_ = std::make_unique<OwnedRegion>("pixels", images_ * image_bytes);
    backend::copy_in(pixels_->base, data.training(),
                     images_ * image_bytes);  // held-out images follow the training images
    return;
  }
  images_ = held_out + 2 * batch;
  std::iota(held_out_.begin(), held_out_.end(), 0);
  pixels_ = std::make_unique<OwnedRegion>("pixels", images_ * image_bytes);
  if (held_out > 0) backend::copy_in(pixels_->base, data.held_out(), held_out * image_bytes);
  for (auto& half : halves_) half = std::make_unique<Half>(batch * image_bytes);
}

std::vector<std::int32_t> ImageSource::load(const std::vector<std::int32_t>& batch, Stream stream) {
  if (!streams_) return batch;
  LADDER_CHECK(static_cast<int>(batch.size()) == batch_);
  Half& half = *halves_[num_batches_ % 2];
  const auto first = static_cast<std::int32_t>(held_out_.size()) + static_cast<std::int32_t>(num_batches_ % 2) * batch_;
  const std::size_t image_bytes = data_.image_bytes();
  if (num_batches_ >= 2) half.copied.synchronize();  // the host's half is free
  std::vector<std::int32_t> loaded(batch.size());
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const bool mirrored = batch[i] < 0;
    const std::int32_t number = mirrored ? -1 - batch[i] : batch[i];
    std::memcpy(static_cast<std::byte*>(half.host.data()) + i * image_bytes, data_.training(number), image_bytes);
    const auto image_idx = first + static_cast<std::int32_t>(i);
    loaded[i] = mirrored ? -1 - image_idx : image_idx;
  }
  if (num_batches_ >= 2) half.used.hold_back(copies_);  // the device's half is free
  copy_in_async(static_cast<std::byte*>(pixels_->base) + first * image_bytes, half.host.data(),
                batch.size() * image_bytes, copies_);
  half.copied.record(copies_);
  half.copied.hold_back(stream);
  return loaded;
}

void ImageSource::release(Stream stream) {
  if (streams_) halves_[num_batches_ % 2]->used.record(stream);
  ++num_batches_;
}

}  // namespace ladder::train
