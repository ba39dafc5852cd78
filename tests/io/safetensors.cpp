// The safetensors format: written tensors come back, and every defect of a file gets a one-line message.
#include "io/safetensors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "tests/files.h"

namespace ladder::io {
namespace {

using test::contents;
using test::message_of;
using test::put;
using test::Scratch;

std::vector<unsigned char> pattern(std::size_t size, unsigned first) {
  std::vector<unsigned char> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<unsigned char>(first + 37 * i);
  return bytes;
}

void write(const std::filesystem::path& path, const std::vector<StoredTensor>& tensors, const Metadata& metadata = {}) {
  SafetensorsWriter writer(path, tensors, metadata);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto bytes = pattern(tensors[i].bytes(), static_cast<unsigned>(i));
    writer.append(bytes.data(), bytes.size());
  }
  writer.finish();
}

// Returns a file's text: length, header and `num_bytes` bytes of data.
std::string made(const std::string& header, std::size_t num_bytes) {
  const std::uint64_t length = header.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  return text + header + std::string(num_bytes, '\x01');
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape, int begin, int end) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", name, dtype, shape, begin, end);
}

class SafetensorsTest : public testing::Test {
 protected:
  // Expect an error for a file of this text, with all of `words` and the file's name in the message.
  void expect_refused(const std::string& text, const std::vector<std::string>& words) {
    put(file_, text);
    const std::string message = message_of<Failure>([&] { SafetensorsFile{file_}; });
    for (const std::string& word : words)
      EXPECT_NE(message.find(word), message.npos) << "not '" << word << "': " << message;
    EXPECT_NE(message.find(file_.string()), message.npos) << message;
  }

  Scratch scratch_;
  std::filesystem::path file_ = scratch_ / "it.safetensors";
};

TEST_F(SafetensorsTest, WhatIsWrittenComesBack) {
  const std::vector<StoredTensor> tensors = {
      {"w", Dtype::f32, {3, 1, 5}}, {"scalar", Dtype::f32, {}},      {"odd", Dtype::u8, {7}},
      {"b", Dtype::bf16, {2, 3}},   {"empty", Dtype::f16, {4, 0}},   {"h", Dtype::f16, {9}},
      {"i", Dtype::i64, {2}},       {"j", Dtype::i32, {1, 1, 1, 2}}, {"last \"name\"\n\xc3\xa9", Dtype::f32, {1}},
  };
  const Metadata metadata = {{"", "empty key"}, {"config", R"({"a": [1, 2]})"}, {"text", "two\nlines, \xe2\x82\xac"}};
  write(file_, tensors, metadata);

  const SafetensorsFile file(file_);
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_EQ(file.tensors().size(), tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const StoredTensor* found = file.find(tensors[i].name);
    ASSERT_NE(found, nullptr) << tensors[i].name;
    EXPECT_EQ(found->dtype, tensors[i].dtype) << tensors[i].name;
    EXPECT_EQ(found->shape, tensors[i].shape) << tensors[i].name;
    const auto expected = pattern(tensors[i].bytes(), static_cast<unsigned>(i));
    const auto bytes = file.bytes(tensors[i].name);
    ASSERT_EQ(bytes.size(), expected.size());
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), reinterpret_cast<const std::byte*>(expected.data())))
        << tensors[i].name;
  }
  EXPECT_EQ(file.tensors()[0].name, "w");
  EXPECT_EQ(file.tensors().back().name, tensors.back().name);
  EXPECT_EQ(file.find("W"), nullptr);

  std::uint64_t length = 0;
  std::memcpy(&length, contents(file_).data(), 8);
  EXPECT_EQ(length % 8, 0u);
}

TEST_F(SafetensorsTest, AFileMayHoldNothing) {
  write(file_, {});
  const SafetensorsFile file(file_);
  EXPECT_TRUE(file.tensors().empty());
  EXPECT_TRUE(file.metadata().empty());
  EXPECT_EQ(contents(file_).find("__metadata__"), std::string::npos);
}

