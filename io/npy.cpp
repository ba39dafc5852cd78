#include "io/npy.h"

#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "io/aside_file.h"

namespace ladder::io {

void write_npy(const std::filesystem::path& file, const std::vector<std::uint8_t>& bytes,
               const std::vector<int>& shape) {
  std::string header =
      fmt::format("{{'descr': '|u1', 'fortran_order': False, 'shape': ({},), }}", fmt::join(shape, ", "));
  // Magic, version, the header's length in two bytes; all of it a multiple of 64, the last byte a newline.
  constexpr std::size_t kBefore = 10;
  header.append(63 - (kBefore + header.size()) % 64, ' ');
  header += '\n';
  std::string begin = "\x93NUMPY";
  begin += '\x01';
  begin += '\0';
  begin += static_cast<char>(header.size() % 256);
  begin += static_cast<char>(header.size() / 256);
  AsideFile out(file);
  out.append(begin.data(), begin.size());
  out.append(header.data(), header.size());
  out.append(bytes.data(), bytes.size());
  out.commit();
}

}  // namespace ladder::io
