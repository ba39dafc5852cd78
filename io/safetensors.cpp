#include "io/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "core/error.h"

namespace ladder::io {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "files are little-endian, and so is what is written to them");

constexpr const char* kMetadata = "__metadata__";
constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kLongestHeader = 100'000'000;  // limit of the format's own library

constexpr std::array<std::pair<Dtype, const char*>, 6> kDtypes = {{{Dtype::f32, "F32"},
                                                                   {Dtype::bf16, "BF16"},
                                                                   {Dtype::f16, "F16"},
                                                                   {Dtype::i32, "I32"},
                                                                   {Dtype::i64, "I64"},
                                                                   {Dtype::u8, "U8"}}};

const char* word_of(Dtype dtype) {
  for (const auto& [known, word] : kDtypes) {
    if (known == dtype) return word;
  }
  throw Failure(fmt::format("safetensors files hold no {}", name(dtype)));
}

// Returns the dtype of a header's word, or nothing for a dtype that is not read here.
std::optional<Dtype> dtype_of(const std::string& word) {
  for (const auto& [dtype, known] : kDtypes) {
    if (word == known) return dtype;
  }
  return std::nullopt;
}

// Returns the header, padded so that tensors begin at a multiple of eight bytes.
std::string header_of(const std::vector<StoredTensor>& tensors, const Metadata& metadata) {
  json header = json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  std::size_t begin = 0;
  for (const StoredTensor& tensor : tensors) {
    if (header.contains(tensor.name) || tensor.name == kMetadata) {
      throw Failure(fmt::format("two tensors called '{}', or a name that is taken", tensor.name));
    }
    const std::size_t end = begin + tensor.bytes();
    header[tensor.name] = {{"dtype", word_of(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');
  return text;
}

constexpr const char* kConvert = ": convert it in Python, with safetensors.torch.save_file";

// Returns the kind of a file that is not of this format, by its first bytes; empty if they say nothing. The text of a
// file with a pickle ends in kConvert.
std::string kind_by(std::string_view start) {
  using namespace std::string_view_literals;
  if (start.starts_with("\x89PNG"sv)) return "a PNG image";
  if (start.starts_with("\xff\xd8\xff"sv)) return "a JPEG image";
  if (start.starts_with("\x93NUMPY"sv)) return "a NumPy array";
  if (start.starts_with("\x1f\x8b"sv)) return "a gzip archive: unpack it";
  if (start.starts_with("\x89HDF"sv)) return "an HDF5 file";
  if (start.starts_with("version https://git-lfs"sv)) return "a Git LFS pointer: fetch the file it stands for";
  const auto convert = [](const char* what) { return std::string(what) + kConvert; };
  if (start.starts_with("PK\x03\x04"sv)) {  // the first member's name stands after thirty bytes
    if (start.find("/data.pkl"sv) != start.npos) return convert("a PyTorch archive");
    return start.find(".npy"sv) != start.npos ? "a NumPy archive" : "a zip archive";
  }
  if (start.starts_with("\x80\x02\x8a\x0al\xfc\x9c\x46"sv)) return convert("a PyTorch file of the old kind");
  if (start.size() > 1 && start[0] == '\x80' && start[1] >= 2 && start[1] <= 5) return convert("a Python pickle");
  const bool is_text = std::all_of(start.begin(), start.end(), [](unsigned char c) {
    return (c >= ' ' && c <= '~') || c == '\t' || c == '\n' || c == '\r';
  });
  return is_text && start.size() >= kLengthBytes ? "a text file" : "";
}

// Parse a header's JSON. Throws Failure if an object has a name twice or the JSON is deeper than the format.
json parse_header(const std::string& text) {
  constexpr int kDeepest = 3;
  std::vector<std::set<std::string>> names;  // of each object that is open
  const auto look = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > kDeepest) throw Failure("its header is nested deeper than the format");
    if (event == json::parse_event_t::object_start) {
      names.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      names.pop_back();
    } else if (event == json::parse_event_t::key && !names.back().insert(parsed.get<std::string>()).second) {
      throw Failure(fmt::format("its header names '{}' twice", parsed.get<std::string>()));
    }
    return true;
  };
  if (text.find('\0') != text.npos)
    throw Failure("its header is damaged: it has a zero byte");  // parse() would end there
  try {
    return json::parse(text, look);
  } catch (const json::parse_error& error) {
    throw Failure(fmt::format("its header is damaged at its byte {}", error.byte));
  } catch (const json::exception& error) {
    throw Failure(fmt::format("its header is damaged: {}", error.what()));
  }
}

std::uint64_t unsigned_integer(const json& value) {
  if (!value.is_number_unsigned())
    throw Failure(fmt::format("{} instead of a whole number", one_line(value.dump(), 40)));
  return value.get<std::uint64_t>();
}

struct Placed {
  StoredTensor tensor;
  std::uint64_t begin = 0;  // bytes, after the header
  std::uint64_t end = 0;
};

// Parse an entry of the header. Throws Failure saying what is wrong with it, without its name.
Placed entry_of(const std::string& name, const json& entry) {
  const auto member = [&](const char* key) -> const json& {
    if (!entry.is_object() || !entry.contains(key)) throw Failure(fmt::format("no {}", key));
    return entry[key];
  };
  const json& shape = member("shape");
  const json& offsets = member("data_offsets");
  if (!member("dtype").is_string()) throw Failure("a dtype that is not a word");
  if (!shape.is_array()) throw Failure("a shape that is not a list");
  if (!offsets.is_array() || offsets.size() != 2) throw Failure("data_offsets that are not two numbers");

  // NOTE: read before the braces below: where a later initialiser throws, GCC 12 destroys an earlier member twice.
  const auto word = entry["dtype"].get<std::string>();
  const std::optional<Dtype> dtype = dtype_of(word);
  const std::uint64_t begin = unsigned_integer(offsets[0]), end = unsigned_integer(offsets[1]);
  Placed placed{{name, dtype.value_or(Dtype::u8), {}, dtype ? "" : one_line(word, 20)}, begin, end};
  std::uint64_t bytes = size_of(placed.tensor.dtype);
  for (const json& dimension : shape) {
    const std::uint64_t extent = unsigned_integer(dimension);
    if (extent > std::uint64_t{std::numeric_limits<std::int64_t>::max()} ||
        __builtin_mul_overflow(bytes, extent, &bytes)) {
      throw Failure("a shape of more elements than can be counted");
    }
    placed.tensor.shape.push_back(static_cast<std::int64_t>(extent));
  }
  if (!dtype && placed.end >= placed.begin) return placed;
  if (placed.end < placed.begin || placed.end - placed.begin != bytes) {
    throw Failure(fmt::format("{} {} takes {} bytes, its data_offsets are [{}, {}]", one_line(word, 20),
                              to_string(placed.tensor.shape), bytes, placed.begin, placed.end));
  }
  return placed;
}

// Throws Failure unless the tensors lie one after the other and end where the file does.
void check_places(const std::vector<Placed>& tensors, std::uint64_t data_bytes) {
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Placed& entry = tensors[i];
    if (entry.begin < end) {
      throw Failure(fmt::format("tensors '{}' and '{}' overlap", tensors[i - 1].tensor.name, entry.tensor.name));
    }
    if (entry.begin > end) {
      throw Failure(
          fmt::format("bytes {} to {} in front of tensor '{}' belong to none", end, entry.begin, entry.tensor.name));
    }
    end = entry.end;
  }
  if (end > data_bytes) {
    throw Failure(fmt::format("cut short: its tensors take {} bytes, and {} are there", end, data_bytes));
  }
  if (end < data_bytes) throw Failure(fmt::format("{} bytes after its last tensor", data_bytes - end));
}

}  // namespace

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::size_t StoredTensor::elements() const {
  std::size_t count = 1;
  for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
  return count;
}

