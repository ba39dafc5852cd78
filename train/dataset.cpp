#include "train/dataset.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <random>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "io/digest.h"

namespace ladder::train {

namespace {

// File format written by tools/images/ldata.py.
constexpr std::string_view kMagic = "LADDATA\n";
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kChannels = 3;
constexpr std::uint32_t kMaxPixels = 1 << 15;  // of height or width
constexpr std::size_t kHeaderBytes = 128;

struct Header {
  char magic[8];
  std::uint32_t version;
  std::uint32_t image_size;
  std::uint32_t channels;
  std::uint32_t zero;
  std::uint64_t num_images;
  std::uint64_t num_held_out;
  std::uint8_t digest[16];  // of the header's fields before it, and of the pixels
  std::uint8_t zeros[72];
};
static_assert(sizeof(Header) == kHeaderBytes && offsetof(Header, digest) == 40, "the header is read as it lies");
static_assert(std::endian::native == std::endian::little, "the file's numbers are little-endian");

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& reason) {
  throw Failure(fmt::format("data set '{}' {}", path.string(), reason));
}

// Returns a uniform number below `bound`: 32 random bits, scaled, and redrawn where scaling would be biased (Lemire
// 2019).
std::uint32_t below(std::uint32_t bound, std::mt19937_64& random) {
  const std::uint32_t uneven = -bound % bound;  // 2^32 mod bound
  std::uint64_t scaled;
  do {
    scaled = (random() >> 32) * bound;
  } while (static_cast<std::uint32_t>(scaled) < uneven);
  return static_cast<std::uint32_t>(scaled >> 32);
}

}  // namespace

Dataset::Dataset(std::filesystem::path path) : path_(std::move(path)) {
  const int descriptor = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) refuse(path_, fmt::format("cannot be read: {}", std::strerror(errno)));
  struct stat status {};
  const bool is_file = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  const std::size_t bytes = is_file ? static_cast<std::size_t>(status.st_size) : 0;
  void* mapped = MAP_FAILED;
  if (bytes >= kHeaderBytes) mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
  const int error = errno;
  ::close(descriptor);
  if (bytes < kHeaderBytes) refuse(path_, "is none: it is no file, or shorter than a header; see ./ladder prepare");
  if (mapped == MAP_FAILED) refuse(path_, fmt::format("cannot be mapped: {}", std::strerror(error)));
  file_ = {static_cast<const std::uint8_t*>(mapped), Unmap{bytes}};

  Header header;
  std::memcpy(&header, mapped, sizeof header);
  if (std::string_view(header.magic, sizeof header.magic) != kMagic) {
    refuse(path_, "is none: it does not begin as the files of ./ladder prepare do");
  }
  if (header.version != kVersion) {
    refuse(path_, fmt::format("has version {} of the format, this reads version {}: prepare it anew", header.version,
                              kVersion));
  }
  if (header.image_size < 1 || header.image_size > kMaxPixels) {
    refuse(path_, fmt::format("has a corrupt header: images of {0}x{0} pixels", header.image_size));
  }
  if (header.channels != kChannels) {
    refuse(path_, fmt::format("has a corrupt header: {} channels instead of {}", header.channels, kChannels));
  }
  if (header.num_held_out >= header.num_images) {
    refuse(path_, fmt::format("has a corrupt header: {} images, of which {} are held out", header.num_images,
                              header.num_held_out));
  }
  if (header.zero != 0 || std::ranges::any_of(header.zeros, [](std::uint8_t byte) { return byte != 0; })) {
    refuse(path_, "has a corrupt header: there is something where nothing should be");
  }

  image_size_ = static_cast<int>(header.image_size);
  channels_ = static_cast<int>(header.channels);
  // Divide rather than multiply: the product with a corrupt number could wrap around.
  const std::size_t pixel_bytes = bytes - kHeaderBytes;
  const std::size_t found = pixel_bytes / image_bytes();
  if (found != header.num_images || pixel_bytes % image_bytes() != 0) {
    refuse(path_, fmt::format("is {}: its header says {} images of {} bytes, after it are {} bytes",
                              found < header.num_images ? "cut off" : "too long", header.num_images, image_bytes(),
                              pixel_bytes));
  }
  num_images_ = header.num_images;
  num_held_out_ = header.num_held_out;
  for (const std::uint8_t byte : header.digest) digest_ += fmt::format("{:02x}", byte);
  pixels_ = file_.get() + kHeaderBytes;
}

void Dataset::Unmap::operator()(const std::uint8_t* mapped) const {
  ::munmap(const_cast<std::uint8_t*>(mapped), bytes);
}

const std::uint8_t* Dataset::training(std::size_t index) const {
  LADDER_CHECK(index < num_training());
  return training() + index * image_bytes();
}

const std::uint8_t* Dataset::held_out(std::size_t index) const {
  LADDER_CHECK(index < num_held_out());
  return held_out() + index * image_bytes();
}

void Dataset::check_digest() const {
  constexpr std::size_t kAtOnce = std::size_t{1} << 24;
  const std::uint8_t* file = file_.get();
  const std::size_t bytes = file_.get_deleter().bytes;
  io::Digest found;
  found.add(file, offsetof(Header, digest));
  for (std::size_t offset = kHeaderBytes; offset < bytes; offset += kAtOnce)
    found.add(file + offset, std::min(kAtOnce, bytes - offset));
  if (found.hex() != digest_) {
    refuse(path_, "is corrupt: its pixels or its header are not those that its digest was made of; prepare it anew");
  }
}

Order::Order(std::uint64_t seed, std::size_t count, bool flips) : seed_(seed), flips_(flips) {
  if (count == 0 || count > ~std::uint32_t{0}) {
    throw Failure(fmt::format("an order of {} images: there must be 1 to {}", count, ~std::uint32_t{0}));
  }
  order_.resize(count);
}

std::size_t Order::image(std::uint64_t position) { return order_[epoch_position(position)]; }

bool Order::flipped(std::uint64_t position) { return flips_ && flipped_[epoch_position(position)]; }

std::size_t Order::epoch_position(std::uint64_t position) {
  const std::uint64_t epoch = position / order_.size();
  if (epoch != epoch_) {
    std::seed_seq sequence{static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32),
                           static_cast<std::uint32_t>(epoch), static_cast<std::uint32_t>(epoch >> 32)};
    std::mt19937_64 random(sequence);
    std::iota(order_.begin(), order_.end(), std::uint32_t{0});
    for (std::size_t left = order_.size(); left > 1; --left) {
      std::swap(order_[left - 1], order_[below(static_cast<std::uint32_t>(left), random)]);
    }
    if (flips_) {
      flipped_.resize(order_.size());
      for (std::size_t i = 0; i < flipped_.size(); ++i) flipped_[i] = (random() >> 63) != 0;
    }
    epoch_ = epoch;
  }
  return position % order_.size();
}

}  // namespace ladder::train
