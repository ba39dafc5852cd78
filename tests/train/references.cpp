// A step against the references in double precision, in two ways. Operation by operation: each output is compared with
// the reference's answer to the inputs that the operation read in this step, within the bounds of the operation's
// version on random values. As a whole: the tape runs on the references alone, each reading the outputs of earlier
// references. Every tensor of forward, backward and update then equals the step's up to accumulated rounding.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/backend.h"
#include "core/check/check.h"
#include "tests/repeats.h"
#include "tests/train/tiny.h"

namespace ladder::train {
namespace {

using test::Tiny;

std::vector<float> values_at(const TensorSpec& spec, const void* device) {
  std::vector<unsigned char> stored(spec.bytes());
  backend::copy_out(stored.data(), device, stored.size());
  return decoded(spec, stored);
}

std::vector<std::vector<float>> outputs_of(const Program& program, std::size_t i) {
  const Operation& operation = program.tape().operations()[i];
  const std::vector<TensorSpec>& tensors = operation.problem.tensors;
  std::vector<std::vector<float>> outputs;
  for (std::size_t j = 0; j < tensors.size(); ++j) {
    if (tensors[j].is_written()) outputs.push_back(values_at(tensors[j], program.address(operation.values[j])));
  }
  return outputs;
}

HostTensors inputs_of(const Program& program, std::size_t i) {
  const Operation& operation = program.tape().operations()[i];
  const std::vector<TensorSpec>& tensors = operation.problem.tensors;
  HostTensors inputs(tensors);
  for (std::size_t j = 0; j < tensors.size(); ++j) {
    if (tensors[j].is_read()) inputs.values[j] = values_at(tensors[j], program.address(operation.values[j]));
  }
  return inputs;
}

// Inputs that an operation read, and the reference's answer to them.
struct Answer {
  std::vector<std::vector<float>> inputs;
  ExpectedOutputs expected;
};

// Replacement of an operation's launch. The work is complete when the function returns.
using Launch = std::function<void(const Program& program, std::size_t operation, Stream stream)>;

void launch(const Program& program, std::size_t operation, Stream stream) {
  program.enqueue(operation, stream);
  backend::synchronize();
}

// Write the reference's answer, rounded to the tensors' dtypes, to the kernel's outputs.
void take_reference(const Program& program, std::size_t i, Stream) {
  const Operation& operation = program.tape().operations()[i];
  const Case& c = operation.problem;
  const ExpectedOutputs expected = reference_outputs(c, inputs_of(program, i));
  std::size_t output = 0;
  for (std::size_t j = 0; j < c.tensors.size(); ++j) {
    if (!c.tensors[j].is_written()) continue;
    const std::vector<double>& value = expected[output++].value;
    const auto stored = encoded(c.tensors[j], std::vector<float>(value.begin(), value.end()));
    backend::copy_in(program.address(operation.values[j]), stored.data(), stored.size());
  }
}

// Returns all outputs of a step's operations, in order.
std::vector<std::vector<float>> all_outputs(const Step& step, const Launch& run) {
  std::vector<std::vector<float>> all;
  for (const Program* program : step.programs()) {
    for (std::size_t i = 0; i < program->tape().operations().size(); ++i) {
      run(*program, i, step.stream());
      for (std::vector<float>& output : outputs_of(*program, i)) all.push_back(std::move(output));
    }
  }
  return all;
}

// Returns the names of all_outputs(), for messages.
std::vector<std::string> all_names(const Step& step) {
  std::vector<std::string> names;
  for (const Program* program : step.programs()) {
    for (const Operation& operation : program->tape().operations()) {
      for (const TensorSpec* spec : written(operation.problem.tensors)) {
        names.push_back(fmt::format("{}: {}, {}", operation.name, operation.problem.pass->path(), spec->name));
      }
    }
  }
  return names;
}

class Comparison {
 public:
  explicit Comparison(Launch run = launch) : launch_(std::move(run)) {}

  // Run a step's programs on the previous step's inputs, and keep the differences.
  void run(const Step& step) {
    num_checked_ = 0;
    for (const Program* program : step.programs()) {
      for (std::size_t i = 0; i < program->tape().operations().size(); ++i) run(*program, i, step.stream());
    }
  }

