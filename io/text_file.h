// Text that somebody else wrote, of bounded size.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace ladder::io {

// The content of a file, a pipe included. Throws Failure, one line that names the file, where it cannot be read or has more
// than `most` bytes, as a device that never ends.
std::string read_text(const std::filesystem::path& path, std::size_t most = std::size_t{16} << 20);

}  // namespace ladder::io
