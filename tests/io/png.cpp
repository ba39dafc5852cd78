// Grids of images and PNG files, read back by another program's decoder.
#include "io/png.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/error.h"
#include "tests/files.h"

#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_ONLY_PNG
#include <stb_image.h>

namespace ladder::io {
namespace {

using test::contents;
using test::count_in;
using test::message_of;
using test::put;
using test::Scratch;

Picture read(const std::filesystem::path& path) {
  Picture picture;
  int channels = 0;
  unsigned char* pixels = stbi_load(path.c_str(), &picture.width, &picture.height, &channels, 0);
  if (!pixels) throw std::runtime_error(stbi_failure_reason());
  EXPECT_EQ(channels, 3);
  picture.rgb.assign(pixels, pixels + std::size_t{3} * picture.width * picture.height);
  stbi_image_free(pixels);
  return picture;
}

std::vector<std::uint8_t> counting(int bytes, int step) {
  std::vector<std::uint8_t> values(static_cast<std::size_t>(bytes));
  for (int i = 0; i < bytes; ++i) values[i] = static_cast<std::uint8_t>(i * step + i / 7);
  return values;
}

// The pixel at (x, y) as one number, 0xrrggbb.
unsigned pixel(const Picture& picture, int x, int y) {
  const std::uint8_t* at = &picture.rgb.at(std::size_t{3} * (y * picture.width + x));
  return unsigned{at[0]} << 16 | unsigned{at[1]} << 8 | unsigned{at[2]};
}

constexpr unsigned kGap = 0x808080;

TEST(Png, IsReadBackAsItWasWritten) {
  const Scratch scratch;
  for (const auto& [width, height] : {std::pair{1, 1}, {1, 9}, {9, 1}, {37, 23}, {300, 200}}) {
    const Picture picture{width, height, counting(3 * width * height, 5)};
    write_png(scratch / "a.png", picture);
    const Picture found = read(scratch / "a.png");
    EXPECT_EQ(found.width, width);
    EXPECT_EQ(found.height, height);
    EXPECT_EQ(found.rgb, picture.rgb);
  }
  EXPECT_EQ(count_in(scratch.path()), 1);
}

TEST(Png, AFullDiskLeavesTheOldPicture) {
  const Scratch scratch;
  put(scratch / "a.png", "old");
  const Picture picture{64, 64, counting(3 * 64 * 64, 77)};
  const test::Ended full = test::with_file_limit(100, false, [&] { write_png(scratch / "a.png", picture); });
  EXPECT_EQ(full.code, 1);
  EXPECT_NE(full.err.find("a.png' was not written: File too large"), full.err.npos) << full.err;
  EXPECT_EQ(contents(scratch / "a.png"), "old");
  EXPECT_EQ(count_in(scratch.path()), 1);
}

TEST(Png, RefusesWhatIsNoPicture) {
  const Scratch scratch;
  const auto refusal = [&](int width, int height, std::size_t bytes) {
    return message_of<Failure>([&] {
      write_png(scratch / "a.png", Picture{width, height, std::vector<std::uint8_t>(bytes)});
    });
  };
  EXPECT_NE(refusal(2, 2, 11).find("11 bytes are no picture of 2x2 pixels"), std::string::npos);
  EXPECT_NE(refusal(0, 2, 0).find("no picture of 0x2"), std::string::npos);
  EXPECT_NE(refusal(-2, -2, 12).find("no picture of -2x-2"), std::string::npos);
  const std::uint8_t some[3] = {};
  const std::string large = message_of<Failure>([&] { write_png(scratch / "a.png", 1 << 20, 1 << 20, some); });
  EXPECT_NE(large.find("no picture has 1048576x1048576 pixels here"), large.npos) << large;
  const std::string nowhere = message_of<Failure>([&] { write_png(scratch / "no/a.png", 1, 1, some); });
  EXPECT_NE(nowhere.find("No such file"), nowhere.npos) << nowhere;
  EXPECT_EQ(count_in(scratch.path()), 0);
}

TEST(Grid, LaysImagesOutRowByRowWithGaps) {
  // Five images of 2x2 pixels in three columns; pixel p of image i is 0x<i><p>.
  std::vector<std::uint8_t> images;
  for (int i = 0; i < 5; ++i) {
    for (int p = 0; p < 4; ++p) images.insert(images.end(), 3, static_cast<std::uint8_t>(16 * i + p));
  }
  const Picture picture = grid(images.data(), 5, 2, 3);
  ASSERT_EQ(picture.width, 3 * 2 + 2 * 2);
  ASSERT_EQ(picture.height, 2 * 2 + 2);
  for (int y = 0; y < picture.height; ++y) {
    for (int x = 0; x < picture.width; ++x) {
      const int i = y / 4 * 3 + x / 4;
      const bool gap = x % 4 >= 2 || y % 4 >= 2 || i >= 5;
      const unsigned gray = 16 * i + y % 4 * 2 + x % 4;
      EXPECT_EQ(pixel(picture, x, y), gap ? kGap : gray * 0x010101) << x << ", " << y;
    }
  }
}

TEST(Grid, IsNoWiderThanItsImages) {
  const std::vector<std::uint8_t> images(2 * 4 * 4 * 3);
  const Picture picture = grid(images.data(), 2, 4, 8);
  EXPECT_EQ(picture.width, 10);
  EXPECT_EQ(picture.height, 4);
}

TEST(Grid, RoundsAndClampsFloats) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {-1, 0.001f, 1, -1.5f,     7,      infinity,  //
                                     0,  nan,    0, -infinity, 0.998f, 0.994f};
  const Picture picture = grid(values.data(), 1, 2, 1);
  EXPECT_EQ(pixel(picture, 0, 0), 0x0080ffu);
  EXPECT_EQ(pixel(picture, 1, 0), 0x00ffffu);
  EXPECT_EQ(pixel(picture, 0, 1), 0xff00ffu) << "NaN is to be seen";
  EXPECT_EQ(pixel(picture, 1, 1), 0x00fffeu);
}

TEST(Grid, EveryLevelComesBack) {
  std::vector<float> values;
  for (int level = 0; level < 256; ++level) values.insert(values.end(), 3, static_cast<float>(level) / 127.5f - 1);
  const Picture picture = grid(values.data(), 1, 16, 1);
  for (int level = 0; level < 256; ++level) {
    EXPECT_EQ(pixel(picture, level % 16, level / 16), level * 0x010101u);
  }
}

TEST(Grid, RefusesNoImages) {
  const std::uint8_t some[3] = {};
  for (const std::array<int, 3>& of : {std::array{0, 1, 1}, {1, 0, 1}, {1, 1, 0}}) {
    const std::string message = message_of<Failure>([&] { grid(some, of[0], of[1], of[2]); });
    EXPECT_NE(message.find("each must be at least 1"), message.npos) << message;
  }
}

}  // namespace
}  // namespace ladder::io
