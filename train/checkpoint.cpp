#include "train/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <optional>
#include <string_view>

#include "core/error.h"
#include "io/digest.h"

namespace ladder::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModel = "model.safetensors";
constexpr const char* kEma = "ema.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr std::array<const char*, 3> kFiles = {kModel, kEma, kOptimizer};

constexpr const char* kFolder = "checkpoints";
constexpr const char* kLatest = "latest";
constexpr const char* kPartial = ".partial";
constexpr const char* kReplaced = ".replaced";

std::string step_name(std::int64_t step) { return fmt::format("step_{:08}", step); }

// Parses a non-negative integer in decimal digits; returns nullopt for any other text.
std::optional<std::int64_t> parse_integer(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// Parses the name of a step's folder, "step_00001000"; returns nullopt for any other name.
std::optional<std::int64_t> parse_step(const std::string& name) {
  constexpr std::string_view kPrefix = "step_";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::optional<std::int64_t> step = parse_integer(std::string_view(name).substr(kPrefix.size()));
  return step && step_name(*step) == name ? step : std::nullopt;
}

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// Returns the first of the three files that the folder lacks, or an empty string.
std::string missing_file(const fs::path& folder) {
  for (const char* file : kFiles) {
    if (!is_file(folder / file)) return file;
  }
  return {};
}

// Runs `action` and turns a filesystem_error into a Failure that begins with `what`.
template <class Action>
void attempt(const std::string& what, const Action& action) {
  try {
    action();
  } catch (const fs::filesystem_error& error) {
    throw Failure(fmt::format("{}: {}", what, error.code().message()));
  }
}

// Returns step number to folder, for the subfolders named like a finished checkpoint.
std::map<std::int64_t, fs::path> steps_in(const fs::path& folder) {
  std::map<std::int64_t, fs::path> steps;
  attempt(fmt::format("'{}' cannot be read", folder.string()), [&] {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      const std::optional<std::int64_t> step = parse_step(entry.path().filename().string());
      if (step && entry.is_directory()) steps[*step] = entry.path();
    }
  });
  return steps;
}

// The step named by the file `latest`, if it names one.
std::optional<std::int64_t> latest_step(const fs::path& folder) {
  std::ifstream file(folder / kLatest);
  std::string name;
  std::getline(file, name);
  return parse_step(name);
}

// The complete checkpoints of a run, in the order to try on resume: the one named by `latest`, then by descending step.
std::vector<fs::path> complete_in(const fs::path& folder) {
  std::map<std::int64_t, fs::path> steps = steps_in(folder);
  std::erase_if(steps, [](const auto& step) { return !missing_file(step.second).empty(); });
  std::vector<fs::path> found;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) found.push_back(step->second);
  if (const auto latest = latest_step(folder); latest && steps.contains(*latest)) {
    const auto named = std::ranges::find(found, steps[*latest]);
    std::rotate(found.begin(), named, named + 1);
  }
  return found;
}

void point_latest(const fs::path& folder, const std::string& name) {
  io::AsideFile file(folder / kLatest);
  const std::string line = name + '\n';
  file.append(line.data(), line.size());
  file.commit();
}

// Removes leftovers of a killed process. If the process was killed between the two renames that replace a checkpoint,
// the old checkpoint gets its name back.
void clear_up(const fs::path& folder) {
  std::vector<fs::path> left;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) left.push_back(entry.path());
  for (const fs::path& path : left) {
    if (path.extension() == kPartial) fs::remove_all(path);
    if (path.extension() != kReplaced) continue;
    const fs::path good = folder / path.stem();
    if (fs::exists(good)) {
      fs::remove_all(path);
    } else {
      fs::rename(path, good);
    }
  }
}

// Renames the folder before removing it, so that a partly removed folder never passes for a checkpoint.
void remove_step(const fs::path& folder) {
  fs::path aside = folder;
  aside += kPartial;
  fs::rename(folder, aside);
  fs::remove_all(aside);
}

std::vector<io::FloatTensor> part_of(const Checkpoint& checkpoint, std::vector<float> CheckpointTensor::*member,
                                     const std::string& prefix = {}) {
  std::vector<io::FloatTensor> part;
  for (const CheckpointTensor& tensor : checkpoint.tensors) {
    part.push_back({prefix + tensor.name, tensor.shape, tensor.*member});
  }
  return part;
}

std::string digest_of(const std::vector<io::FloatTensor>& tensors) {
  io::Digest digest;
  for (const io::FloatTensor& tensor : tensors) digest.add(tensor.values.data(), tensor.values.size_bytes());
  return digest.hex();
}

// The tensors of optimizer.safetensors: all first moments, then all second moments.
std::vector<io::FloatTensor> moments_of(const Checkpoint& checkpoint) {
  std::vector<io::FloatTensor> moments = part_of(checkpoint, &CheckpointTensor::m, "m.");
  const std::vector<io::FloatTensor> second = part_of(checkpoint, &CheckpointTensor::v, "v.");
  moments.insert(moments.end(), second.begin(), second.end());
  return moments;
}

