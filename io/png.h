// Pictures for people: grids of images, and PNG files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace ladder::io {

struct Picture {
  int width = 0, height = 0;
  std::vector<std::uint8_t> rgb;  // [height, width, 3]
};

// Images side by side, row by row, `columns` in a row (fewer where there are fewer images), 2 gray pixels between them.
// `images` is [count, size, size, 3]. Throws Failure where count, size or columns is below 1.
Picture grid(const std::uint8_t* images, int count, int size, int columns);
// The same of values from -1 (black) to 1 (white), which are rounded to the nearest of 256 levels; what lies outside is
// black or white, and NaN makes its pixel magenta.
Picture grid(const float* images, int count, int size, int columns);

// Throws Failure that names the file, whose old content then stays: no such folder, a full disk, or a picture whose
// width or height is below 1 or not that of its pixels.
void write_png(const std::filesystem::path& path, const Picture& picture);
// `rgb` is [height, width, 3].
void write_png(const std::filesystem::path& path, int width, int height, const std::uint8_t* rgb);

}  // namespace ladder::io
