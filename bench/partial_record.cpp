#include "bench/partial_record.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "bench/record.h"
#include "core/error.h"
#include "io/aside_file.h"

namespace ladder {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// The first field in which two environments differ, as "driver 13.0, now 13.1"; empty if they are equal.
std::string difference(const json& then, const json& now) {
  for (const auto& [key, value] : now.items()) {
    const json before = then.value(key, json());
    if (before == value) continue;
    if (value.is_object() && before.is_object()) return difference(before, value);
    return fmt::format("{} {}, now {}", key, before.dump(), value.dump());
  }
  return {};
}

// True for a file that ends within `first_line`: its run was killed, or the disk was full, before it had any result.
bool is_cut(const std::string& path, const std::string& first_line) {
  std::ifstream in(path, std::ios::binary);
  std::string start(first_line.size(), '\0');
  in.read(start.data(), static_cast<std::streamsize>(start.size()));
  start.resize(static_cast<std::size_t>(in.gcount()));
  return start.size() < first_line.size() && first_line.starts_with(start);
}

}  // namespace

PartialRecord::PartialRecord(const std::string& record, bool resume) : record_(record), path_(record + ".partial") {
  if (record.empty()) return;
  const json header = {{"schema", kRecordSchema}, {"environment", environment()}};
  if (fs::exists(path_) && !is_cut(path_, header.dump() + '\n')) {
    if (!resume) {
      throw UsageError(
          fmt::format("'{}' holds the results of an interrupted run: go on with --resume, or remove it", path_));
    }
    read();
    return;
  }
  file_.open(path_, std::ios::binary | std::ios::trunc);
  append(header);
}

void PartialRecord::read() {
  std::ifstream in(path_, std::ios::binary);
  std::string line;
  std::getline(in, line);
  const json first = json::parse(line, nullptr, false);
  if (!first.is_object() || !first.contains("environment")) {
    throw UsageError(fmt::format("'{}' is no partial record: remove it and begin anew", path_));
  }
  if (const std::string other = difference(first["environment"], environment()); !other.empty()) {
    throw UsageError(fmt::format("'{}' was begun elsewhere ({}): remove it and begin anew", path_, other));
  }
  std::size_t complete_bytes = line.size() + 1;
  while (std::getline(in, line)) {
    const json result = json::parse(line, nullptr, false);
    if (in.eof() || !result.is_object()) break;  // the line that the interruption cut off
    take(result);
    complete_bytes += line.size() + 1;
  }
  in.close();
  fs::resize_file(path_, complete_bytes);
  kept_ = results_.size();
  file_.open(path_, std::ios::binary | std::ios::app);
}

bool PartialRecord::holds(const Version& v, const Case& c) const { return held_.contains({v.number, c.text}); }

void PartialRecord::add(const json& result) {
  take(result);
  if (!record_.empty()) append(result);
}

void PartialRecord::take(const json& result) {
  held_.insert({result.at("version").get<int>(), result.at("problem").get<std::string>()});
  const auto& status = result.at("verdict").at("status");
  failed_ = failed_ || status == "FAIL" || status == "UNTRUSTED";
  results_.push_back(result);
}

void PartialRecord::append(const json& line) {
  errno = 0;
  file_ << line.dump() << '\n' << std::flush;
  if (!file_) throw Failure(fmt::format("'{}' was not written: {}", path_, std::strerror(errno)));
}

void PartialRecord::finish(json header) {
  if (record_.empty()) return;
  header["results"] = results_;
  io::write_text(record_, record_text(header));
  file_.close();
  std::error_code ignored;
  fs::remove(path_, ignored);
}

}  // namespace ladder
