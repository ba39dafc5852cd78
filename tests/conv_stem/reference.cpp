// The reference of conv_stem against hand-computed numbers, and problem lines.
#include <gtest/gtest.h>

#include "core/check/check.h"
#include "core/error.h"
#include "dev/conv_stem/conv_stem.h"
#include "tests/support.h"

namespace ladder {
namespace {

using namespace conv_stem;

template <class P>
Expected answer(const std::string& line, std::vector<std::vector<float>> inputs) {
  const Case c = pass_of<P>().parse(line);
  return reference_outputs(c, HostTensors(c.tensors, std::move(inputs))).at(0);
}

// x = 1 2 3 4 5 6, and so on by rows; windows of 2x2 begin every 2 pixels, one row and column outside.
std::vector<float> counted(int count) {
  std::vector<float> values(count);
  for (int i = 0; i < count; ++i) values[i] = static_cast<float>(i + 1);
  return values;
}

TEST(ConvStemReference, HandComputedStrideAndPadding) {
  // 4x4, filter 1 2 / 3 4. Rows -1..4 of x with zeros around; pixel (p, q) begins at (2p - 1, 2q - 1).
  const Expected y = answer<Fprop>("n1 h4 w4 c1 k1 r2 stride2 pad1 bias", {counted(16), {1, 2, 3, 4}, {100}});
  EXPECT_EQ(y.value, (std::vector<double>{100 + 4 * 1, 100 + 3 * 2 + 4 * 3, 100 + 3 * 4,               //
                                          100 + 2 * 5 + 4 * 9, 100 + 1 * 6 + 2 * 7 + 3 * 10 + 4 * 11,  //
                                          100 + 1 * 8 + 3 * 12, 100 + 2 * 13, 100 + 1 * 14 + 2 * 15, 100 + 1 * 16}));
  EXPECT_EQ(y.magnitude, y.value) << "all terms are positive";
}

TEST(ConvStemReference, FiltersAreKrscAndImagesNhwc) {
  // A filter of one pixel, two channels, two outputs: y[k] = w[k][0] x[0] + w[k][1] x[1].
  std::vector<float> x = counted(2 * 9 * 2);
  const Expected y = answer<Fprop>("n2 h3 w3 c2 k2 r1 stride1 pad0", {x, {1, 10, -100, 1000}});
  for (int pixel = 0; pixel < 18; ++pixel) {
    EXPECT_EQ(y.value[2 * pixel], x[2 * pixel] + 10 * x[2 * pixel + 1]);
    EXPECT_EQ(y.value[2 * pixel + 1], -100 * x[2 * pixel] + 1000 * x[2 * pixel + 1]);
    EXPECT_EQ(y.magnitude[2 * pixel + 1], 100 * x[2 * pixel] + 1000 * x[2 * pixel + 1]);
  }
}

TEST(ConvStemReference, RowsOfTheFilterAreRowsOfTheImage) {
  // A filter whose only tap is row 0, column 1: y[p][q] = x[p][q + 1].
  std::vector<float> w(9);
  w[1] = 1;
  const Expected y = answer<Fprop>("n1 h5 w6 c1 k1 r3 stride1 pad0", {counted(30), w});
  EXPECT_EQ(y.value, (std::vector<double>{2, 3, 4, 5, 8, 9, 10, 11, 14, 15, 16, 17}));
}

TEST(ConvStemReference, ReluPoolTakesTheLargestOfEachWindow) {
  // The convolution is x itself, 5x6 of which two windows a row are whole; the second channel is -x.
  const Expected y = answer<ReluPool>("n1 h5 w6 c1 k2 r1 stride1 pad0 bias", {counted(30), {1, -1}, {0.5f, 8}});
  EXPECT_EQ(y.value, (std::vector<double>{15.5, 7, 17.5, 5, 27.5, 0, 29.5, 0}));
  EXPECT_EQ(y.magnitude, (std::vector<double>{15.5, 23, 17.5, 25, 27.5, 35, 29.5, 37}));
}

TEST(ConvStemProblem, SizesOfThePublishedOne) {
  const Problem p = Problem::parse("n100 h224 w224 c3 k96 r11 stride4 pad2 bias");
  EXPECT_EQ(p.out_h(), 55);
  EXPECT_EQ(p.pool_w(), 27);
  EXPECT_EQ(p.filter(), 363);
  EXPECT_EQ(Fprop::flops(p), 2.0 * 363 * 96 * 100 * 55 * 55);
}

TEST(ConvStemProblem, Tf32IsAllowedOnlyWhereTheLineSaysSo) {
  const std::string line = "n1 h19 w19 c3 k32 r11 stride4 pad2 bias";
  EXPECT_FALSE(pass_of<Fprop>().parse(line).tensor("y").intermediate);
  EXPECT_EQ(pass_of<Fprop>().parse(line + " allow_tf32").tensor("y").intermediate, Dtype::tf32);
  EXPECT_EQ(pass_of<ReluPool>().parse(line + " allow_tf32").tensor("y").intermediate, Dtype::tf32);
}

TEST(ConvStemProblem, BadLinesAreRefused) {
  for (const char* line :
       {"n1 h19 w19 c3 k32 r11 stride4 pad2 bf16", "n1 h19 w19 c3 k32 r11 stride4 pad11",
        "n1 h14 w19 c3 k32 r11 stride4 pad2", "n1 h19 w14 c3 k32 r11 stride4 pad2", "n1 h19 w19 c3 k32 r11 stride4",
        "n1 h2 w2 c3 k32 r200 stride1 pad0", "n9999 h2240 w2240 c3 k96 r11 stride4 pad2"}) {
    EXPECT_THROW(Problem::parse(line), UsageError) << line;
  }
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Problem p = Problem::random(seed);
    EXPECT_EQ(Problem::parse(p.str()), p) << p.str();
  }
}

}  // namespace
}  // namespace ladder
