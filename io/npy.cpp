#include "io/npy.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"
#include "io/aside_file.h"

namespace ladder::io {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian, and so is what is written to them");

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kLongestHeader = 1 << 16;  // of one array without field names

void write(const std::filesystem::path& file, const char* descr, const void* values, std::size_t bytes,
           const std::vector<int>& shape) {
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({},), }}", descr, fmt::join(shape, ", "));
  // Prefix: magic, version, the header's length in two bytes. Prefix and header are a multiple of 64 bytes, the last
  // one a newline.
  constexpr std::size_t kBefore = kMagic.size() + 4;
  header.append(63 - (kBefore + header.size()) % 64, ' ');
  header += '\n';
  std::string begin(kMagic);
  begin += '\x01';
  begin += '\0';
  begin += static_cast<char>(header.size() % 256);
  begin += static_cast<char>(header.size() / 256);
  AsideFile out(file);
  out.append(begin.data(), begin.size());
  out.append(header.data(), header.size());
  out.append(values, bytes);
  out.commit();
}

// Returns the text after 'key': in a header, which is a Python dictionary. Throws Failure.
std::string_view value_of(std::string_view header, std::string_view key) {
  const std::string quoted = fmt::format("'{}'", key);
  auto position = header.find(quoted);
  if (position == header.npos) throw Failure(fmt::format("its header has no {}", quoted));
  if (header.find(quoted, position + 1) != header.npos) throw Failure(fmt::format("its header has {} twice", quoted));
  position = header.find_first_not_of(": ", position + quoted.size());
  return header.substr(std::min(position, header.size()));
}

std::vector<std::int64_t> shape_of(std::string_view header) {
  std::string_view text = value_of(header, "shape");
  const auto end = text.find(')');
  if (!text.starts_with('(') || end == text.npos) throw Failure("its header's shape is damaged");
  text = text.substr(1, end - 1);
  const bool is_tuple = text.find(',') != text.npos;  // "(20)" is a number of Python
  std::vector<std::int64_t> shape;
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    if (text.empty() && (is_tuple || shape.empty())) return shape;
    std::int64_t extent = 0;
    const auto [parse_end, error] = std::from_chars(text.data(), text.data() + text.size(), extent);
    if (error != std::errc{} || extent < 0) throw Failure("its header's shape is damaged");
    shape.push_back(extent);
    text.remove_prefix(static_cast<std::size_t>(parse_end - text.data()));
    if (!text.empty() && text.front() != ',') throw Failure("its header's shape is damaged");
    text.remove_prefix(std::min<std::size_t>(1, text.size()));
  }
}

// Read `bytes` bytes. Throws Failure if the file ends before.
void read(std::ifstream& in, void* to, std::size_t bytes) {
  if (!in.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes))) throw Failure("cut short");
}

std::string header_of(std::ifstream& in) {
  char magic[kMagic.size()];
  unsigned char version[2];
  if (!in.read(magic, sizeof magic) || std::string_view(magic, sizeof magic) != kMagic) {
    throw Failure("no .npy file: numpy.save writes one");
  }
  read(in, version, sizeof version);
  if (version[0] < 1 || version[0] > 3) throw Failure(fmt::format("format version {}; 1 to 3 are read", version[0]));
  std::uint32_t length = 0;  // little-endian
  read(in, &length, version[0] == 1 ? 2 : 4);
  if (length > kLongestHeader) throw Failure(fmt::format("a header of {} bytes is none", length));
  std::string header(length, '\0');
  read(in, header.data(), header.size());
  return header;
}

FloatArray array_of(std::ifstream& in, std::uint64_t file_bytes) {
  const std::string header = header_of(in);
  std::string_view descr = value_of(header, "descr");
  if (!descr.starts_with('\'')) throw Failure("a structured array: one of float32 is expected");
  descr = descr.substr(1, std::min(descr.find('\'', 1), descr.size()) - 1);
  if (descr != "<f4") {
    throw Failure(
        fmt::format("dtype '{}' instead of float32, '<f4': save array.astype('float32')", one_line(descr, 20)));
  }
  std::string_view order = value_of(header, "fortran_order");
  order = order.substr(0, order.find_first_of(", }"));
  if (order == "True") throw Failure("Fortran order: save numpy.ascontiguousarray(array)");
  if (order != "False") throw Failure(fmt::format("its header's fortran_order is {}", one_line(order, 20)));
  FloatArray array{.shape = shape_of(header), .values = {}};
  std::uint64_t bytes = sizeof(float);
  for (const std::int64_t extent : array.shape) {
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes)) {
      throw Failure("a shape of more elements than can be counted");
    }
  }
  const std::uint64_t there = file_bytes - static_cast<std::uint64_t>(in.tellg());
  if (bytes != there) {
    throw Failure(
        fmt::format("shape [{}] takes {} bytes, and {} are there", fmt::join(array.shape, ", "), bytes, there));
  }
  array.values.resize(bytes / sizeof(float));
  read(in, array.values.data(), bytes);
  return array;
}

}  // namespace

void write_npy(const std::filesystem::path& file, const std::vector<std::uint8_t>& bytes,
               const std::vector<int>& shape) {
  write(file, "|u1", bytes.data(), bytes.size(), shape);
}

void write_npy(const std::filesystem::path& file, const std::vector<float>& values, const std::vector<int>& shape) {
  write(file, "<f4", values.data(), values.size() * sizeof(float), shape);
}

FloatArray read_npy(const std::filesystem::path& file) {
  std::error_code error;
  if (std::filesystem::is_directory(file, error)) {
    throw Failure(fmt::format("'{}' is a folder: name an .npy file", file.string()));
  }
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  const std::uint64_t size = in ? std::filesystem::file_size(file, error) : 0;
  if (!in || error) {
    throw Failure(
        fmt::format("'{}' cannot be read: {}", file.string(), error ? error.message() : std::strerror(errno)));
  }
  try {
    return array_of(in, size);
  } catch (const Failure& failure) {
    throw Failure(fmt::format("'{}': {}", file.string(), failure.what()));
  }
}

}  // namespace ladder::io