void write_files(const fs::path& folder, const Checkpoint& checkpoint) {
  io::Metadata metadata = checkpoint.metadata;
  metadata["schema"] = kCheckpointSchema;
  const auto write = [&](const char* name, const std::vector<io::FloatTensor>& tensors) {
    metadata["contents"] = fs::path(name).stem();
    metadata["digest"] = digest_of(tensors);
    io::write_floats(folder / name, tensors, metadata);
  };
  write(kModel, part_of(checkpoint, &CheckpointTensor::weight));
  write(kEma, part_of(checkpoint, &CheckpointTensor::ema));
  write(kOptimizer, moments_of(checkpoint));
}

// Checks "schema" and "contents" of one of the three files; returns its metadata without these two and "digest".
io::Metadata checked_metadata(const io::SafetensorsFile& file) {
  io::Metadata metadata = file.metadata();
  const std::string path = file.path().string();
  const auto schema = metadata.find("schema");
  if (schema == metadata.end()) {
    throw Failure(fmt::format("'{}' holds no checkpoint of a training: its metadata has no schema", path));
  }
  if (schema->second != kCheckpointSchema) {
    throw Failure(fmt::format("'{}' is a checkpoint of another version: its schema is '{}', and '{}' is read here",
                              path, one_line(schema->second, 60), kCheckpointSchema));
  }
  const std::string contents = file.path().stem();
  if (const auto found = metadata.find("contents"); found == metadata.end() || found->second != contents) {
    throw Failure(fmt::format("'{}' does not hold what it is called: its contents are '{}'", path,
                              found == metadata.end() ? "" : one_line(found->second, 60)));
  }
  metadata.erase("schema");
  metadata.erase("contents");
  metadata.erase("digest");
  return metadata;
}

// The metadata of a checkpoint, read from model.safetensors. Checks "step" against the folder's name.
io::Metadata metadata_of(const io::SafetensorsFile& model) {
  io::Metadata metadata = checked_metadata(model);
  const std::optional<std::int64_t> folder = parse_step(model.path().parent_path().filename());
  const auto step = metadata.find("step");
  if (folder && step != metadata.end() && parse_integer(step->second) != folder) {
    throw Failure(fmt::format("'{}' is of step '{}', in the folder of step {}", model.path().string(),
                              one_line(step->second, 20), *folder));
  }
  return metadata;
}

}  // namespace

fs::path write_checkpoint(const fs::path& run, const Checkpoint& checkpoint) {
  const std::string name = step_name(number_in(checkpoint.metadata, "step"));
  const fs::path folder = run / kFolder;
  const fs::path good = folder / name;
  const fs::path aside = folder / (name + kPartial);
  const fs::path replaced = folder / (name + kReplaced);
  const std::string failed = fmt::format("'{}' was not written", good.string());
  attempt(failed, [&] {
    fs::create_directories(folder);
    clear_up(folder);
    fs::create_directory(aside);
  });
  try {
    write_files(aside, checkpoint);
    attempt(failed, [&] {
      const bool exists = fs::exists(good);
      if (exists) fs::rename(good, replaced);
      try {
        fs::rename(aside, good);
      } catch (const fs::filesystem_error&) {
        if (exists) fs::rename(replaced, good);
        throw;
      }
      io::sync_folder(folder);
      if (exists) fs::remove_all(replaced);
    });
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(aside, ignored);
    throw;
  }
  point_latest(folder, name);
  return good;
}

void prune(const fs::path& run, int keep) {
  if (keep < 1) throw UsageError(fmt::format("{} checkpoints cannot be kept: 1 is the least", keep));
  const fs::path folder = run / kFolder;
  std::map<std::int64_t, fs::path> steps = steps_in(folder);
  const std::optional<std::int64_t> latest = latest_step(folder);
  auto next = steps.begin();
  while (steps.size() > static_cast<std::size_t>(keep)) {
    if (next->first == latest) ++next;
    attempt(fmt::format("'{}' was not removed", next->second.string()), [&] { remove_step(next->second); });
    next = steps.erase(next);
  }
}

bool has_checkpoint(const fs::path& run) { return is_folder(run / kFolder) && !complete_in(run / kFolder).empty(); }

fs::path find_checkpoint(const fs::path& path) {
  const std::string shown = path.string();
  std::error_code error;
  if (!fs::exists(path, error)) throw Failure(fmt::format("'{}': no such folder", shown));
  if (!is_folder(path)) throw Failure(fmt::format("'{}' is a file: name a checkpoint's folder, or a run's", shown));

  const bool has_any =
      std::any_of(kFiles.begin(), kFiles.end(), [&](const char* file) { return is_file(path / file); });
  const fs::path self = path.filename().empty() ? path.parent_path() : path;  // "step_00001000/"
  if (has_any || parse_step(self.filename().string())) {
    const std::string missing = missing_file(path);
    if (!missing.empty()) throw Failure(fmt::format("'{}' is no whole checkpoint: it has no {}", shown, missing));
    return self;
  }

  const fs::path folder = is_folder(path / kFolder) ? path / kFolder : path;
  if (const std::vector<fs::path> complete = complete_in(folder); !complete.empty()) return complete.front();
  if (const std::map<std::int64_t, fs::path> steps = steps_in(folder); !steps.empty()) {
    const fs::path& last = steps.rbegin()->second;
    throw Failure(fmt::format("'{}' holds no whole checkpoint: {} has no {}", shown, last.filename().string(),
                              missing_file(last)));
  }
  throw Failure(fmt::format("'{}' holds no checkpoint: there is no folder like {} in it, nor in its {}/", shown,
                            step_name(1000), kFolder));
}

