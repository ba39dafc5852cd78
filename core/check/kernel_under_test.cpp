#include "core/check/kernel_under_test.h"

#include <chrono>
#include <functional>
#include <map>
#include <thread>

#include "core/backend.h"
#include "core/early_tensors.h"
#include "core/error.h"
#include "core/graph.h"

namespace ladder {
namespace {

// Versions of which a kernel had to be ended, with the problem of that: another one would take as long.
std::map<const Version*, std::string>& endless_problems() {
  static std::map<const Version*, std::string> problems;
  return problems;
}

class BoundHere : public KernelUnderTest {
 public:
  // early_weights: the version may load weights before it waits for the grid in front.
  BoundHere(const Version& v, const Case& c, const std::string& plan_name, Bands bands, bool early_weights)
      : version_(v),
        case_(c),
        plan_name_(plan_name),
        kernel_(plan(v, c, plan_name)),
        tensors_(c, kernel_.workspace_bytes, bands),
        launch_(bound(early_weights)) {
    backend::synchronize();
  }

  std::unique_ptr<KernelUnderTest> another() override {
    return std::make_unique<BoundHere>(version_, case_, plan_name_, Bands::numbers, /*early_weights=*/false);
  }
  bool private_workspace() const override { return kernel_.private_workspace; }
  bool has_workspace() const override { return kernel_.workspace_bytes > 0; }

  void refill(const HostTensors& inputs) override { tensors_.refill(inputs); }
  void reset(Contents outputs, Contents workspace) override { tensors_.reset(outputs, workspace); }
  std::vector<std::vector<float>> outputs() override { return tensors_.outputs(); }
  std::string damage() override { return tensors_.damage(); }
  std::uint64_t workspace_digest() override { return tensors_.workspace_digest(); }

  std::string launch(int times) override {
    return wait_for([&] {
      tensors_.protect_inputs(true);
      for (int i = 0; i < times; ++i) launch_(backend::check_stream());
    });
  }

  std::string launch_held() override {
    bool untouched = true;
    bool waited = false;
    const std::string fault = wait_for([&] {
      backend::hold();
      launch_(backend::check_stream());
      constexpr std::chrono::milliseconds kTimeForStrays{1};
      std::this_thread::sleep_for(kTimeForStrays);
      // Nothing is kept back on the emulator.
      untouched = backend::kind() == backend::Kind::emulator || tensors_.untouched();
      waited = !backend::let_go();
    });
    if (!fault.empty()) {
      backend::let_go();
      return fault;
    }
    if (waited) return "launch() waits for the device instead of enqueueing on its stream";
    if (!untouched) return "work outside the stream that launch() was given";
    return {};
  }

  std::string launch_before_inputs() override {
    tensors_.hide_inputs();
    const std::string fault = wait_for([&] {
      if (backend::kind() == backend::Kind::emulator) {  // launches run at once, unless they are captured
        const Graph graph = Graph::capture(launch_);
        tensors_.show_inputs();
        tensors_.protect_inputs(true);
        graph.replay(backend::check_stream());
        return;
      }
      backend::hold();
      launch_(backend::check_stream());
      tensors_.show_inputs();
      backend::let_go();
    });
    if (!fault.empty()) {
      backend::let_go();
      tensors_.show_inputs();
    }
    return fault;
  }

 private:
  BoundLaunch bound(bool early_weights) const {
    const EarlyTensors early(early_weights ? tensors_.weights() : std::vector<const void*>());
    return kernel_.bind(tensors_.pointers(), tensors_.workspace());
  }

  // Runs `enqueue`, work of the version's, and waits; an exception becomes a fault.
  std::string wait_for(const std::function<void()>& enqueue) {
    const std::string schedule = backend::schedule();
    std::string fault;
    try {
      enqueue();
      backend::synchronize();
    } catch (const Endless& error) {
      endless_problems()[&version_] = case_.text;
      fault = one_line(error.what());
    } catch (const std::exception& error) {
      fault = one_line(error.what());
    }
    tensors_.protect_inputs(false);
    if (backend::schedule() != schedule) {
      backend::set_schedule(schedule);
      return "launch() sets the schedule of the emulator";
    }
    return fault;
  }

  const Version& version_;
  const Case& case_;
  std::string plan_name_;
  Kernel kernel_;
  DeviceTensors tensors_;
  BoundLaunch launch_;
};

}  // namespace

std::unique_ptr<KernelUnderTest> bound_here(const Version& v, const Case& c, const std::string& plan_name) {
  return std::make_unique<BoundHere>(v, c, plan_name, Bands::canaries, /*early_weights=*/true);
}

std::string endless_problem(const Version& v) {
  const auto found = endless_problems().find(&v);
  return found == endless_problems().end() ? std::string() : found->second;
}

}  // namespace ladder
