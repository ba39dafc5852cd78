// .npy files: what is written comes back, and what is wrong with a file is said in one line.
#include "io/npy.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/files.h"

namespace ladder::io {
namespace {

using test::contents;
using test::message_of;
using test::put;
using test::Scratch;

std::string made(std::string header, std::size_t data_bytes, char version = 1) {
  std::string text = "\x93NUMPY";
  text += version;
  text += '\0';
  text += static_cast<char>(header.size() % 256);
  text += static_cast<char>(header.size() / 256);
  if (version > 1) text += std::string(2, '\0');
  return text + header + std::string(data_bytes, '\0');
}

TEST(Npy, FloatsComeBack) {
  const Scratch scratch;
  const auto file = scratch / "a.npy";
  const std::vector<float> values = {1.5f, -2, 0, 3e38f, 1e-40f, 7};
  write_npy(file, values, {2, 3});
  EXPECT_EQ(contents(file).size() % 64, values.size() * sizeof(float));
  const FloatArray back = read_npy(file);
  EXPECT_EQ(back.shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(back.values, values);
}

TEST(Npy, OtherVersionsAndWaysToWriteAHeaderAreRead) {
  const Scratch scratch;
  const auto file = scratch / "a.npy";
  put(file, made("{'shape': (), 'fortran_order': False, 'descr': '<f4'}\n", 4, 2));
  EXPECT_EQ(read_npy(file).values.size(), 1u);
  put(file, made("{'descr':'<f4','fortran_order':False,'shape':(3,)}", 12));
  EXPECT_EQ(read_npy(file).shape, (std::vector<std::int64_t>{3}));
  put(file, made("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4), }", 0));
  EXPECT_TRUE(read_npy(file).values.empty());
}

TEST(Npy, WhatIsWrongIsSaidInOneLine) {
  const Scratch scratch;
  const auto file = scratch / "wrong.npy";
  const auto header = [](const std::string& descr, const std::string& shape, const char* fortran = "False") {
    return "{'descr': " + descr + ", 'fortran_order': " + fortran + ", 'shape': " + shape + ", }";
  };
  const std::string complete = made(header("'<f4'", "(2, 3)"), 24);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "no .npy file"},
      {"PK\x03\x04 an archive", "no .npy file"},
      {complete.substr(0, 7), "cut short"},
      {complete.substr(0, 30), "cut short"},
      {complete.substr(0, complete.size() - 1), "shape [2, 3] takes 24 bytes, and 23 are there"},
      {complete + 'x', "and 25 are there"},
      {made(header("'<f4'", "(2, 3)"), 24, 9), "format version 9"},
      {made(header("'<f8'", "(2, 3)"), 48), "dtype '<f8' instead of float32, '<f4'"},
      {made(header("'>f4'", "(2, 3)"), 24), "dtype '>f4'"},
      {made(header("'|O'", "(2, 3)"), 24), "dtype '|O'"},
      {made(header("[('x', '<f4')]", "(2, 3)"), 24), "a structured array"},
      {made(header("'<f4'", "(2, 3)", "True"), 24), "Fortran order"},
      {made(header("'<f4'", "2, 3"), 24), "shape is damaged"},
      {made(header("'<f4'", "(2, 3"), 24), "shape is damaged"},
      {made(header("'<f4'", "(-2, 3)"), 24), "shape is damaged"},
      {made(header("'<f4'", "(2; 3)"), 24), "shape is damaged"},
      {made(header("'<f4'", "(99999999999999999999,)"), 24), "shape is damaged"},
      {made(header("'<f4'", "(4294967296, 4294967296, 4)"), 24), "more elements than can be counted"},
      {made(header("'<f4'", "(6)"), 24), "shape is damaged"},
      {made(header("'<f4'", "(2, 3)", "Falsey"), 24), "fortran_order is Falsey"},
      {made(header("'<f4', 'descr': '<f8'", "(2, 3)"), 24), "'descr' twice"},
      {made("{'descr': '<f4', 'shape': (2, 3)}", 24), "no 'fortran_order'"},
      {made("{}", 24), "no 'descr'"}};
  for (const auto& [text, says] : cases) {
    put(file, text);
    const std::string message = message_of<Failure>([&] { read_npy(file); });
    EXPECT_NE(message.find(says), message.npos) << message;
    EXPECT_NE(message.find("wrong.npy"), message.npos) << message;
    EXPECT_EQ(message.find('\n'), message.npos) << message;
  }
  EXPECT_NE(message_of<Failure>([&] { read_npy(scratch / "none.npy"); }).find("No such file"), std::string::npos);
  EXPECT_NE(message_of<Failure>([&] { read_npy(scratch.path()); }).find("is a folder"), std::string::npos);
}

}  // namespace
}  // namespace ladder::io
