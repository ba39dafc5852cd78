#include "io/text_file.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include <fmt/format.h>

#include "core/error.h"

namespace ladder::io {

std::string read_text(const std::filesystem::path& path, std::size_t most) {
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  errno = 0;
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "rb"));
  const auto fail = [&] {
    throw Failure(fmt::format("'{}' cannot be read: {}", path.string(), std::strerror(errno != 0 ? errno : EIO)));
  };
  if (!file) fail();
  std::string text;
  std::array<char, 1 << 16> piece;
  while (const std::size_t got = std::fread(piece.data(), 1, piece.size(), file.get())) {
    text.append(piece.data(), got);
    if (text.size() > most) {
      throw Failure(
          fmt::format("'{}' has more than {} bytes: it is none of those that are read here", path.string(), most));
    }
  }
  if (std::ferror(file.get()) != 0) fail();
  return text;
}

}  // namespace ladder::io
