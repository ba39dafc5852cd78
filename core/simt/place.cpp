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

// The frames of the call stack, the instruction at `at` first. A return address stands after its call.
std::vector<const char*> frames_from(const void* at) {
  constexpr int kMaxFrames = 32;
  std::array<void*, kMaxFrames> all;
  const int count = backtrace(all.data(), kMaxFrames);
  const auto end = all.begin() + count;
  std::vector<const char*> frames{static_cast<const char*>(at)};
  const auto found = std::find(all.begin(), end, at);
  for (auto frame = found == end ? end : found + 1; frame != end; ++frame) {
    frames.push_back(static_cast<const char*>(*frame) - 1);
  }
  return frames;
}

}  // namespace

bool is_kernels_own(std::string_view path) {
  return path.find("/core/") == std::string_view::npos && !path.starts_with("/usr/") && !path.starts_with("core/");
}

std::string relative_path(const std::string& path) {
  const std::string root = source_dir() + "/";
  return path.starts_with(root) ? path.substr(root.size()) : path;
}

std::string place_of(const void* at) {
  Dl_info program{};
  if (dladdr(at, &program) == 0) return fmt::format("{}", at);
  std::string command = fmt::format("addr2line -i -e '{}'", program.dli_fname);
  for (const char* frame : frames_from(at)) {
    Dl_info info{};
    if (dladdr(frame, &info) == 0 || info.dli_fbase != program.dli_fbase) break;
    command += fmt::format(" {:#x}", frame - static_cast<const char*>(info.dli_fbase));
  }
  std::string place;
  if (const std::unique_ptr<FILE, int (*)(FILE*)> lines(popen((command + " 2>/dev/null").c_str(), "r"), pclose);
      lines) {
    std::array<char, 4096> line;
    while (std::fgets(line.data(), line.size(), lines.get())) {
      std::string_view text(line.data());
      text = text.substr(0, text.find_first_of(" \n"));  // after a blank stands a discriminator
      if (text.starts_with("??") || text.ends_with(":0") || text.ends_with(":?")) continue;
      const bool own = is_kernels_own(text);
      if (own || place.empty()) place = text;
      if (own) break;
    }
  }
  if (!place.empty()) return relative_path(place);
  return program.dli_sname ? program.dli_sname : fmt::format("{}", at);
}

}  // namespace ladder::simt
