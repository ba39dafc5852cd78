#include "tests/repeats.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <sstream>

#include "core/backend.h"

namespace ladder::test {

// A sanitizer makes every launch several times as slow, and looks at addresses and values of threads rather than at their
// order: the first schedule is enough for addresses, the first and the last for threads.
std::vector<std::string> schedules() {
  if (const char* given = std::getenv("LADDER_TEST_SCHEDULES")) {
    std::vector<std::string> names;
    std::istringstream words(given);
    for (std::string name; std::getline(words, name, ',');) names.push_back(name);
    if (!names.empty()) return names;
  }
  std::vector<std::string> all = backend::schedules();
#if defined(LADDER_ASAN)
  all.resize(1);
#elif defined(LADDER_TSAN)
  if (all.size() > 2) all.erase(all.begin() + 1, all.end() - 1);
#endif
  return all;
}

std::string difference_between_launches(const Version& v, const Case& c, std::uint64_t seed) {
  constexpr std::size_t kLaunchesOnGpu = 50;
  const std::vector<std::string> orders = schedules();
  const std::size_t launches =
      backend::kind() == backend::Kind::gpu ? kLaunchesOnGpu : std::max<std::size_t>(orders.size(), 2);
  DeviceTensors tensors(c, fill(c, Pattern::normal, seed), v.workspace_bytes(c));

  std::vector<std::vector<float>> first;
  std::string difference;
  for (std::size_t launch = 0; launch < launches && difference.empty(); ++launch) {
    const std::string& order = orders[launch % orders.size()];
    backend::set_schedule(order);
    tensors.poison();
    v.launch(c, tensors.pointers(), tensors.workspace(), backend::check_stream());
    backend::synchronize();
    const std::vector<std::vector<float>> outputs = tensors.outputs();
    if (first.empty()) first = outputs;
    for (std::size_t i = 0; i < outputs.size() && difference.empty(); ++i) {
      for (std::size_t at = 0; at < outputs[i].size(); ++at) {
        if (std::bit_cast<std::uint32_t>(outputs[i][at]) == std::bit_cast<std::uint32_t>(first[i][at])) continue;
        difference =
            fmt::format("launch {} (schedule {}) gave other bits than the first: output {}, element {}: {} and {}",
                        launch + 1, order, i, at, outputs[i][at], first[i][at]);
        break;
      }
    }
  }
  backend::set_schedule(orders.front());
  return difference;
}

}  // namespace ladder::test
