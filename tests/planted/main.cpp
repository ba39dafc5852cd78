// planted TOOL fault     launches the kernel that compute-sanitizer's TOOL must report: on a GPU, under that tool
// planted TOOL clean     launches its twin, which no tool may report; exit 1 if it computes something wrong
#include <fmt/format.h>

#include <cstdio>
#include <string_view>

#include "core/backend.h"
#include "core/error.h"
#include "core/program.h"
#include "tests/planted/planted.h"

namespace ladder::planted {
namespace {

const Fault& find(std::string_view tool) {
  std::string tools;
  for (const Fault& fault : all()) {
    if (fault.tool == tool) return fault;
    tools += " " + fault.tool;
  }
  throw UsageError(fmt::format("no tool '{}'; there are:{}", tool, tools));
}

int run(int argc, char** argv) {
  if (argc != 3) throw UsageError("a tool of compute-sanitizer, and fault or clean");
  const Fault& fault = find(argv[1]);
  const std::string kind = argv[2];
  if (kind != "fault" && kind != "clean") throw UsageError(fmt::format("'{}': fault or clean", kind));
  if (const char* reason = backend::unavailable()) throw Failure(reason);
  if (kind == "fault" && backend::kind() == backend::Kind::emulator) {
    throw UsageError("faults are for a GPU, under compute-sanitizer; tests/faults has the emulator's");
  }
  const bool right = fault.run(kind == "fault");
  if (kind == "clean" && !right)
    throw Failure(fmt::format("the clean twin for {} computed something wrong", fault.tool));
  std::printf("%s %s: launched on %s\n", fault.tool.c_str(), kind.c_str(), backend::device().name.c_str());
  return 0;
}

}  // namespace
}  // namespace ladder::planted

int main(int argc, char** argv) {
  return ladder::program_status("planted", [&] { return ladder::planted::run(argc, argv); });
}
