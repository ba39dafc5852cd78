// The reference of optimizer against torch.optim.AdamW (tests/golden/adamw_constants.json, which tools/dev/make_adamw_constants.py
// makes) and a formula of its own, and every version over 100 steps against both.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/backend.h"
#include "core/check/check.h"
#include "core/error.h"
#include "core/paths.h"
#include "dev/optimizer/optimizer.h"

namespace ladder {
namespace {

using namespace optimizer;
using Json = nlohmann::json;

const Json& golden() {
  static const Json constants = [] {
    std::ifstream file(source_dir() + "/tests/golden/adamw_constants.json");
    return Json::parse(file);
  }();
  return constants;
}

// The numbers that tools/dev/make_adamw_constants.py begins with.
float value(std::uint32_t index, std::uint32_t salt) {
  return (static_cast<float>((index * 2654435761u + salt * 40503u) / 65536 % 257) - 128) / 64;
}

std::vector<float> values(int count, int salt) {
  std::vector<float> made;
  for (int i = 0; i < count; ++i) made.push_back(value(i, salt));
  return made;
}

Hyper hyper_of(const Json& known, int step) {
  return {.lr = known["lr"],
          .one_minus_beta1 = static_cast<float>(1 - known["beta1"].get<double>()),
          .one_minus_beta2 = static_cast<float>(1 - known["beta2"].get<double>()),
          .eps = known["eps"],
          .weight_decay = known["weight_decay"],
          .one_minus_ema_rate = static_cast<float>(1 - known["ema_rate"].get<double>()),
          .step = static_cast<float>(step),
          .max_norm = known["max_norm"]};
}

// PyTorch's formulas as its documentation has them, with beta rather than 1 - beta, in double.
struct Model {
  std::vector<double> p, m, v, ema;

  explicit Model(const std::vector<float>& start) : p(start.begin(), start.end()), m(p.size()), v(p.size()), ema(p) {}

  double step(const Json& known, int step, const std::vector<float>& gradient) {
    double squares = 0;
    for (const double g : gradient) squares += g * g;
    const double norm = std::sqrt(squares);
    const double scale = std::min(1.0, known["max_norm"].get<double>() / (norm + 1e-6));
    const double beta1 = known["beta1"], beta2 = known["beta2"], lr = known["lr"], rate = known["ema_rate"];
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double g = scale * gradient[i];
      p[i] -= lr * known["weight_decay"].get<double>() * p[i];
      m[i] = beta1 * m[i] + (1 - beta1) * g;
      v[i] = beta2 * v[i] + (1 - beta2) * g * g;
      const double m_hat = m[i] / (1 - std::pow(beta1, step));
      const double v_hat = v[i] / (1 - std::pow(beta2, step));
      p[i] -= lr * m_hat / (std::sqrt(v_hat) + known["eps"].get<double>());
      ema[i] = rate * ema[i] + (1 - rate) * p[i];
    }
    return norm;
  }
};

// Within `tolerance` of `least` and of the number.
template <class A, class B>
void expect_near(const A& ours, const B& theirs, double tolerance, const std::string& what, double least = 1e-3) {
  ASSERT_EQ(ours.size(), theirs.size()) << what;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    EXPECT_NEAR(ours[i], theirs[i], tolerance * (least + std::abs(theirs[i]))) << what << " at " << i;
  }
}

TEST(AdamW, FormulaEqualsPyTorch) {
  const Json& known = golden();
  Model model(values(known["count"], 0));
  int step = 0;
  for (const Json& shown : known["steps"]) {
    double norm = 0;
    while (step < shown["step"]) {
      ++step;
      norm = model.step(known, step, values(known["count"], step));
    }
    const std::string at = "step " + std::to_string(step);
    EXPECT_NEAR(norm, shown["norm"].get<double>(), 1e-12);
    expect_near(model.p, shown["p"].get<std::vector<double>>(), 1e-9, at + " p");
    expect_near(model.m, shown["m"].get<std::vector<double>>(), 1e-9, at + " m");
    expect_near(model.v, shown["v"].get<std::vector<double>>(), 1e-9, at + " v");
    expect_near(model.ema, shown["ema"].get<std::vector<double>>(), 1e-9, at + " ema");
  }
}

