#include "policy/latency.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/backend.h"
#include "core/graph.h"
#include "io/aside_file.h"
#include "runtime/region.h"

namespace ladder::denoise {
namespace {

using Clock = std::chrono::steady_clock;

double ms_of(const std::function<void()>& run) {
  const auto began = Clock::now();
  run();
  return std::chrono::duration<double, std::milli>(Clock::now() - began).count();
}

}  // namespace

Latency measure_latency(const LatencyOptions& options, const std::function<void()>& answer, std::size_t bytes_in,
                        std::size_t bytes_out) {
  const OwnedRegion region("an empty graph's copies", std::max(bytes_in, bytes_out));
  const PinnedBuffer in(bytes_in), out(bytes_out);
  const OwnedStream queue;
  const Graph empty = Graph::capture([&](Stream stream) { set_bytes_async(region.base, 0, 4, stream); });
  const auto replay = [&] {
    copy_in_async(region.base, in.data(), bytes_in, queue);
    empty.replay(queue);
    copy_out_async(out.data(), region.base, bytes_out, queue);
    queue.synchronize();
  };
  constexpr int kWarmUp = 20;
  for (int i = 0; i < kWarmUp; ++i) {
    answer();
    replay();
  }
  const auto period =
      std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(options.every_ms));
  Latency latency;
  auto next = Clock::now() + period;
  for (int i = 0; i < options.count; ++i) {
    std::this_thread::sleep_until(next);
    next = std::max(next + period, Clock::now());  // an answer that is late delays those after it
    latency.answers_ms.push_back(ms_of(answer));
    latency.empty_ms.push_back(ms_of(replay));
  }
  return latency;
}

std::string summary(std::vector<double> ms) {
  std::ranges::sort(ms);
  const auto quantile = [&](double rank) {
    return ms[static_cast<std::size_t>(rank * static_cast<double>(ms.size() - 1))];
  };
  return fmt::format("median {:.3g} ms, p99 {:.3g}, worst {:.3g}", quantile(0.5), quantile(0.99), ms.back());
}

void write_latency(const std::filesystem::path& file, const nlohmann::json& policy, const Latency& latency) {
  const nlohmann::json record = {{"schema", "ladder.policy_latency/1"}, {"device", backend::device().name},
                                 {"driver", backend::device().driver},  {"policy", policy},
                                 {"answers_ms", latency.answers_ms},    {"empty_graph_ms", latency.empty_ms}};
  io::write_text(file, record.dump(1) + "\n");
}

}  // namespace ladder::denoise