  const std::vector<std::string>& differences() const { return differences_; }
  const std::set<std::string>& passes() const { return passes_; }
  std::size_t num_checked() const { return num_checked_; }

 private:
  void run(const Program& program, std::size_t i, Stream stream) {
    const Operation& operation = program.tape().operations()[i];
    const Case& c = operation.problem;
    const HostTensors inputs = inputs_of(program, i);
    // The inputs are the same under another order of threads, since kernels give the same bits under each.
    Answer& answer = answers_[{&program, i}];
    if (answer.expected.empty() || answer.inputs != inputs.values) {
      answer = {.inputs = inputs.values, .expected = reference_outputs(c, inputs)};
    }
    launch_(program, i, stream);
    const std::vector<std::vector<float>> outputs = outputs_of(program, i);
    const AnyVersionDef& def = program.choice(i).version->def;
    const Verdict verdict =
        within_limit(compare(c, Pattern::normal, outputs, answer.expected, def), c, answer.expected, def);
    num_checked_ += outputs.size();
    passes_.insert(c.pass->path());
    if (verdict.status == Status::pass) return;
    differences_.push_back(fmt::format("{}: {}/{} '{}': {}", operation.name, c.pass->path(),
                                       program.choice(i).version->label(), c.text, verdict.reason));
  }

  Launch launch_;
  std::map<std::pair<const Program*, std::size_t>, Answer> answers_;
  std::vector<std::string> differences_;
  std::set<std::string> passes_;
  std::size_t num_checked_ = 0;
};

// Reset a step's state to its beginning.
void begin_again(Tiny& net) {
  net.set(net.random_weights());
  const std::vector<float> zeros(net.parameters.size(), 0.0f);
  net.state.set(net.state.first_moments, zeros);
  net.state.set(net.state.second_moments, zeros);
}

class References : public ::testing::TestWithParam<Dtype> {
 protected:
  void SetUp() override {
    if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
  }
  void TearDown() override { backend::set_schedule(schedule_); }