// A tensor on the device.
class Buffer {
 public:
  explicit Buffer(std::vector<float> values) : count_(values.size()), data_(backend::allocate(bytes())) { set(values); }
  ~Buffer() { backend::release(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() const { return data_; }
  void set(const std::vector<float>& values) { backend::copy_in(data_, values.data(), bytes()); }
  std::vector<float> get() const {
    std::vector<float> values(count_);
    backend::copy_out(values.data(), data_, bytes());
    return values;
  }

 private:
  std::size_t bytes() const { return count_ * sizeof(float); }
  std::size_t count_;
  void* data_;
};

// A model's state on the device, and a version of each pass bound to it.
class Training {
 public:
  Training(int norm_version, int adamw_version, const std::vector<float>& start)
      : g(start),
        hyper(std::vector<float>(sizeof(Hyper) / sizeof(float))),
        norm({0}),
        scale({0}),
        p(start),
        m(std::vector<float>(start.size())),
        v(std::vector<float>(start.size())),
        ema(start) {
    const std::string line = "p" + std::to_string(start.size()) + " tensors4 clip fp32";
    norm_ = bound(pass_of<Norm>(), norm_version, line, {&g, &hyper, &norm, &scale}, norm_workspace_);
    adamw_ = bound(pass_of<AdamW>(), adamw_version, line, {&g, &scale, &hyper, &p, &m, &v, &ema}, adamw_workspace_);
  }

  void step(const Hyper& h, const std::vector<float>& gradient) {
    g.set(gradient);
    const auto* const first = reinterpret_cast<const float*>(&h);
    hyper.set({first, first + sizeof h / sizeof(float)});
    norm_(backend::check_stream());
    adamw_(backend::check_stream());
    backend::synchronize();
  }

  Buffer g, hyper, norm, scale, p, m, v, ema;

 private:
  static BoundLaunch bound(const Pass& pass, int version, const std::string& line, const std::vector<Buffer*>& buffers,
                           std::optional<Buffer>& workspace) {
    const Case c = pass.parse(line);
    const Kernel kernel = plan(find_version(pass, version), c);
    workspace.emplace(std::vector<float>(kernel.workspace_bytes / sizeof(float) + 1));
    std::vector<void*> pointers;
    for (const Buffer* buffer : buffers) pointers.push_back(buffer->data());
    return kernel.bind(Pointers(c.tensors, pointers.data()), workspace->data());
  }

  std::optional<Buffer> norm_workspace_, adamw_workspace_;
  BoundLaunch norm_, adamw_;
};

TEST(AdamW, VersionsStayWithPyTorchForAHundredSteps) {
  if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
  const Json& known = golden();
  const int count = known["count"];
  for (const Version* norm : versions_of(pass_of<Norm>())) {
    for (const Version* adamw : versions_of(pass_of<AdamW>())) {
      Training run(norm->number, adamw->number, values(count, 0));
      int step = 0;
      for (const Json& shown : known["steps"]) {
        while (step < shown["step"]) {
          ++step;
          run.step(hyper_of(known, step), values(count, step));
        }
        const std::string at = norm->label() + ", " + adamw->label() + ", step " + std::to_string(step);
        EXPECT_NEAR(run.norm.get()[0], shown["norm"].get<double>(), 1e-5) << at;
        // Each step rounds p three times, relative to p: 1 - lr weight_decay by 2^-25, always the same way, its product
        // with p and the difference by 2^-24 each. The average rounds once more. The moments forget.
        const double rounded = 4 * std::ldexp(step, -24);
        expect_near(run.p.get(), shown["p"].get<std::vector<double>>(), rounded, at + " p", 1);
        expect_near(run.m.get(), shown["m"].get<std::vector<double>>(), 5e-6, at + " m");
        expect_near(run.v.get(), shown["v"].get<std::vector<double>>(), 5e-6, at + " v");
        expect_near(run.ema.get(), shown["ema"].get<std::vector<double>>(), rounded, at + " ema", 1);
      }
    }
  }
}

TEST(AdamW, GradientsThatAreNotFiniteChangeNothing) {
  if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
  constexpr int kCount = 1030;
  for (const Version* norm : versions_of(pass_of<Norm>())) {
    for (const Version* adamw : versions_of(pass_of<AdamW>())) {
      Training run(norm->number, adamw->number, values(kCount, 0));
      run.step(hyper_of(golden(), 1), values(kCount, 1));
      const std::vector<float> kept[] = {run.p.get(), run.m.get(), run.v.get(), run.ema.get()};
      const float bad[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 3e38f};
      for (const float value : bad) {
        std::vector<float> gradient = values(kCount, 2);
        gradient[kCount - 2] = value;
        run.step(hyper_of(golden(), 2), gradient);
        EXPECT_FALSE(std::isfinite(run.norm.get()[0])) << value;
        EXPECT_EQ(run.scale.get()[0], 0.0f) << value;
        EXPECT_EQ(run.p.get(), kept[0]) << adamw->label();
        EXPECT_EQ(run.m.get(), kept[1]) << adamw->label();
        EXPECT_EQ(run.v.get(), kept[2]) << adamw->label();
        EXPECT_EQ(run.ema.get(), kept[3]) << adamw->label();
      }
    }
  }
}

TEST(OptimizerProblem, TensorsCoverAllParameters) {
  for (const char* line : {"p20494211 tensors326", "p77 tensors77", "p1000 tensors1"}) {
    const Problem p = Problem::parse(line);
    const std::vector<std::int64_t> begins = p.tensor_begins();
    ASSERT_EQ(begins.size(), static_cast<std::size_t>(p.tensors) + 1);
    EXPECT_EQ(begins.front(), 0);
    EXPECT_EQ(begins.back(), p.p);
    for (int i = 0; i < p.tensors; ++i) EXPECT_LT(begins[i], begins[i + 1]) << line << " tensor " << i;
  }
}

TEST(OptimizerProblem, BadLinesAreRefused) {
  for (const char* line : {"p10", "p10 tensors11", "p0 tensors1", "p3000000000 tensors1"}) {
    EXPECT_THROW(Problem::parse(line), UsageError) << line;
  }
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Problem p = Problem::random(seed);
    EXPECT_EQ(Problem::parse(p.str()), p);
  }
}

}  // namespace
}  // namespace ladder
