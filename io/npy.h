// NumPy's .npy files (numpy.lib.format): one array.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace ladder::io {

// uint8 or float32, C order, format version 1.0. Throws Failure naming the file, whose old content then stays.
void write_npy(const std::filesystem::path& file, const std::vector<std::uint8_t>& bytes,
               const std::vector<int>& shape);
void write_npy(const std::filesystem::path& file, const std::vector<float>& values, const std::vector<int>& shape);

struct FloatArray {
  std::vector<std::int64_t> shape;  // outermost dimension first; empty: a scalar
  std::vector<float> values;
};

// A file of float32 in C order. Throws Failure, one line that names the file and says what is wrong with it: missing, cut
// short, no .npy file, or another dtype or order, which it names.
FloatArray read_npy(const std::filesystem::path& file);

}  // namespace ladder::io
