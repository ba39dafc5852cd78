// Training data: a file of images of one size, and the order in which training draws them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace ladder::train {

// A file written by `./ladder prepare`; tools/images/ldata.py documents its bytes. The images are uint8 [row, column,
// channel], 0 black and 255 white; training images come first, held-out images last. The file is memory-mapped: pages
// are read on first access, and a file renamed over it does not change this mapping.
class Dataset {
 public:
  // Throws Failure that names the file if it is missing, foreign, of another version, has a corrupt header, or another
  // length than its header says.
  explicit Dataset(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  int image_size() const { return image_size_; }  // height and width, pixels
  int channels() const { return channels_; }
  std::size_t image_bytes() const { return std::size_t(image_size_) * image_size_ * channels_; }
  std::size_t num_training() const { return num_images_ - num_held_out_; }  // at least 1
  std::size_t num_held_out() const { return num_held_out_; }                // 0 for a data set of one image

  // [num_training, image_size, image_size, channels] and [num_held_out, ...], each without gaps.
  const std::uint8_t* training() const { return pixels_; }
  const std::uint8_t* held_out() const { return pixels_ + num_training() * image_bytes(); }
  // The image with that index. Throws Failure where the index is out of range.
  const std::uint8_t* training(std::size_t index) const;
  const std::uint8_t* held_out(std::size_t index) const;

  // The digest of header and pixels that the header states, as 32 hexadecimal digits.
  const std::string& digest() const { return digest_; }
  // Reads the whole file, at some gigabytes per second. Throws Failure where it does not match the digest.
  void check_digest() const;

 private:
  struct Unmap {
    std::size_t bytes;
    void operator()(const std::uint8_t* mapped) const;
  };

  std::filesystem::path path_;
  std::unique_ptr<const std::uint8_t, Unmap> file_;  // from the header on
  const std::uint8_t* pixels_ = nullptr;
  int image_size_ = 0;
  int channels_ = 0;
  std::size_t num_images_ = 0;
  std::size_t num_held_out_ = 0;
  std::string digest_;
};

// Endless order in which `count` images are drawn: every image once per epoch. Position 0 is the first image that the
// training draws, position `count` the first of the second epoch. A batch is a run of consecutive positions and may be
// larger than `count`. An epoch's order depends on (seed, epoch) alone, so a training that resumes at a position draws
// as if it had never stopped. It is the same on every platform: the C++ standard fixes every bit of std::mt19937_64 and
// std::seed_seq, and the Fisher-Yates shuffle is written here because std::shuffle differs between libraries.
class Order {
 public:
  // `flips`: mirror each position's image left to right with probability 1/2; this does not change the order. Throws
  // Failure for no images, or more than 2^32 - 1.
  Order(std::uint64_t seed, std::size_t count, bool flips = false);

  // image() returns the image at a position, from 0 to count - 1, flipped() whether it is mirrored. The epoch of the last
  // position is cached: a position of the same epoch costs nothing, one of another epoch a pass over the images. Not
  // thread-safe.
  std::size_t image(std::uint64_t position);
  bool flipped(std::uint64_t position);

 private:
  std::size_t epoch_position(std::uint64_t position);  // draws the epoch's order if not cached

  std::uint64_t seed_;
  bool flips_;
  std::uint64_t epoch_ = ~std::uint64_t{0};  // none yet
  std::vector<std::uint32_t> order_;         // [count]
  std::vector<bool> flipped_;                // [count], or empty
};

}  // namespace ladder::train
