// NumPy's .npy files, format version 1.0 (numpy.lib.format): one array of bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace ladder::io {

// uint8, C order. Throws Failure naming the file.
void write_npy(const std::filesystem::path& file, const std::vector<std::uint8_t>& bytes,
               const std::vector<int>& shape);

}  // namespace ladder::io
