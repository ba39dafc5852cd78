#include "io/png.h"

#include <fmt/format.h>
#include <stb_image_write.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "io/aside_file.h"

namespace ladder::io {

namespace {

constexpr int kGap = 2;
constexpr std::uint8_t kGapGray = 128;

using Pixel = std::array<std::uint8_t, 3>;

Pixel pixel_of(const std::uint8_t* rgb) { return {rgb[0], rgb[1], rgb[2]}; }

Pixel pixel_of(const float* rgb) {
  Pixel pixel;
  for (int c = 0; c < 3; ++c) {
    if (std::isnan(rgb[c])) return {255, 0, 255};
    // Clamped first: a cast of what does not fit is undefined.
    pixel[c] = static_cast<std::uint8_t>(std::lround((std::clamp(rgb[c], -1.0f, 1.0f) + 1) * 127.5f));
  }
  return pixel;
}

template <class T>
Picture grid_of(const T* images, int count, int size, int columns) {
  if (count < 1 || size < 1 || columns < 1) {
    throw Failure(fmt::format("a grid of {} images of {}x{} pixels in {} columns: each must be at least 1", count, size,
                              size, columns));
  }
  columns = std::min(columns, count);
  const int rows = (count - 1) / columns + 1;
  const std::int64_t width = std::int64_t{columns} * (size + kGap) - kGap;
  const std::int64_t height = std::int64_t{rows} * (size + kGap) - kGap;
  if (std::max(width, height) > std::numeric_limits<int>::max()) {
    throw Failure(fmt::format("a grid of {}x{} pixels is too large", width, height));
  }
  Picture picture{.width = static_cast<int>(width), .height = static_cast<int>(height)};
  picture.rgb.assign(static_cast<std::size_t>(width * height * 3), kGapGray);
  for (int i = 0; i < count; ++i) {
    const std::int64_t top = std::int64_t{i / columns} * (size + kGap);
    const std::int64_t left = std::int64_t{i % columns} * (size + kGap);
    for (int y = 0; y < size; ++y) {
      const T* from = images + (std::int64_t{i} * size + y) * size * 3;
      std::uint8_t* to = picture.rgb.data() + ((top + y) * width + left) * 3;
      for (int x = 0; x < size; ++x, from += 3, to += 3) {
        const Pixel pixel = pixel_of(from);
        std::copy(pixel.begin(), pixel.end(), to);
      }
    }
  }
  return picture;
}

}  // namespace

Picture grid(const std::uint8_t* images, int count, int size, int columns) {
  return grid_of(images, count, size, columns);
}

Picture grid(const float* images, int count, int size, int columns) { return grid_of(images, count, size, columns); }

void write_png(const std::filesystem::path& path, const Picture& picture) {
  if (picture.width < 1 || picture.height < 1 ||
      picture.rgb.size() != std::size_t{3} * picture.width * picture.height) {
    throw Failure(fmt::format("'{}' was not written: {} bytes are no picture of {}x{} pixels", path.string(),
                              picture.rgb.size(), picture.width, picture.height));
  }
  write_png(path, picture.width, picture.height, picture.rgb.data());
}

void write_png(const std::filesystem::path& path, int width, int height, const std::uint8_t* rgb) {
  // stb counts the bytes of the filtered picture in an int, and of what they become at most a little more.
  constexpr std::int64_t kMaxBytes = std::numeric_limits<int>::max() / 4;
  if (width < 1 || height < 1 || (std::int64_t{width} * 3 + 1) > kMaxBytes / height) {
    throw Failure(fmt::format("'{}' was not written: no picture has {}x{} pixels here", path.string(), width, height));
  }
  std::vector<std::uint8_t> png;
  const auto keep = [](void* to, void* bytes, int size) {
    const auto* first = static_cast<const std::uint8_t*>(bytes);
    static_cast<std::vector<std::uint8_t>*>(to)->assign(first, first + size);
  };
  if (!stbi_write_png_to_func(keep, &png, width, height, 3, rgb, width * 3)) {
    throw Failure(fmt::format("'{}' was not written: no memory to pack {}x{} pixels", path.string(), width, height));
  }
  AsideFile file(path);
  file.append(png.data(), png.size());
  file.commit();
}

}  // namespace ladder::io