TEST_F(SafetensorsTest, PiecesNeedNotEndWhereTensorsDo) {
  const std::vector<StoredTensor> tensors = {{"a", Dtype::f32, {5}}, {"b", Dtype::u8, {3}}};
  const auto bytes = pattern(23, 5);
  {
    SafetensorsWriter writer(file_, tensors);
    for (std::size_t at = 0; at < bytes.size(); at += 6) {
      writer.append(bytes.data() + at, std::min<std::size_t>(6, bytes.size() - at));
    }
    EXPECT_FALSE(std::filesystem::exists(file_)) << "there before it is whole";
    writer.finish();
  }
  const SafetensorsFile file(file_);
  EXPECT_EQ(std::memcmp(file.bytes("a").data(), bytes.data(), 20), 0);
  EXPECT_EQ(std::memcmp(file.bytes("b").data(), bytes.data() + 20, 3), 0);
  EXPECT_EQ(test::count_in(scratch_.path()), 1);
}

TEST_F(SafetensorsTest, HalfPrecisionBecomesTheSameNumbersInFp32) {
  const std::vector<float> values = {
      0.0f, -0.0f, 1.5f, -2.25f, 0x1p-14f, 240.0f, std::numeric_limits<float>::infinity()};
  const auto extent = static_cast<std::int64_t>(values.size());
  std::vector<StoredTensor> tensors;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) tensors.push_back({name(dtype), dtype, {extent}});
  tensors.push_back({"whole", Dtype::i64, {1}});
  SafetensorsWriter writer(file_, tensors);
  for (std::size_t i = 0; i < 3; ++i) {
    std::vector<unsigned char> stored(tensors[i].bytes());
    encode(tensors[i].dtype, values.data(), values.size(), stored.data());
    writer.append(stored.data(), stored.size());
  }
  const std::int64_t number = 7;
  writer.append(&number, sizeof number);
  writer.finish();

  const SafetensorsFile file(file_);
  for (std::size_t i = 0; i < 3; ++i) {
    const std::vector<float> read = file.floats(tensors[i].name);
    ASSERT_EQ(read.size(), values.size());
    EXPECT_EQ(std::memcmp(read.data(), values.data(), read.size() * sizeof(float)), 0) << tensors[i].name;
  }
  EXPECT_NE(message_of<Failure>([&] { file.floats("whole"); }).find("I64"), std::string::npos);
  EXPECT_NE(message_of<Failure>([&] { file.bytes("other"); }).find("'other'"), std::string::npos);
}

TEST_F(SafetensorsTest, FloatsAreWrittenAsTheyAre) {
  std::vector<float> values(6);
  std::iota(values.begin(), values.end(), -2.5f);
  write_floats(file_, {{"a", {2, 2}, std::span(values).first(4)}, {"b", {2}, std::span(values).last(2)}}, {{"k", "v"}});
  const SafetensorsFile file(file_);
  EXPECT_EQ(file.floats("a"), std::vector<float>(values.begin(), values.begin() + 4));
  EXPECT_EQ(file.floats("b"), std::vector<float>(values.begin() + 4, values.end()));
  EXPECT_EQ(file.metadata(), (Metadata{{"k", "v"}}));
  EXPECT_THROW(write_floats(file_, {{"a", {5}, values}}), Failure);
}

TEST_F(SafetensorsTest, WhatCannotBeWrittenIsSaid) {
  const auto message = [&](const std::vector<StoredTensor>& tensors, const Metadata& metadata = {}) {
    return message_of<Failure>([&] { SafetensorsWriter(file_, tensors, metadata); });
  };
  EXPECT_NE(message({{"a", Dtype::f32, {1}}, {"a", Dtype::u8, {1}}}).find("'a'"), std::string::npos);
  EXPECT_NE(message({{"__metadata__", Dtype::f32, {1}}}).find("'__metadata__'"), std::string::npos);
  EXPECT_NE(message({{"a", Dtype::tf32, {1}}}).find("tf32"), std::string::npos);
  EXPECT_NE(message({{"a", Dtype::f32, {1}}}, {{"k", "\xff"}}).find("UTF-8"), std::string::npos);
  EXPECT_THROW(write_floats(scratch_ / "none" / "it", {}), Failure);
  {
    SafetensorsWriter writer(file_, {{"a", Dtype::u8, {2}}});
    writer.append("x", 1);
    EXPECT_THROW(writer.finish(), Failure);
    EXPECT_THROW(writer.append("xyz", 2), Failure);
  }
  EXPECT_EQ(test::count_in(scratch_.path()), 0) << "something was left";
}