io::Metadata read_metadata(const fs::path& path) {
  return metadata_of(io::SafetensorsFile(find_checkpoint(path) / kModel));
}

Checkpoint read_checkpoint(const fs::path& path) {
  const fs::path folder = find_checkpoint(path);
  const io::SafetensorsFile model(folder / kModel);
  const io::SafetensorsFile ema(folder / kEma);
  const io::SafetensorsFile optimizer(folder / kOptimizer);

  Checkpoint checkpoint{metadata_of(model), {}};
  std::vector<ExpectedTensor> moments;
  for (const char* prefix : {"m.", "v."}) {
    for (const io::StoredTensor& tensor : model.tensors()) moments.push_back({prefix + tensor.name, tensor.shape});
  }
  const auto check = [&](const io::SafetensorsFile& file, const std::vector<ExpectedTensor>& expected) {
    const std::string shown = fmt::format("'{}'", file.path().string());
    if (checked_metadata(file) != checkpoint.metadata) {
      throw Failure(fmt::format("{} and {} are of different checkpoints: their metadata differ", shown, kModel));
    }
    expect(shown, tensors_of(file), expected);
    for (const io::StoredTensor& tensor : file.tensors()) {
      if (tensor.dtype == Dtype::f32) continue;
      throw Failure(fmt::format("{} has tensor '{}' in {}: a checkpoint is in {}", shown, tensor.name,
                                tensor.dtype_name(), name(Dtype::f32)));
    }
  };
  check(model, tensors_of(model));
  check(ema, tensors_of(model));
  check(optimizer, moments);
  for (const io::StoredTensor& tensor : model.tensors()) {
    const std::string& name = tensor.name;
    checkpoint.tensors.push_back({name, tensor.shape, model.floats(name), ema.floats(name),
                                  optimizer.floats("m." + name), optimizer.floats("v." + name)});
  }
  const auto check_digest = [](const io::SafetensorsFile& file, const std::vector<io::FloatTensor>& tensors) {
    const auto digest = file.metadata().find("digest");  // missing from checkpoints written before digests existed
    if (digest == file.metadata().end() || digest->second == digest_of(tensors)) return;
    throw Failure(fmt::format("'{}' is damaged: its numbers are not those that were written", file.path().string()));
  };
  check_digest(model, part_of(checkpoint, &CheckpointTensor::weight));
  check_digest(ema, part_of(checkpoint, &CheckpointTensor::ema));
  check_digest(optimizer, moments_of(checkpoint));
  return checkpoint;
}

namespace {

// Returns read(folder) of the run's first complete checkpoint for which it does not fail. Adds the failures before it
// to `damaged`.
template <class Read>
auto first_readable(const fs::path& run, std::vector<std::string>& damaged, const Read& read) {
  find_checkpoint(run);  // throws where there is none
  const std::size_t before = damaged.size();
  for (const fs::path& folder : complete_in(run / kFolder)) {
    try {
      return read(folder);
    } catch (const Failure& failure) {
      damaged.push_back(failure.what());
    }
  }
  throw Failure(damaged[before]);
}

}  // namespace

Checkpoint read_newest(const fs::path& run, std::vector<std::string>& damaged) {
  return first_readable(run, damaged, read_checkpoint);
}

io::Metadata read_newest_metadata(const fs::path& run) {
  std::vector<std::string> damaged;
  return first_readable(run, damaged, read_metadata);
}

void expect(const std::string& what, const Checkpoint& found, const std::vector<ExpectedTensor>& expected) {
  std::vector<ExpectedTensor> tensors;
  for (const CheckpointTensor& tensor : found.tensors) tensors.push_back({tensor.name, tensor.shape});
  expect(what, tensors, expected);
}

const std::string& text_in(const io::Metadata& metadata, const std::string& key) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) throw Failure(fmt::format("the checkpoint's metadata has no '{}'", key));
  return found->second;
}

std::int64_t number_in(const io::Metadata& metadata, const std::string& key) {
  const std::string& text = text_in(metadata, key);
  const std::optional<std::int64_t> value = parse_integer(text);
  if (!value) {
    throw Failure(
        fmt::format("the checkpoint's metadata has {} '{}', which is no whole number", key, one_line(text, 60)));
  }
  return *value;
}

}  // namespace ladder::train
