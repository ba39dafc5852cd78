#include <cstdlib>
#include <mutex>

#include "core/simt/watchdog.h"
#include "python/csrc/machine.h"

namespace ladder::python {
namespace {

std::mutex one_launch;

// Disable the emulator's watchdog: its signals would interrupt other work of the process.
[[maybe_unused]] const int no_watchdog = setenv(simt::kWatchdogVariable, "0", 0);

}  // namespace

struct CurrentDevice::State {
  std::lock_guard<std::mutex> turn{one_launch};
};

CurrentDevice::CurrentDevice(int) : state_(std::make_unique<State>()) {}
CurrentDevice::~CurrentDevice() = default;

int CurrentDevice::number() const { return 0; }

Stream CurrentDevice::stream() const { return nullptr; }

}  // namespace ladder::python
