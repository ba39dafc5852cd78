// The data's file and the order of drawing. What prepares the file is tried in tests/python/test_prepare.py.
#include "train/dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "tests/files.h"

namespace ladder::train {
namespace {

using test::has;
using test::message_of;
using test::put;
using test::Scratch;

// A number's bytes, the least first.
std::string little(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i);
  return text;
}

std::string from_hex(const std::string& hex) {
  std::string text;
  for (std::size_t i = 0; i < hex.size(); i += 2) text += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return text;
}

// The file of four images of 2x2 pixels whose bytes count from 0 to 47; image 1 is held out. tests/python/test_prepare.py
// holds what writes such files to the same digest.
constexpr const char* kDigest = "96b62a20665eb5a7e6d9ace6f56aee40";
constexpr int kOffsetOfVersion = 8, kOffsetOfSize = 12, kOffsetOfChannels = 16, kOffsetOfZero = 20, kOffsetOfCount = 24,
              kOffsetOfHeldOut = 32, kOffsetOfZeros = 56, kHeaderBytes = 128, kImageBytes = 12;

std::string good() {
  std::string text = "LADDATA\n" + little(1, 4) + little(2, 4) + little(3, 4) + little(0, 4) + little(4, 8) +
                     little(1, 8) + from_hex(kDigest) + std::string(72, '\0');
  for (const int image : {0, 2, 3, 1}) {
    for (int i = 0; i < kImageBytes; ++i) text += static_cast<char>(image * kImageBytes + i);
  }
  return text;
}

std::string changed(int offset, const std::string& bytes) {
  return good().replace(static_cast<std::size_t>(offset), bytes.size(), bytes);
}

// The message with which a file of this text is refused.
std::string refusal(const std::string& text) {
  const Scratch scratch;
  put(scratch / "some.ldata", text);
  const std::string message = message_of<Failure>([&] { Dataset data(scratch / "some.ldata"); });
  EXPECT_NE(message.find((scratch / "some.ldata").string()), message.npos) << message;
  return message;
}

TEST(Dataset, HasWhatItsFileSays) {
  const Scratch scratch;
  put(scratch / "some.ldata", good());
  const Dataset opened(scratch / "some.ldata");
  EXPECT_EQ(opened.path(), scratch / "some.ldata");
  EXPECT_EQ(opened.image_size(), 2);
  EXPECT_EQ(opened.channels(), 3);
  EXPECT_EQ(opened.image_bytes(), 12u);
  EXPECT_EQ(opened.num_training(), 3u);
  EXPECT_EQ(opened.num_held_out(), 1u);
  EXPECT_EQ(opened.digest(), kDigest);
  opened.check_digest();
  EXPECT_EQ(*opened.training(0), 0);
  EXPECT_EQ(*opened.training(1), 24);
  EXPECT_EQ(opened.training(2)[11], 47);
  EXPECT_EQ(opened.training() + 2 * 12, opened.training(2));
  EXPECT_EQ(*opened.held_out(0), 12);
  EXPECT_EQ(opened.held_out(), opened.held_out(0));
  EXPECT_THROW(opened.training(3), Failure);
  EXPECT_THROW(opened.held_out(1), Failure);
}

TEST(Dataset, MovesAndOutlivesItsName) {
  const Scratch scratch;
  put(scratch / "some.ldata", good());
  Dataset opened(scratch / "some.ldata");
  const Dataset moved = std::move(opened);
  put(scratch / "new.ldata", std::string("another"));
  std::filesystem::rename(scratch / "new.ldata", scratch / "some.ldata");
  moved.check_digest();
  EXPECT_EQ(moved.training(2)[11], 47);
}

TEST(Dataset, OneImageIsTrainedOn) {
  const Scratch scratch;
  std::string text = good().substr(0, kHeaderBytes + kImageBytes);
  text.replace(kOffsetOfCount, 16, little(1, 8) + little(0, 8));
  put(scratch / "one.ldata", text);
  const Dataset one(scratch / "one.ldata");
  EXPECT_EQ(one.num_training(), 1u);
  EXPECT_EQ(one.num_held_out(), 0u);
  EXPECT_THROW(one.held_out(0), Failure);
}

TEST(Dataset, RefusesWhatIsNotThereOrForeign) {
  const Scratch scratch;
  EXPECT_TRUE(has(message_of<Failure>([&] { Dataset data(scratch / "no.ldata"); }), "No such file"));
  EXPECT_TRUE(has(message_of<Failure>([&] { Dataset data(scratch.path()); }), "is no file"));
  EXPECT_TRUE(has(refusal(""), "shorter than a header"));
  EXPECT_TRUE(has(refusal(good().substr(0, kHeaderBytes - 1)), "shorter than a header"));
  EXPECT_TRUE(has(refusal(std::string(500, 'x')), "does not begin as"));
}

TEST(Dataset, RefusesACorruptHeader) {
  EXPECT_TRUE(has(refusal(changed(0, "M")), "does not begin as"));
  EXPECT_TRUE(has(refusal(changed(kOffsetOfVersion, little(2, 4))), "has version 2 of the format"));
  EXPECT_TRUE(has(refusal(changed(kOffsetOfSize, little(0, 4))), "images of 0x0 pixels"));
  EXPECT_TRUE(has(refusal(changed(kOffsetOfSize, little(0xffffffff, 4))), "images of 4294967295x"));
  EXPECT_TRUE(has(refusal(changed(kOffsetOfChannels, little(4, 4))), "4 channels instead of 3"));
  EXPECT_TRUE(has(refusal(changed(kOffsetOfHeldOut, little(4, 8))), "4 images, of which 4 are held out"));
  EXPECT_TRUE(has(refusal(changed(kOffsetOfCount, little(0, 8))), "0 images"));
  EXPECT_TRUE(has(refusal(changed(kOffsetOfZero, "x")), "something where nothing should be"));
  EXPECT_TRUE(has(refusal(changed(kOffsetOfZeros, "x")), "something where nothing should be"));
  EXPECT_TRUE(has(refusal(changed(kHeaderBytes - 1, "x")), "something where nothing should be"));
}

TEST(Dataset, RefusesAnotherLengthThanItsHeaderSays) {
  EXPECT_TRUE(has(refusal(good().substr(0, good().size() - 1)), "is cut off"));
  EXPECT_TRUE(has(refusal(good().substr(0, kHeaderBytes)), "is cut off"));
  EXPECT_TRUE(has(refusal(good() + "x"), "is too long"));
  EXPECT_TRUE(has(refusal(good() + std::string(kImageBytes, 'x')), "is too long"));
  // 2^63 + 4 images of 12 bytes have 48 bytes, modulo 2^64.
  EXPECT_TRUE(has(refusal(changed(kOffsetOfCount, little((std::uint64_t{1} << 63) + 4, 8))), "is cut off"));
}

TEST(Dataset, TheDigestFindsAChangedByte) {
  const Scratch scratch;
  for (const auto& [offset, bytes] : std::vector<std::pair<int, std::string>>{
           {kHeaderBytes, "x"},                        // a pixel
           {kHeaderBytes + 4 * kImageBytes - 1, "x"},  // the last one
           {kOffsetOfHeldOut, little(2, 8)},           // another split
           {40, "x"},                                  // the digest itself
       }) {
    put(scratch / "some.ldata", changed(offset, bytes));
    const Dataset data(scratch / "some.ldata");
    EXPECT_TRUE(has(message_of<Failure>([&] { data.check_digest(); }), "is corrupt")) << offset;
  }
}

std::vector<std::size_t> drawn(Order& order, std::uint64_t first, std::size_t count) {
  std::vector<std::size_t> images;
  for (std::uint64_t position = first; position < first + count; ++position) images.push_back(order.image(position));
  return images;
}

std::vector<bool> flips(Order& order, std::uint64_t first, std::size_t count) {
  std::vector<bool> found;
  for (std::uint64_t position = first; position < first + count; ++position) found.push_back(order.flipped(position));
  return found;
}

// Worked out by another program, from the standard's text on seed_seq and the generator.
TEST(Order, IsTheSameEverywhere) {
  Order order(1, 10, true);
  EXPECT_EQ(drawn(order, 0, 10), (std::vector<std::size_t>{9, 5, 3, 8, 6, 0, 7, 1, 2, 4}));
  EXPECT_EQ(flips(order, 0, 10), (std::vector<bool>{0, 0, 0, 0, 1, 1, 0, 1, 0, 0}));
  EXPECT_EQ(drawn(order, 10, 10), (std::vector<std::size_t>{9, 4, 0, 3, 5, 7, 6, 8, 1, 2}));
  EXPECT_EQ(flips(order, 10, 10), (std::vector<bool>{0, 1, 0, 0, 0, 1, 0, 0, 0, 1}));
  Order another((std::uint64_t{1} << 40) + 5, 10, true);
  EXPECT_EQ(drawn(another, 30, 10), (std::vector<std::size_t>{4, 2, 0, 8, 5, 9, 1, 7, 6, 3}));
  EXPECT_EQ(flips(another, 30, 10), (std::vector<bool>{1, 1, 0, 1, 0, 0, 0, 1, 1, 0}));
}

TEST(Order, EveryEpochHasEveryImageOnceInAnOrderOfItsOwn) {
  for (const std::size_t count : {1, 2, 7, 1115}) {
    Order order(3, count);
    std::set<std::vector<std::size_t>> orders;
    for (int epoch = 0; epoch < 5; ++epoch) {
      std::vector<std::size_t> images = drawn(order, epoch * count, count);
      orders.insert(images);
      std::sort(images.begin(), images.end());
      std::vector<std::size_t> all(count);
      std::iota(all.begin(), all.end(), std::size_t{0});
      EXPECT_EQ(images, all) << "epoch " << epoch << " of " << count;
    }
    EXPECT_EQ(orders.size(), count == 1 ? 1 : count == 2 ? 2 : 5) << count;
  }
}

TEST(Order, FollowsFromTheSeed) {
  Order one(1, 100), two(2, 100), high(1 + (std::uint64_t{1} << 32), 100);
  EXPECT_NE(drawn(one, 0, 100), drawn(two, 0, 100));
  EXPECT_NE(drawn(one, 0, 100), drawn(high, 0, 100));
}

TEST(Order, DoesNotDependOnWhatWasAskedBefore) {
  Order through(5, 13, true), back(5, 13, true);
  const std::vector<std::size_t> images = drawn(through, 0, 60);
  const std::vector<bool> mirrored = flips(through, 0, 60);
  for (std::uint64_t position = 60; position-- > 0;) {
    EXPECT_EQ(back.image(position), images[position]) << position;
    EXPECT_EQ(back.flipped(position), mirrored[position]) << position;
  }
  Order resumed(5, 13, true);
  EXPECT_EQ(drawn(resumed, 41, 19), (std::vector<std::size_t>{images.begin() + 41, images.end()}));
}

TEST(Order, EveryImageStandsEverywhereEquallyOften) {
  constexpr int kImages = 5, kEpochs = 20000;
  Order order(7, kImages);
  std::vector<int> counts(kImages * kImages);
  for (std::uint64_t position = 0; position < std::uint64_t{kImages} * kEpochs; ++position) {
    ++counts[position % kImages * kImages + order.image(position)];
  }
  // 4000 expected, standard deviation 57.
  EXPECT_GT(*std::min_element(counts.begin(), counts.end()), 3700);
  EXPECT_LT(*std::max_element(counts.begin(), counts.end()), 4300);
}

TEST(Order, FlipsHalfAndLeavesTheOrderAlone) {
  Order plain(7, 1000), flipping(7, 1000, true);
  EXPECT_EQ(drawn(plain, 0, 3000), drawn(flipping, 0, 3000));
  const std::vector<bool> none = flips(plain, 0, 3000), half = flips(flipping, 0, 3000);
  EXPECT_EQ(std::count(none.begin(), none.end(), true), 0);
  EXPECT_NEAR(std::count(half.begin(), half.end(), true), 1500, 150);  // standard deviation 27
  EXPECT_NE(flips(flipping, 0, 1000), flips(flipping, 1000, 1000));
}

TEST(Order, FewerImagesThanABatch) {
  Order order(1, 3);
  const std::vector<std::size_t> batch = drawn(order, 0, 32);
  EXPECT_EQ(std::count(batch.begin(), batch.begin() + 30, 0u), 10);
  EXPECT_EQ(std::count(batch.begin(), batch.begin() + 30, 2u), 10);
}

TEST(Order, NeedsAnImage) {
  EXPECT_TRUE(has(message_of<Failure>([] { Order order(1, 0); }), "an order of 0 images"));
  EXPECT_TRUE(has(message_of<Failure>([] { Order order(1, std::size_t{1} << 32); }), "must be 1 to 4294967295"));
}

}  // namespace
}  // namespace ladder::train
