// Device storage of a step's images: the whole data set, or, where that is too large, the held-out images and two batch
// buffers, of which one is filled while a step reads the other.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/graph.h"
#include "runtime/program.h"
#include "train/dataset.h"

namespace ladder::train {

class ImageSource {
 public:
  // Maximum number of held-out images used.
  static constexpr int kMaxHeldOut = 2048;

  // A data set of more than `device_bytes` is streamed. `data` must outlive this object.
  ImageSource(const Dataset& data, int batch, std::size_t device_bytes);

  bool streams() const { return streams_; }
  const Region& pixels() const { return *pixels_; }  // [images(), h, w, 3] uint8
  int images() const { return images_; }
  const std::vector<std::int32_t>& held_out() const { return held_out_; }  // their numbers in pixels()

  // Makes a batch's images available in pixels(). `batch` has their numbers in the data set, -1 - number for a mirrored
  // image; the result has their numbers in pixels(), likewise for mirrored ones (diffusion::Batch). Work enqueued on
  // `stream` afterwards waits for the copy. Call release() after enqueuing the work that reads the images.
  std::vector<std::int32_t> load(const std::vector<std::int32_t>& batch, Stream stream);
  void release(Stream stream);

 private:
  struct Half {
    explicit Half(std::size_t bytes) : host(bytes) {}
    PinnedBuffer host;
    Event copied;
    Event used;
  };

  const Dataset& data_;
  int batch_;
  bool streams_;
  int images_ = 0;
  std::unique_ptr<OwnedRegion> pixels_;
  std::vector<std::int32_t> held_out_;
  std::array<std::unique_ptr<Half>, 2> halves_;
  OwnedStream copies_;
  std::size_t num_batches_ = 0;
};

}  // namespace ladder::train
