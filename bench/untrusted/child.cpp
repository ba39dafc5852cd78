// The program of a candidate: runs its kernel for a judge in another process, on descriptors 3 and 4. It has the layer's
// problems and the guarded buffers; neither the reference, nor the comparison, nor another version.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iostream>
#include <map>
#include <memory>
#include <utility>

#include "bench/timer.h"
#include "bench/untrusted/frames.h"
#include "core/backend.h"
#include "core/check/kernel_under_test.h"
#include "core/error.h"
#include "core/kernel.h"

namespace ladder {
namespace {

using nlohmann::json;

constexpr int kIn = 3;
constexpr int kOut = 4;

const Version& only_version(const std::string& path) {
  std::vector<std::string> registered;
  for (const Version* v : all_versions()) registered.push_back(v->pass->path());
  if (registered != std::vector{path}) {
    throw Failure(fmt::format("a candidate registers one version, of {}; its file registers {}", path,
                              registered.empty() ? "none" : fmt::format("{}", fmt::join(registered, ", "))));
  }
  return *all_versions().front();
}

// A kernel with its tensors, to be timed.
struct Timed {
  Timed(const Version& v, const Case& c, const std::string& plan_name)
      : kernel(plan(v, c, plan_name)),
        tensors(c, kernel.workspace_bytes),
        launch(kernel.bind(tensors.pointers(), tensors.workspace())) {}

  Kernel kernel;
  DeviceTensors tensors;
  BoundLaunch launch;
};

class Server {
 public:
  explicit Server(std::string path) : path_(std::move(path)) {}

  // Throws what the candidate throws.
  Frame answer(const Frame& request) {
    const auto op = request.head.at("op").get<std::string>();
    if (op == "list") return {list(), {}};
    if (op == "problem") return {take(request.head.at("text").get<std::string>()), {}};
    if (op == "schedule") {
      backend::set_schedule(request.head.at("name").get<std::string>());
      return {json::object(), {}};
    }
    if (op == "bind") {
      kernels_[request.head.at("as")] = bound_here(version(), *case_, request.head.at("plan").get<std::string>());
      return {{{"private_workspace", version().def.private_workspace}}, {}};
    }
    if (op == "time") {
      if (!timer_) timer_ = std::make_unique<Timer>();
      timed_ = std::make_unique<Timed>(version(), *case_, request.head.at("plan").get<std::string>());
      const Calibration& calibration = timer_->calibration();
      return {{{"doubt", calibration.failure}, {"empty", times(calibration.empty)}}, {}};
    }
    return op.starts_with("time_") ? of_timed(op, request) : of_kernel(op, request);
  }

 private:
  const Version& version() const { return only_version(path_); }

  json list() const {
    const AnyVersionDef& def = version().def;
    json dtypes = json::array();
    for (const Dtype dtype : def.dtypes) dtypes.push_back(name(dtype));
    return {{"dtypes", dtypes},
            {"error_growth", def.error_growth},
            {"exact", def.exact},
            {"least_arithmetic", def.least_arithmetic}};
  }

  // The problem at hand from now on; nothing of an earlier one is left.
  json take(const std::string& text) {
    kernels_.clear();
    timed_.reset();
    case_ = std::make_unique<Case>(version().pass->parse(text));
    json plan_names = json::array();
    const std::string reason = why_not(version(), *case_);
    if (reason.empty()) {
      for (const Kernel& kernel : plans(version(), *case_)) plan_names.push_back(kernel.name);
    }
    return {{"skip", reason}, {"plans", plan_names}};
  }

  HostTensors inputs(const Frame& request) const {
    HostTensors tensors(case_->tensors);
    auto next_value = request.values.begin();
    for (std::size_t i = 0; i < case_->tensors.size(); ++i) {
      if (!case_->tensors[i].is_read()) continue;
      const auto count = static_cast<std::ptrdiff_t>(case_->tensors[i].elements());
      tensors.values[i].assign(next_value, next_value + count);
      next_value += count;
    }
    return tensors;
  }

  static Frame values(const std::vector<std::vector<float>>& outputs) {
    Frame frame{json::object(), {}};
    for (const auto& output : outputs) frame.values.insert(frame.values.end(), output.begin(), output.end());
    return frame;
  }

  Frame of_kernel(const std::string& op, const Frame& request) {
    const auto found = kernels_.find(request.head.at("kernel"));
    if (found == kernels_.end()) throw Failure("no such kernel");
    KernelUnderTest& kernel = *found->second;
    json head = json::object();
    if (op == "outputs") return values(kernel.outputs());
    if (op == "another") kernels_[request.head.at("as")] = kernel.another();
    if (op == "release") kernels_.erase(found);
    if (op == "refill") kernel.refill(inputs(request));
    if (op == "reset") kernel.reset(request.head.at("outputs"), request.head.at("workspace"));
    if (op == "damage") head["damage"] = kernel.damage();
    if (op == "workspace_digest") head["digest"] = kernel.workspace_digest();
    if (op == "launch") head["fault"] = kernel.launch(request.head.at("times"));
    if (op == "launch_held") head["fault"] = kernel.launch_held();
    if (op == "launch_before_inputs") head["fault"] = kernel.launch_before_inputs();
    return {head, {}};
  }

  Frame of_timed(const std::string& op, const Frame& request) {
    if (op == "time_outputs") return values(timed_->tensors.outputs());
    if (op == "time_refill") {
      timed_->tensors.refill(inputs(request));
      timed_->tensors.reset();
      timer_->run(timed_->launch);
      return {json::object(), {}};
    }
    timed_->tensors.reset();
    const int launches = request.head.value("launches", 0);
    const Sample sample = launches > 0 ? timer_->warm(timed_->launch, launches) : timer_->cold(timed_->launch);
    return {times(sample), {}};
  }

  static json times(const Sample& sample) {
    return {
        {"seconds", sample.seconds}, {"stamp_seconds", sample.stamp_seconds}, {"wall_seconds", sample.wall_seconds}};
  }

  std::string path_;  // of the pass
  std::unique_ptr<Case> case_;
  std::map<int, std::unique_ptr<KernelUnderTest>> kernels_;
  std::unique_ptr<Timer> timer_;
  std::unique_ptr<Timed> timed_;
};

int serve(const std::string& path) {
  keep_freed_memory();
  Channel judge(kIn, kOut);
  Server server(path);
  constexpr std::size_t kAnything = std::size_t{1} << 40;
  while (std::optional<Frame> request = judge.receive(kAnything)) {
    Frame answer;
    try {
      answer = server.answer(*request);
    } catch (const std::exception& error) {
      answer.head = {{"error", one_line(error.what())}};
    }
    judge.send(answer.head, answer.values);
  }
  return 0;
}

}  // namespace
}  // namespace ladder

int main(int argc, char** argv) {
  try {
    if (argc != 2) throw ladder::UsageError("usage: try_<layer> <layer>/<pass>, started by ./ladder try");
    return ladder::serve(argv[1]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
