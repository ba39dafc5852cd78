// Data to train on: a file of equal images, and the order in which training draws them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace ladder::train {

// A file that `./ladder prepare` wrote; tools/images/ldata.py says what is in it byte by byte. The images are uint8
// [row, column, channel], 0 black and 255 white; those to train on come first, those held out last. The file is mapped:
// nothing is read before it is looked at, and a file renamed over it changes nothing here.
class Dataset {
 public:
  // Throws Failure that names the file: not there, foreign, of another version, corrupt in its header, or of another
  // length than its header says.
  explicit Dataset(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  int image_size() const { return image_size_; }  // height and width, pixels
  int channels() const { return channels_; }
  std::size_t image_bytes() const { return std::size_t(image_size_) * image_size_ * channels_; }
  std::size_t num_training() const { return num_images_ - num_held_out_; }  // at least 1
  std::size_t num_held_out() const { return num_held_out_; }                // 0 of a single image

  // [num_training, image_size, image_size, channels] and [num_held_out, ...], each without gaps.
  const std::uint8_t* training() const { return pixels_; }
  const std::uint8_t* held_out() const { return pixels_ + num_training() * image_bytes(); }
  // One of them. Throws Failure where there is no such image.
  const std::uint8_t* training(std::size_t index) const;
  const std::uint8_t* held_out(std::size_t index) const;

  // 32 hexadecimal digits that stand for everything in the file, as its header gives them.
  const std::string& digest() const { return digest_; }
  // Reads the whole file, some gigabytes a second. Throws Failure where it is not what the digest was made of.
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

// The order in which `count` images are drawn, for ever: in each epoch every image once. Position 0 is the first image
// that the training draws, count the first of the second epoch; a batch is a run of consecutive positions, and may be more
// than there are images. An epoch's order follows from (seed, epoch) alone, so a training that resumes at a position
// draws as if it had never stopped; and it is the same everywhere: std::mt19937_64 and std::seed_seq, whose every bit
// the C++ standard fixes, then Fisher and Yates by hand, since what std::shuffle draws is each library's own.
class Order {
 public:
  // With `flips`, a fair coin for each position says whether its image is mirrored left to right; the coins do not
  // change the order. Throws Failure for no images, or more than 2^32 - 1.
  Order(std::uint64_t seed, std::size_t count, bool flips = false);

  // The image at a position, from 0 to count - 1, and whether it is mirrored. The epoch of the last position asked for
  // is remembered: going on in it costs nothing, another epoch costs a pass over the images. Not for two threads at
  // once.
  std::size_t at(std::uint64_t position);
  bool flipped(std::uint64_t position);

 private:
  std::size_t place_in_epoch(std::uint64_t position);  // draws the epoch's order where it is another

  std::uint64_t seed_;
  bool flips_;
  std::uint64_t epoch_ = ~std::uint64_t{0};  // none yet
  std::vector<std::uint32_t> order_;         // [count]
  std::vector<bool> flipped_;                // [count], or empty
};

}  // namespace ladder::train
