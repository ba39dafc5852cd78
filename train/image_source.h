// Where a step finds its images: all of the data set on the device, or, where it is too large, room for the held-out
// images and two batches, of which one is copied in while the other is worked on.
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
  // Of the held-out images at most kMaxHeldOut are taken.
  static constexpr int kMaxHeldOut = 2048;

  // Data sets of more than `device_bytes` are streamed. `data` must outlive this.
  ImageSource(const Dataset& data, int batch, std::size_t device_bytes);

  bool streams() const { return streams_; }
  const Region& pixels() const { return *pixels_; }  // [images(), h, w, 3] uint8
  int images() const { return images_; }
  const std::vector<std::int32_t>& held_out() const { return held_out_; }  // their numbers in pixels()

  // The batch's images by number in the data set, -1 - number for a mirrored one; returns them as diffusion::Batch
  // takes them from pixels(). What is enqueued on `stream` next waits until they are there; release() says when they
  // are done with.
  std::vector<std::int32_t> place(const std::vector<std::int32_t>& batch, Stream stream);
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
  std::size_t turn_ = 0;
};

}  // namespace ladder::train