std::size_t StoredTensor::bytes() const { return elements() * size_of(dtype); }

std::string StoredTensor::dtype_name() const { return other_dtype.empty() ? ladder::name(dtype) : other_dtype; }

SafetensorsWriter::SafetensorsWriter(const fs::path& path, const std::vector<StoredTensor>& tensors,
                                     const Metadata& metadata)
    : file_(path) {
  std::string header;
  try {
    header = header_of(tensors, metadata);
  } catch (const json::exception& error) {
    throw Failure(fmt::format("'{}' was not written: {}", path.string(), one_line(error.what())));
  } catch (const Failure& failure) {
    throw Failure(fmt::format("'{}' was not written: {}", path.string(), failure.what()));
  }
  const std::uint64_t length = header.size();
  file_.append(&length, kLengthBytes);
  file_.append(header.data(), header.size());
  for (const StoredTensor& tensor : tensors) missing_bytes_ += tensor.bytes();
}

void SafetensorsWriter::append(const void* bytes, std::size_t size) {
  LADDER_CHECK(size <= missing_bytes_, fmt::format("{} bytes too many", size - missing_bytes_));
  file_.append(bytes, size);
  missing_bytes_ -= size;
}

void SafetensorsWriter::finish() {
  LADDER_CHECK(missing_bytes_ == 0, fmt::format("{} bytes are missing", missing_bytes_));
  file_.commit();
}

void write_floats(const fs::path& path, const std::vector<FloatTensor>& tensors, const Metadata& metadata) {
  std::vector<StoredTensor> stored;
  for (const FloatTensor& tensor : tensors) {
    stored.push_back({tensor.name, Dtype::f32, tensor.shape});
    LADDER_CHECK(stored.back().elements() == tensor.values.size(),
                 fmt::format("'{}' {} has {} values", tensor.name, to_string(tensor.shape), tensor.values.size()));
  }
  SafetensorsWriter writer(path, stored, metadata);
  for (const FloatTensor& tensor : tensors) writer.append(tensor.values.data(), tensor.values.size_bytes());
  writer.finish();
}

