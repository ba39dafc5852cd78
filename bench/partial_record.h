// A record while it is being made: "<record>.partial" has a line for where it is made and one for each result so far, so
// that an interrupted run loses no more than the result it was at.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/registry.h"

namespace ladder {

class PartialRecord {
 public:
  // Throws UsageError where a partial file is there and nobody asked to resume it, or where it was begun by another
  // binary, commit or device; Failure where none can be written.
  PartialRecord(const std::string& record, bool resume);

  bool holds(const Version& v, const Case& c) const;
  std::size_t kept() const { return kept_; }  // results of the interrupted run
  bool failed() const { return failed_; }     // a result so far is FAIL or UNTRUSTED

  // Throws Failure, what was added before kept, if the disk takes no more.
  void add(const nlohmann::json& result);

  // Writes the record, `header` with all results, and removes the partial file. Throws Failure.
  void finish(nlohmann::json header);

 private:
  void take(const nlohmann::json& result);
  void read();
  void append(const nlohmann::json& line);

  std::string record_;
  std::string path_;
  std::ofstream file_;
  std::vector<nlohmann::json> results_;
  std::set<std::pair<int, std::string>> held_;  // version and problem
  std::size_t kept_ = 0;
  bool failed_ = false;
};

}  // namespace ladder