TEST_F(SafetensorsTest, AFullDiskLeavesTheOldFile) {
  write(file_, {{"old", Dtype::u8, {10}}});
  const std::string before = contents(file_);
  const test::Ended ended = test::with_file_limit(5000, false, [&] {
    write(file_, {{"new", Dtype::f32, {20000}}}, {{"k", "v"}});
  });
  EXPECT_EQ(ended.code, 1);
  EXPECT_EQ(ended.err, fmt::format("'{}' was not written: File too large", file_.string()));
  EXPECT_EQ(contents(file_), before);
  EXPECT_EQ(test::count_in(scratch_.path()), 1) << "half a file was left";
}

TEST_F(SafetensorsTest, AKilledWriterLeavesTheOldFile) {
  write(file_, {{"old", Dtype::u8, {10}}});
  const std::string before = contents(file_);
  const test::Ended ended = test::with_file_limit(5000, true, [&] { write(file_, {{"new", Dtype::f32, {20000}}}); });
  EXPECT_EQ(ended.code, 128 + SIGXFSZ) << ended.err;
  EXPECT_EQ(contents(file_), before);
  EXPECT_EQ(test::count_in(scratch_.path()), 2) << "the half file should be there beside it";
  write(file_, {{"new", Dtype::f32, {20000}}});
  EXPECT_NE(SafetensorsFile(file_).find("new"), nullptr);
}

TEST_F(SafetensorsTest, AFolderThatCannotBeWrittenToIsNamed) {
  const test::Ended ended = test::run_function([&] {
    chmod(scratch_.path().c_str(), 0555);
    if (geteuid() == 0 && seteuid(65534) != 0) return 3;
    try {
      write(file_, {});
    } catch (const Failure& failure) {
      std::fprintf(stderr, "%s", failure.what());
      return 1;
    }
    return 0;
  });
  chmod(scratch_.path().c_str(), 0755);
  EXPECT_EQ(ended.err, fmt::format("'{}' was not written: Permission denied", file_.string()));
  EXPECT_EQ(ended.code, 1);
  std::filesystem::create_directories(file_ / "x");
  EXPECT_NE(message_of<Failure>([&] { write(file_, {}); }).find("it is a folder"), std::string::npos);
  EXPECT_EQ(test::count_in(scratch_.path()), 1);
}

TEST_F(SafetensorsTest, WhatIsNoFileIsSaid) {
  EXPECT_NE(message_of<Failure>([&] { SafetensorsFile{file_}; }).find("No such file"), std::string::npos);
  EXPECT_NE(message_of<Failure>([&] { SafetensorsFile{scratch_.path()}; }).find("is a folder"), std::string::npos);
  EXPECT_NE(message_of<Failure>([&] { SafetensorsFile{"/dev/zero"}; }).find("no regular file"), std::string::npos);
}

TEST_F(SafetensorsTest, EveryTruncationIsRefused) {
  write(file_, {{"a", Dtype::f32, {3}}, {"b", Dtype::u8, {5}}}, {{"k", "v"}});
  const std::string complete = contents(file_);
  for (std::size_t size = 0; size < complete.size(); ++size) {
    expect_refused(complete.substr(0, size), {size == 0 ? "empty" : "cut short"});
  }
  expect_refused(complete + "x", {"1 bytes after its last tensor"});
}