SafetensorsFile::SafetensorsFile(fs::path path) : path_(std::move(path)) {
  std::error_code error;
  const fs::file_status status = fs::status(path_, error);
  if (status.type() == fs::file_type::none || !fs::exists(status)) {
    throw Failure(fmt::format("'{}' cannot be read: {}", path_.string(), error.message()));
  }
  if (!fs::is_regular_file(status)) {
    throw Failure(fmt::format("'{}' is {}: name a safetensors file", path_.string(),
                              fs::is_directory(status) ? "a folder" : "no regular file"));
  }
  errno = 0;
  file_.open(path_, std::ios::binary);
  const std::uint64_t size = fs::file_size(path_, error);
  if (!file_ || error) {
    throw Failure(fmt::format("'{}' cannot be read: {}", path_.string(), std::strerror(errno)));
  }

  std::string start(std::min<std::uint64_t>(size, 128), '\0');
  file_.read(start.data(), static_cast<std::streamsize>(start.size()));
  std::uint64_t length = 0;
  if (size >= kLengthBytes) std::memcpy(&length, start.data(), kLengthBytes);
  const bool has_room = size >= kLengthBytes && length <= std::min(size - kLengthBytes, kLongestHeader);
  const bool has_header = has_room && length > 0 && size > kLengthBytes && start[kLengthBytes] == '{';
  const std::string kind = has_header ? "" : kind_by(start);
  if (!kind.empty()) {
    const std::string message = fmt::format("'{}' is no safetensors file but {}", path_.string(), kind);
    if (kind.ends_with(kConvert)) throw PickledFile(message);
    throw Failure(message);
  }
  try {
    if (size < kLengthBytes) throw Failure(size == 0 ? "empty" : fmt::format("cut short at {} bytes", size));
    if (length > kLongestHeader) throw Failure(fmt::format("a header of {} bytes is none", length));
    if (!has_room) {
      throw Failure(fmt::format("cut short: a header of {} bytes, and {} are there", length, size - kLengthBytes));
    }
    if (!has_header) throw Failure("its header does not begin with {");

    std::string text(length, '\0');
    file_.seekg(kLengthBytes);
    if (!file_.read(text.data(), static_cast<std::streamsize>(length))) throw Failure("its header cannot be read");
    const json header = parse_header(text);
    std::vector<Placed> placed;
    for (const auto& [name, entry] : header.items()) {
      if (name == kMetadata) {
        if (!entry.is_object()) throw Failure(fmt::format("its {} is no object", kMetadata));
        for (const auto& [key, value] : entry.items()) {
          if (!value.is_string()) throw Failure(fmt::format("its {} has a '{}' that is no text", kMetadata, key));
          metadata_[key] = value.get<std::string>();
        }
        continue;
      }
      try {
        placed.push_back(entry_of(name, entry));
      } catch (const Failure& failure) {
        throw Failure(fmt::format("tensor '{}': {}", name, failure.what()));
      }
    }
    std::sort(placed.begin(), placed.end(),
              [](const Placed& a, const Placed& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
    check_places(placed, size - kLengthBytes - length);
    for (Placed& entry : placed) {
      index_[entry.tensor.name] = tensors_.size();
      tensors_.push_back(std::move(entry.tensor));
      begins_.push_back(kLengthBytes + length + entry.begin);
    }
  } catch (const Failure& failure) {
    throw Failure(
        fmt::format("'{}' is not a whole safetensors file: {}", path_.string(), one_line(failure.what(), 400)));
  }
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

std::vector<std::byte> SafetensorsFile::bytes(std::string_view name) const {
  const std::size_t idx = index_of(name);
  std::vector<std::byte> stored(tensors_[idx].bytes());
  read(idx, stored.data());
  return stored;
}

std::vector<float> SafetensorsFile::floats(std::string_view name) const {
  const std::size_t idx = index_of(name);
  const StoredTensor& tensor = tensors_[idx];
  if (is_integer(tensor.dtype)) {
    throw Failure(fmt::format("'{}': tensor '{}' holds {}, not floating-point numbers", path_.string(), name,
                              word_of(tensor.dtype)));
  }
  std::vector<float> values(tensor.elements());
  if (tensor.dtype == Dtype::f32) {
    read(idx, values.data());
  } else {
    decode(tensor.dtype, bytes(name).data(), values.size(), values.data());
  }
  return values;
}

std::size_t SafetensorsFile::index_of(std::string_view name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) throw Failure(fmt::format("'{}' has no tensor '{}'", path_.string(), name));
  const std::string& other_dtype = tensors_[found->second].other_dtype;
  if (other_dtype.empty()) return found->second;
  throw Failure(fmt::format("'{}': tensor '{}' is {}, which is not read here: F32, BF16, F16, I32, I64 and U8 are",
                            path_.string(), name, other_dtype));
}

void SafetensorsFile::read(std::size_t idx, void* bytes) const {
  const auto size = static_cast<std::streamsize>(tensors_[idx].bytes());
  file_.clear();
  file_.seekg(static_cast<std::streamoff>(begins_[idx]));
  if (!file_.read(static_cast<char*>(bytes), size)) {
    throw Failure(fmt::format("'{}': tensor '{}' cannot be read any more", path_.string(), tensors_[idx].name));
  }
}

}  // namespace ladder::io
