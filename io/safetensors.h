// The safetensors format (github.com/huggingface/safetensors): eight bytes with the length of a header, little-endian;
// the header, a JSON object {"__metadata__": {key: text}, name: {"dtype", "shape", "data_offsets": [begin, end]}, ...};
// after it the tensors' bytes, row-major and little-endian, without a gap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/error.h"
#include "io/aside_file.h"

namespace ladder::io {

using Metadata = std::map<std::string, std::string>;  // UTF-8
using Shape = std::vector<std::int64_t>;              // outermost dimension first; empty: a scalar

std::string to_string(const Shape& shape);  // "[64, 3, 3, 3]"

// A tensor as a file has it. Of the dtypes all but tf32: F32, BF16, F16, I32, I64 and U8 in the format's words. A tensor of
// another dtype, such as BOOL or F64, is there to be counted and left alone.
struct StoredTensor {
  std::string name;
  Dtype dtype = Dtype::f32;
  Shape shape;
  std::string other_dtype = {};  // the format's word for one that is not read here; dtype is then u8

  std::size_t elements() const;  // 1 of a scalar
  std::size_t bytes() const;     // of a dtype that is read here
  std::string dtype_name() const;
};

// Writes a file without ever holding it: what it will contain is said first, the bytes follow in pieces. The file
// appears, or replaces another of its name, in finish(); see AsideFile. Members throw Failure: for what the system says
// naming the file, and for a duplicate name, a dtype that the format lacks, text that is not UTF-8 or a wrong number of
// bytes.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<StoredTensor>& tensors,
                    const Metadata& metadata = {});

  void append(const void* bytes,
              std::size_t size);  // tensors in order, in pieces that need not end where a tensor does
  void finish();

 private:
  AsideFile file_;
  std::size_t missing_bytes_ = 0;
};

// Somebody else's floats, in PyTorch's layout.
struct FloatTensor {
  std::string name;
  Shape shape;
  std::span<const float> values;
};

// A file of fp32 tensors. Throws as SafetensorsWriter does.
void write_floats(const std::filesystem::path& path, const std::vector<FloatTensor>& tensors,
                  const Metadata& metadata = {});

// The file is one of Python's pickle module, or of PyTorch, which holds one.
struct PickledFile : Failure {
  using Failure::Failure;
};

// An open file; tensors are read when they are asked for. Not to be used from several threads at once.
class SafetensorsFile {
 public:
  // Reads and checks the header against the format and the file's size. Throws Failure, one line that names the file
  // and what is wrong with it: missing, cut short, damaged (and where), or another kind of file (and which; a
  // PickledFile where that is what it is).
  explicit SafetensorsFile(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }  // in the order of their bytes
  const Metadata& metadata() const { return metadata_; }
  const StoredTensor* find(std::string_view name) const;  // null without such a tensor

  // Throw Failure where there is no such tensor, its dtype is not read here or it cannot be read; floats() also for integers. BF16 and F16 become
  // the same values in fp32.
  std::vector<std::byte> bytes(std::string_view name) const;
  std::vector<float> floats(std::string_view name) const;

 private:
  std::size_t index_of(std::string_view name) const;
  void read(std::size_t idx, void* bytes) const;

  std::filesystem::path path_;
  mutable std::ifstream file_;
  std::vector<StoredTensor> tensors_;
  std::vector<std::uint64_t> begins_;  // of each tensor, in bytes from the file's start
  std::map<std::string, std::size_t, std::less<>> index_;
  Metadata metadata_;
};

}  // namespace ladder::io
