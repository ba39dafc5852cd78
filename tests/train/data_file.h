// Small files of images to train on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "tests/train/files.h"

namespace ladder::train::test {

// A file as `./ladder prepare` writes it, of images of bytes that follow from `seed`; nothing but check_digest() looks
// whether the digest is that of the bytes.
inline void put_images(const std::filesystem::path& file, int size, int images, int held_out, std::uint64_t seed = 0) {
  const auto little = [](std::uint64_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i);
    return text;
  };
  std::string text = "LADDATA\n" + little(1, 4) + little(size, 4) + little(3, 4) + little(0, 4) + little(images, 8) +
                     little(held_out, 8) + little(seed + 1, 8) + little(0, 8) + std::string(72, '\0');
  std::uint64_t state = seed;
  for (int i = 0; i < images * size * size * 3; ++i) {
    state = state * 6364136223846793005 + 1442695040888963407;
    text += static_cast<char>(state >> 56);
  }
  ladder::test::put(file, text);
}

}  // namespace ladder::train::test
