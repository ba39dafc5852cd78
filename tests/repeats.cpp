#include "tests/repeats.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "core/backend.h"
#include "core/graph.h"

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
#elif defined(LADDER_ORDER)
  if (all.size() > 2) all.erase(all.begin() + 1, all.end() - 1);
#endif
  return all;
}

Verdict trusted_verdict(std::optional<CheckedCase>& c, const std::function<Verdict(CheckedCase&)>& judge) {
  constexpr int kTries = 20;
  Verdict verdict = judge(*c);
  for (int i = 0; i < kTries && verdict.status == Status::untrusted; ++i) {
    Case again = **c;
    const std::uint64_t seed = c->seed() + 1;
    c.emplace(std::move(again), seed);
    verdict = judge(*c);
  }
  return verdict;
}

std::string difference_between_launches(const Version& v, const Case& c, std::uint64_t seed) {
  constexpr std::size_t kLaunchesOnGpu = 50;
  const std::vector<std::string> orders = schedules();
  const std::size_t launches =
      backend::kind() == backend::Kind::gpu ? kLaunchesOnGpu : std::max<std::size_t>(orders.size(), 2);
  const Kernel kernel = plan(v, c);
  DeviceTensors tensors(c, fill(c, Pattern::normal, seed), kernel.workspace_bytes);
  const BoundLaunch bound = kernel.bind(tensors.pointers(), tensors.workspace());

  std::vector<std::vector<float>> first;
  std::string difference;
  for (std::size_t launch = 0; launch < launches && difference.empty(); ++launch) {
    const std::string& order = orders[launch % orders.size()];
    backend::set_schedule(order);
    tensors.reset();
    bound(backend::check_stream());
    backend::synchronize();
    if (first.empty()) {
      first = tensors.outputs();
    } else {
      difference = other_bits(first, tensors.outputs(), fmt::format("launch {} (schedule {})", launch + 1, order));
    }
  }
  backend::set_schedule(orders.front());
  return difference;
}

std::string difference_between_replays(const Version& v, const Case& c, std::uint64_t seed) {
  const Kernel kernel = plan(v, c);
  DeviceTensors tensors(c, fill(c, Pattern::normal, seed), kernel.workspace_bytes);
  const BoundLaunch bound = kernel.bind(tensors.pointers(), tensors.workspace());
  const OwnedStream stream;
  bound(stream);
  stream.synchronize();
  const std::vector<std::vector<float>> first = tensors.outputs();

  tensors.reset();
  const Graph graph = Graph::capture(bound);
  if (!tensors.untouched()) return "something ran while it was being captured";
  for (const char* which : {"the first replay", "the second replay"}) {
    tensors.reset();
    graph.replay(stream);
    stream.synchronize();
    if (std::string difference = other_bits(first, tensors.outputs(), which); !difference.empty()) return difference;
    if (std::string damage = tensors.damage(); !damage.empty()) return std::string(which) + ": " + damage;
  }
  return {};
}

}  // namespace ladder::test
