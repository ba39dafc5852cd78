// Small data files of training images.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "io/digest.h"
#include "tests/files.h"

namespace ladder::train::test {

// Write a data file like `./ladder prepare`'s, with these pixels.
inline void put_raw_images(const std::filesystem::path& file, int size, int images, int held_out,
                           const std::string& pixels) {
  const auto little = [](std::uint64_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i);
    return text;
  };
  const std::string header = "LADDATA\n" + little(1, 4) + little(size, 4) + little(3, 4) + little(0, 4) +
                             little(images, 8) + little(held_out, 8);
  io::Digest digest;
  digest.add(header.data(), header.size());
  digest.add(pixels.data(), pixels.size());
  std::string digest_bytes;
  for (int i = 0; i < 16; ++i) digest_bytes += static_cast<char>(std::stoi(digest.hex().substr(2 * i, 2), nullptr, 16));
  ladder::test::put(file, header + digest_bytes + std::string(72, '\0') + pixels);
}

// Write a data file of pseudo-random bytes that follow from `seed`.
inline void put_images(const std::filesystem::path& file, int size, int images, int held_out, std::uint64_t seed = 0) {
  std::string pixels;
  std::uint64_t state = seed;
  for (int i = 0; i < images * size * size * 3; ++i) {
    state = state * 6364136223846793005 + 1442695040888963407;
    pixels += static_cast<char>(state >> 56);
  }
  put_raw_images(file, size, images, held_out, pixels);
}

}  // namespace ladder::train::test
