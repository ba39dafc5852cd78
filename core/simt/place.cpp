#include "core/simt/place.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <vector>

#include "core/paths.h"

namespace ladder::simt {

namespace {

// The frames of the call stack from `at` outwards. A return address stands after its call.
std::vector<const char*> frames_from(const void* at, bool is_return_address) {
  constexpr int kMaxFrames = 32;
  std::array<void*, kMaxFrames> all;
  const int count = backtrace(all.data(), kMaxFrames);
  const auto end = all.begin() + count;
  std::vector<const char*> frames{static_cast<const char*>(at) - (is_return_address ? 1 : 0)};
  const auto found = std::find(all.begin(), end, at);
  for (auto frame = found == end ? end : found + 1; frame != end; ++frame) {
    frames.push_back(static_cast<const char*>(*frame) - 1);
  }
  return frames;
}

// "dev/common/wide.h:23" of each function of the call stack in `program`, inlined ones too, from the one at `at` outwards.
std::vector<std::string> source_lines(const Dl_info& program, const void* at, bool is_return_address) {
  std::string command = fmt::format("addr2line -i -e '{}'", program.dli_fname);
  for (const char* frame : frames_from(at, is_return_address)) {
    Dl_info info{};
    if (dladdr(frame, &info) == 0 || info.dli_fbase != program.dli_fbase) break;
    command += fmt::format(" {:#x}", frame - static_cast<const char*>(info.dli_fbase));
  }
  std::vector<std::string> found;
  if (const std::unique_ptr<FILE, int (*)(FILE*)> lines(popen((command + " 2>/dev/null").c_str(), "r"), pclose);
      lines) {
    std::array<char, 4096> line;
    while (std::fgets(line.data(), line.size(), lines.get())) {
      std::string text(line.data());
      text.resize(std::min(text.size(), text.find_first_of(" \n")));  // after a blank stands a discriminator
      if (text.starts_with("??") || text.ends_with(":0") || text.ends_with(":?")) continue;
      found.push_back(relative_path(text));
    }
  }
  return found;
}

}  // namespace

bool is_kernels_own(std::string_view path) {
  return !path.empty() && path.find("/core/") == std::string_view::npos && !path.starts_with("/usr/") &&
         !path.starts_with("core/");
}

std::string relative_path(const std::string& path) {
  // "../../" begins a path that a compiler cache made relative to the build folder, "./" one of the debug information.
  for (const std::string& folder : {source_dir() + "/", std::string("../../"), std::string("./")}) {
    if (path.starts_with(folder)) return path.substr(folder.size());
  }
  return path;
}

std::string place_of(const void* at, const std::string& innermost) {
  Dl_info program{};
  if (dladdr(at, &program) == 0) return fmt::format("{}", at);
  std::string place = is_kernels_own(innermost) ? innermost : "";
  std::string kernel;
  const auto lines = source_lines(program, at, !innermost.empty());
  for (const std::string& line : lines) {
    if (!is_kernels_own(line)) continue;
    if (place.empty()) place = line;
    kernel = line;
    if (line.find(".cu:") != std::string::npos) break;
  }
  if (place.empty()) {
    if (!lines.empty()) return lines.front();
    return program.dli_sname ? program.dli_sname : fmt::format("{}", at);
  }
  if (place.find(".cu:") != std::string::npos || kernel.find(".cu:") == std::string::npos) return place;
  return fmt::format("{}: in {}", kernel, place);
}

}  // namespace ladder::simt
