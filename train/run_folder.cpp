#include "train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/json_fields.h"
#include "io/aside_file.h"

namespace ladder::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kOptions = "options.json";

// Calls visit(flag, member) for the options that a resumed training takes from options.json.
template <class Options, class Visit>
void for_each_kept(Options& o, const Visit& visit) {
  visit("--data", o.data);
  visit("--graph", o.graph);
  visit("--branches", o.branches);
  visit("--batches", o.batches);
  visit("--overlap", o.overlap);
  visit("--buckets", o.buckets);
  visit("--reduce", o.reduce);
  visit("--use", o.use);
  visit("--log-every", o.log_every);
  visit("--held-out-every", o.held_out_every);
  visit("--sample-every", o.sample_every);
  visit("--checkpoint-every", o.checkpoint_every);
  visit("--keep", o.keep);
  visit("--device-data-bytes", o.device_data_bytes);
}

void recall(const JsonFields& fields, const char* flag, bool& value) { fields.read(flag, value); }
void recall(const JsonFields& fields, const char* flag, std::string& value) { fields.read(flag, value); }
void recall(const JsonFields& fields, const char* flag, fs::path& value) {
  std::string text = value.string();
  fields.read(flag, text);
  value = text;
}
template <class Integer>
void recall(const JsonFields& fields, const char* flag, Integer& value) {
  fields.read<Integer>(flag, value, 0);
}

std::string read(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

Json kept_options(const TrainingOptions& options) {
  TrainingOptions kept = options;
  kept.data = fs::absolute(options.data);
  Json json;
  for_each_kept(kept, [&](const char* flag, const auto& value) { json[flag] = value; });
  return json;
}

void take_options(TrainingOptions& options, const Json& kept, const std::function<bool(const char* flag)>& given) {
  const JsonFields fields(kept, "its");
  for_each_kept(options, [&](const char* flag, auto& value) {
    if (!given(flag)) recall(fields, flag, value);
  });
}

void save_options(const TrainingOptions& options) {
  const std::string text = kept_options(options).dump(1, ' ', false, Json::error_handler_t::replace);
  io::write_text(options.out / kOptions, text + "\n");
}

void recall_options(TrainingOptions& options, const std::function<bool(const char* flag)>& given) {
  const fs::path file = options.out / kOptions;
  if (!fs::exists(file)) return;
  try {
    take_options(options, parse_object(read(file), "it"), given);
  } catch (const UsageError& error) {
    throw Failure(fmt::format("'{}' is damaged: {}; remove it, and give its flags again", file.string(), error.what()));
  }
}

RunLock::RunLock(const fs::path& run) {
  const fs::path file = run / "lock";
  std::error_code error;
  fs::create_directories(run, error);
  if (error) throw Failure(fmt::format("'{}' cannot be made: {}", run.string(), error.message()));
  descriptor_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw Failure(fmt::format("'{}' cannot be written: {}", file.string(), std::strerror(errno)));
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    const std::string process = read(file);
    ::close(descriptor_);
    throw UsageError(fmt::format("process {} is training in '{}': wait for it, or give another --out",
                                 one_line(process, 20), run.string()));
  }
  const std::string process = std::to_string(::getpid());
  if (::ftruncate(descriptor_, 0) != 0 || ::write(descriptor_, process.data(), process.size()) < 0) {
    const int why = errno;
    ::close(descriptor_);
    throw Failure(fmt::format("'{}' cannot be written: {}", file.string(), std::strerror(why)));
  }
}

RunLock::~RunLock() { ::close(descriptor_); }

Log::Log(const fs::path& file, std::int64_t after) : path_(file) {
  const std::string before = after > 0 ? read(file) : "";
  std::string kept;
  for (std::size_t begin = 0; begin < before.size();) {
    const std::size_t end = before.find('\n', begin);
    if (end == std::string::npos) break;
    const std::string line = before.substr(begin, end + 1 - begin);
    const Json json = Json::parse(line, nullptr, false);
    const auto step = json.is_object() ? json.find("step") : json.end();
    if (step != json.end() && step->is_number_integer() && *step <= after) kept += line;
    begin = end + 1;
  }
  if (kept.size() != before.size() || after == 0) io::write_text(file, kept);
  out_.open(file, std::ios::app);
  if (!out_) throw Failure(fmt::format("cannot write '{}'", file.string()));
}

void Log::add(const Json& line) {
  out_ << line.dump() << '\n' << std::flush;
  if (!out_) throw Failure(fmt::format("cannot write '{}': is the disk full?", path_.string()));
}

}  // namespace ladder::train
