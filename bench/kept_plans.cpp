#include "bench/kept_plans.h"

#include <fmt/format.h>

#include <cctype>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/backend.h"
#include "core/error.h"
#include "io/aside_file.h"

namespace ladder {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kSchema = "ladder.plans/1";

json key_of(const Case& c, const std::string& library) {
  return {{"schema", kSchema},
          {"pass", c.pass->path()},
          {"problem", c.text},
          {"device", backend::device().name},
          {"library", library}};
}

// "conv3x3_fprop_n32_h64_w64_c64_k64_bf16_nvidia_h200_cudnn_9.19.0.json". The file repeats the key, as two may share a name.
fs::path file_of(const fs::path& folder, const Case& c, const std::string& library) {
  std::string name = fmt::format("{} {} {} {}", c.pass->path(), c.text, backend::device().name, library);
  for (char& letter : name) {
    const bool kept = std::isalnum(static_cast<unsigned char>(letter)) || letter == '.' || letter == '-';
    letter = kept ? static_cast<char>(std::tolower(static_cast<unsigned char>(letter))) : '_';
  }
  return folder / (name + ".json");
}

fs::path from_environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value ? value : "";
}

}  // namespace

Search BaselineSearch::of(const Case& c) const {
  Search search = extent;
  const fs::path folder = kept_plans_folder();
  if (folder.empty()) return search;
  if (takes_kept) search.kept_plan = [=](const std::string& library) { return kept_plan(folder, c, library); };
  if (keeps) search.keep = [=](const Baseline& searched) { keep_plans(folder, c, searched); };
  return search;
}

fs::path kept_plans_folder() {
  if (const fs::path cache = from_environment("LADDER_CACHE"); !cache.empty()) return cache / "plans";
  if (const fs::path caches = from_environment("XDG_CACHE_HOME"); !caches.empty()) return caches / "ladder" / "plans";
  const fs::path home = from_environment("HOME");
  return home.empty() ? home : home / ".cache" / "ladder" / "plans";
}

std::string kept_plan(const fs::path& folder, const Case& c, const std::string& library) {
  std::ifstream file(file_of(folder, c, library));
  const json kept = json::parse(file, nullptr, false);
  if (!kept.is_object()) return {};
  const json key = key_of(c, library);
  for (const auto& [name, value] : key.items()) {
    if (!kept.contains(name) || kept[name] != value) return {};
  }
  const auto best = kept.find("best");
  return best != kept.end() && best->is_string() ? best->get<std::string>() : "";
}

void keep_plans(const fs::path& folder, const Case& c, const Baseline& searched) {
  json kept = key_of(c, searched.library());
  kept["best"] = searched.plan(Choice::best).name;
  for (const BaselinePlan& plan : searched.tried()) {
    kept["tried"].push_back({{"name", plan.name}, {"seconds", plan.seconds}, {"reason", plan.reason}});
  }
  std::error_code error;
  fs::create_directories(folder, error);
  try {
    io::write_text(file_of(folder, c, searched.library()), kept.dump(1) + "\n");
  } catch (const Failure&) {
    return;  // the next run searches again
  }
}

}  // namespace ladder