TEST_F(SafetensorsTest, AFileThatIsCutShortWhileOpenIsNoticed) {
  write(file_, {{"a", Dtype::f32, {30000}}});
  const SafetensorsFile file(file_);
  std::filesystem::resize_file(file_, 60000);
  EXPECT_NE(message_of<Failure>([&] { file.floats("a"); }).find("'a'"), std::string::npos);
}

TEST_F(SafetensorsTest, OtherKindsOfFilesAreNamed) {
  expect_refused(std::string("\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16), {"a PNG image"});
  expect_refused("\xff\xd8\xff\xe0 and so on", {"a JPEG image"});
  std::string zip = std::string("PK\x03\x04\0\0", 6) + std::string(24, '\0');
  expect_refused(zip + "archive/data.pkl", {"a PyTorch archive", "safetensors.torch.save_file"});
  expect_refused(zip + "arr_0.npy", {"a NumPy archive"});
  expect_refused(zip + "other.txt", {"a zip archive"});
  expect_refused("\x80\x02\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19.\x80\x02M", {"a PyTorch file of the old kind"});
  expect_refused(std::string("\x80\x04\x95\x10\0\0\0\0\0\0\0}", 12), {"a Python pickle"});
  expect_refused("version https://git-lfs.github.com/spec/v1\noid", {"a Git LFS pointer"});
  expect_refused("{\"this\": \"is JSON\"}", {"a text file"});
  expect_refused(std::string(64, '\0'), {"does not begin with {"});
  expect_refused(std::string(64, '\xfe'), {"a header of 18374403900871474942 bytes"});
}

TEST_F(SafetensorsTest, ATensorOfAnotherDtypeIsRefusedWhenItIsReadAndNotBefore) {
  for (const auto& [dtype, bytes] : {std::pair{"BOOL", 3}, {"F64", 24}, {"F8_E4M3", 3}, {"F4", 2}, {"f32", 12}}) {
    const int end = 8 + bytes;
    put(file_, made("{" + entry("a", "F32", "[2]", 0, 8) + "," + entry("x", dtype, "[3]", 8, end) + "}", end));
    const SafetensorsFile file(file_);
    EXPECT_EQ(file.floats("a").size(), 2u);
    ASSERT_NE(file.find("x"), nullptr);
    EXPECT_EQ(file.find("x")->dtype_name(), dtype);
    EXPECT_NE(file.find("x")->dtype, Dtype::f32);
    for (const std::string& message :
         {message_of<Failure>([&] { file.bytes("x"); }), message_of<Failure>([&] { file.floats("x"); })}) {
      EXPECT_NE(message.find(fmt::format("tensor 'x' is {}, which is not read here: F32", dtype)), std::string::npos)
          << message;
    }
  }
}

TEST_F(SafetensorsTest, EveryKindOfDamageIsNamed) {
  const std::string a = entry("a", "F32", "[2]", 0, 8);
  put(file_, made("{" + a + "}", 8));
  EXPECT_EQ(SafetensorsFile(file_).tensors().size(), 1u) << "the file of which all of these are variants";

  expect_refused(made("{" + a, 8), {"header is damaged"});
  expect_refused(made("{" + a + "} x", 8), {"header is damaged"});
  expect_refused(made("{" + a + "}" + '\0', 8), {"header is damaged", "zero byte"});
  expect_refused(made("{\"\xff\":1}", 8), {"header is damaged at its byte 3"});
  expect_refused(made("[" + a + "]", 8), {"does not begin with {"});
  expect_refused(made("{" + a + "," + a + "}", 8), {"names 'a' twice"});
  expect_refused(made("{" + a + R"(,"__metadata__":{"k":"1","k":"2"}})", 8), {"names 'k' twice"});
  expect_refused(made("{" + a + R"(,"__metadata__":{"k":1}})", 8), {"__metadata__ has a 'k' that is no text"});
  expect_refused(made("{" + a + R"(,"__metadata__":["k"]})", 8), {"__metadata__ is no object"});
  std::string deep(100000, '[');
  expect_refused(made("{\"a\":" + deep, 8), {"nested deeper"});

  const auto one = [](const std::string& entry) { return made("{" + entry + "}", 8); };
  expect_refused(one(entry("a", "F64", "[1]", 8, 0)), {"'a'", "F64 [1]", "[8, 0]"});
  expect_refused(one(entry("a", "F32", "[3]", 0, 8)), {"'a'", "F32 [3] takes 12 bytes", "[0, 8]"});
  expect_refused(one(entry("a", "F32", "[]", 0, 8)), {"takes 4 bytes"});
  expect_refused(one(entry("a", "F32", "[2]", 8, 0)), {"[8, 0]"});
  expect_refused(one(entry("a", "F32", "[-2]", 0, 8)), {"-2 instead of a whole number"});
  expect_refused(one(entry("a", "F32", "[2.0]", 0, 8)), {"2.0 instead of a whole number"});
  expect_refused(one(entry("a", "F32", "2", 0, 8)), {"shape that is not a list"});
  expect_refused(one(entry("a", "F32", "[4611686018427387904,4]", 0, 8)), {"more elements than can be counted"});
  expect_refused(one(entry("a", "F32", "[18446744073709551615,0]", 0, 8)), {"more elements than can be counted"});
  expect_refused(one(R"("a":{"dtype":"F32","shape":[2]})"), {"'a'", "no data_offsets"});
  expect_refused(one(R"("a":{"dtype":"F32","data_offsets":[0,8]})"), {"'a'", "no shape"});
  expect_refused(one(R"("a":{"shape":[2],"data_offsets":[0,8]})"), {"'a'", "no dtype"});
  expect_refused(one(R"("a":{"dtype":7,"shape":[2],"data_offsets":[0,8]})"), {"dtype that is not a word"});
  expect_refused(one(R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,4,8]})"), {"not two numbers"});
  expect_refused(one(R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,1e300]})"), {"instead of a whole number"});
  // A name too long for std::string's inline buffer shows a string that is destroyed twice.
  const std::string name(40, 'n');
  for (const char* wrong : {"-1", "1.5", "1e3", "18446744073709551616", "\"8\"", "true", "null"}) {
    for (const char* offsets : {"[{},8]", "[0,{}]", "[{0},{0}]"}) {
      const std::string text = fmt::format(fmt::runtime(offsets), wrong);
      expect_refused(one(fmt::format(R"("{}":{{"dtype":"F32","shape":[2],"data_offsets":{}}})", name, text)),
                     {"tensor '" + name + "': ", " instead of a whole number"});
    }
  }
  for (const char* wrong : {"7", "null", "{}", "\"0,8\"", "[]", "[8]"}) {
    expect_refused(one(fmt::format(R"("{}":{{"dtype":"F32","shape":[2],"data_offsets":{}}})", name, wrong)),
                   {"tensor '" + name + "': data_offsets that are not two numbers"});
  }
  expect_refused(one(R"("a":{"dtype":"F32","shape":[2],"data_offsets":[[0],8]})"), {"nested deeper"});
  expect_refused(one("\"a\\nb\":3"), {"tensor 'a; b'"});

  const auto two = [&](int begin, int end, std::size_t bytes) {
    return made("{" + a + "," + entry("b", "U8", fmt::format("[{}]", end - begin), begin, end) + "}", bytes);
  };
  put(file_, two(8, 12, 12));
  EXPECT_EQ(SafetensorsFile(file_).tensors().size(), 2u);
  expect_refused(two(4, 12, 12), {"'a' and 'b' overlap"});
  expect_refused(two(0, 8, 8), {"overlap"});
  expect_refused(two(10, 12, 12), {"bytes 8 to 10 in front of tensor 'b'"});
  expect_refused(two(8, 12, 11), {"cut short", "12 bytes, and 11"});
  expect_refused(two(8, 12, 13), {"1 bytes after"});
}

}  // namespace
}  // namespace ladder::io
