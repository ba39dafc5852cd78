#include "core/paths.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

namespace ladder {
namespace {

namespace fs = std::filesystem;

// The file of the program or shared library that this code is in; empty where the system does not tell.
fs::path own_file() {
  Dl_info info{};
  std::error_code error;
  if (dladdr(reinterpret_cast<const void*>(&own_file), &info) == 0) return {};
  const fs::path file = fs::canonical(info.dli_fname, error);
  return error ? fs::read_symlink("/proc/self/exe", error) : file;  // a program that was found through PATH
}

}  // namespace

std::string source_dir() {
  const char* given = std::getenv("LADDER_SOURCE_DIR");
  return given && *given ? given : LADDER_SOURCE_DIR;
}

std::string data_dir() {
  static const fs::path beside = own_file().parent_path() / "ladder_data";
  std::error_code error;
  const char* given = std::getenv("LADDER_SOURCE_DIR");
  return (!given || !*given) && fs::is_directory(beside, error) ? beside.string() : source_dir();
}

}  // namespace ladder
