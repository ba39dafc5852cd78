#include "core/paths.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace ladder {
namespace {

namespace fs = std::filesystem;

// The file of the program or shared library that this code is in; empty where the system does not tell.
fs::path running_file() {
  Dl_info info{};
  std::error_code error;
  if (dladdr(reinterpret_cast<const void*>(&running_file), &info) == 0) return {};
  const fs::path file = fs::canonical(info.dli_fname, error);
  return error ? fs::read_symlink("/proc/self/exe", error) : file;  // a program that was found through PATH
}

}  // namespace

std::string source_dir() {
  const char* given = std::getenv("LADDER_SOURCE_DIR");
  return given && *given ? given : LADDER_SOURCE_DIR;
}

std::string data_dir() {
  static const fs::path package_data = running_file().parent_path() / "ladder_data";
  std::error_code error;
  const char* given = std::getenv("LADDER_SOURCE_DIR");
  return (!given || !*given) && fs::is_directory(package_data, error) ? package_data.string() : source_dir();
}

std::string source_excerpt(const std::string& report) {
  constexpr std::size_t kMaxPath = 256;
  char path[kMaxPath];
  int line = 0;
  int column = 0;
  if (std::sscanf(report.c_str(), "%255[^: ]:%d:%d", path, &line, &column) < 2) return {};
  std::ifstream source(fs::path(source_dir()) / path);
  std::string text;
  for (int i = 0; i < line; ++i) {
    if (!std::getline(source, text)) return {};
  }
  const std::string caret = column > 0 ? fmt::format("      | {:>{}}\n", '^', column) : "";
  return fmt::format("{:5} | {}\n{}", line, text, caret);
}

}  // namespace ladder