 private:
  const std::string schedule_ = backend::schedule();
};

TEST_P(References, EveryTensorOfAStepIsTheirs) {
  Tiny net(GetParam());
  const StepResults results = net.run();
  const std::vector<float> values = net.state.get(net.state.values);
  Comparison comparison;
  const std::vector<std::string> schedules = ladder::test::schedules();
  for (const std::string& schedule : std::set<std::string>{schedules.front(), schedules.back()}) {
    SCOPED_TRACE(schedule);
    backend::set_schedule(schedule);
    begin_again(net);
    comparison.run(*net.step);
    for (const std::string& difference : comparison.differences()) ADD_FAILURE() << difference;
    // The compared run is the step itself: its final values have the same bits.
    EXPECT_EQ(net.state.get(net.state.values), values);
    if (HasFailure()) return;
  }
  EXPECT_GT(comparison.num_checked(), 200u);
  EXPECT_GT(results.loss, 0);
  // This step contains every pass that a step can contain.
  for (const char* pass : {"add/embedding",
                           "add/embedding_backward",
                           "add/residual",
                           "attention/backward",
                           "attention/forward",
                           "conv3x3/dgrad",
                           "conv3x3/fprop",
                           "conv3x3/wgrad",
                           "diffusion/batch",
                           "diffusion/loss",
                           "diffusion/q_sample",
                           "embedding/timestep",
                           "gemm/dgrad",
                           "gemm/fprop",
                           "gemm/wgrad",
                           "groupnorm/backward",
                           "groupnorm/forward",
                           "optimizer/adamw",
                           "optimizer/norm",
                           "resample/pool",
                           "resample/pool_backward",
                           "resample/upsample",
                           "resample/upsample_backward",
                           "silu/backward",
                           "silu/forward"}) {
    EXPECT_TRUE(comparison.passes().contains(pass)) << pass;
  }
  // Kernels read a block's input and its skip as two tensors in 16 bits, without a join.
  EXPECT_EQ(comparison.passes().contains("concat/join"), GetParam() == Dtype::f32);
}

// Each skip connection's gradient takes one gemm/dgrad, which accumulates and splits dx itself: no addition of images
// follows.
TEST_P(References, SkipConnectionsAddAndSplitTheirGradientThemselves) {
  Tiny net(GetParam());
  int accumulating = 0, splitting = 0, joins = 0, reads_in_parts = 0;
  for (const Program* program : net.step->programs()) {
    for (const Operation& operation : program->tape().operations()) {
      const bool is_skip = operation.name.ends_with(".skip_connection");
      if (!is_skip || operation.problem.pass->path() != "gemm/dgrad") continue;
      EXPECT_NE(operation.problem.text.find(" accumulate "), std::string::npos) << operation.name;
      ++accumulating;
      splitting += operation.problem.text.find(" split") != std::string::npos;
    }
    for (const Operation& operation : program->tape().operations()) {
      EXPECT_FALSE(operation.problem.pass->path() == "add/residual" && operation.name.ends_with(" input"))
          << operation.name << ": the sum of a concatenation's gradients";
      joins += operation.problem.pass->path() == "concat/join";
      reads_in_parts += operation.problem.pass->path() == "gemm/fprop" &&
                        operation.name.ends_with(".skip_connection") &&
                        operation.problem.text.find(" split") != std::string::npos;
    }
  }
  EXPECT_GE(accumulating, 3);
  EXPECT_GE(splitting, 3);
  EXPECT_EQ(splitting, joins + reads_in_parts);
}

TEST_P(References, RunAStepThemselves) {
  Tiny net(GetParam());
  net.run();
  begin_again(net);
  const auto found = all_outputs(*net.step, launch);
  begin_again(net);
  const auto expected = all_outputs(*net.step, take_reference);
  const std::vector<std::string> names = all_names(*net.step);
  ASSERT_EQ(found.size(), names.size());
  ASSERT_EQ(expected.size(), names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    const double error = test::distance(found[i], expected[i]);
    EXPECT_LT(error, GetParam() == Dtype::f32 ? 3e-5 : 6e-2) << names[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, References, ::testing::Values(Dtype::f32, Dtype::bf16),
                         [](const auto& info) { return name(info.param); });

// The comparison must find two faults: an operation with two operands exchanged, and a tensor with one element doubled.
TEST(ReferencesFaults, AreFound) {
  if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
  Tiny net(Dtype::f32);
  net.run();
  begin_again(net);
  int faults = 0;
  Comparison comparison([&](const Program& program, std::size_t i, Stream stream) {
    const Operation& operation = program.tape().operations()[i];
    const Case& c = operation.problem;
    std::vector<void*> pointers;
    for (const ValueId id : operation.values) pointers.push_back(program.address(id));
    const auto& shapes = c.tensors;
    if (c.pass->path() == "concat/join" && shapes[0].shape == shapes[1].shape && faults == 0) {
      std::swap(pointers[0], pointers[1]);
      const Kernel kernel = plan(*program.choice(i).version, c);
      const OwnedRegion workspace("workspace", kernel.workspace_bytes);
      kernel.bind(Pointers(c.tensors, pointers.data()), workspace.base)(stream);
      backend::synchronize();
      ++faults;
      return;
    }
    launch(program, i, stream);
    if (c.pass->path() == "conv3x3/dgrad" && faults == 1) {
      auto* const dx = static_cast<std::byte*>(pointers.back()) + 17 * sizeof(float);
      float element = 0;
      backend::copy_out(&element, dx, sizeof(element));
      element *= 2;
      backend::copy_in(dx, &element, sizeof(element));
      ++faults;
    }
  });
  comparison.run(*net.step);
  EXPECT_EQ(faults, 2);
  ASSERT_EQ(comparison.differences().size(), 2u);  // only at the origins: later operations fit their inputs
  EXPECT_NE(comparison.differences()[0].find("concat/join"), std::string::npos) << comparison.differences()[0];
  EXPECT_NE(comparison.differences()[1].find("conv3x3/dgrad"), std::string::npos) << comparison.differences()[1];
  EXPECT_NE(comparison.differences()[1].find("dx[n0 h0 w0 c17]"), std::string::npos) << comparison.differences()[1];
}

}  // namespace
}  // namespace ladder::train
