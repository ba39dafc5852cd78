// Baselines in processes of their own, played by shell scripts, good and bad; and several baselines as one.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/backend.h"
#include "core/check/check.h"
#include "core/error.h"
#include "dev/gemm/gemm.h"
#include "dev/groupnorm/groupnorm.h"
#include "reference/baseline_worker.h"
#include "tests/support.h"

namespace ladder {
namespace {

namespace fs = std::filesystem;

const char* const kHello = R"(echo '{"library": "Fake 1.2", "empty_seconds": 2e-6}'; )";
const char* const kPlans =
    R"(read prepare; echo '{"plans": [{"name": "slow", "reason": ""}, {"name": "quick", "reason": ""},)"
    R"( {"name": "never", "reason": "no such kernel"}], "heuristic": "slow", "makes": ["y"]}'; )";
// Answers samples until the end; y, eight floats, is zero.
const char* const kSamples = R"(while read line; do case "$line" in
  *answer*) head -c 32 /dev/zero > "$1/y"; echo '{}';;
  *slow*) echo '{"seconds": 3e-5}';;
  *) echo '{"seconds": 1e-5}';;
esac; done; rm -r "$1")";

// A worker whose only argument is its folder, $1.
WorkerProgram fake(const std::string& script) {
  return {.library = "Fake",
          .command = {"/bin/sh", "-c", script, "worker"},
          .start_seconds = 10,
          .prepare_seconds = 10,
          .sample_seconds = 1,
          .leave_seconds = 0.5};
}

template <class F>
std::string failure_of(const F& f) {
  try {
    f();
  } catch (const Failure& error) {
    return error.what();
  }
  return "no failure";
}

// Whoever inherits an orphan may take a moment to bury it: a zombie is gone, too.
bool is_gone(int pid) {
  for (int i = 0; i < 100; ++i) {
    std::string word, state;
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    stat >> word >> word >> state;
    if (!stat || state == "Z") return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

class WorkerTest : public testing::Test {
 protected:
  Case c_ = pass_of<groupnorm::Forward>().parse("n1 h1 w2 c4 g2 fp32");
  DeviceTensors tensors_{c_, fill(c_, Pattern::normal, 1), 0};

  std::unique_ptr<Baseline> baseline(const std::string& script) {
    return make_worker_baseline(std::make_shared<Worker>(fake(script)), c_, tensors_.pointers(), Search::all);
  }
  std::string complaint(const std::string& script) {
    return failure_of([&] { (void)baseline(script); });
  }
};

TEST_F(WorkerTest, PlansAreRankedByItsOwnTimer) {
  const auto o = baseline(std::string(kHello) + kPlans + kSamples);
  EXPECT_EQ(o->library(), "Fake 1.2");
  EXPECT_EQ(o->empty_seconds(), 2e-6);
  ASSERT_EQ(o->tried().size(), 3u);
  EXPECT_EQ(o->plan(Choice::best).name, "quick");
  EXPECT_EQ(o->plan(Choice::best).seconds, 1e-5);
  EXPECT_EQ(o->plan(Choice::heuristic).name, "slow");
  EXPECT_EQ(o->tried()[2].reason, "no such kernel");
  EXPECT_FALSE(o->work(Choice::best)) << "nothing of it runs on our stream";
  EXPECT_EQ(o->sample(Choice::best), 1e-5);
  EXPECT_EQ(o->sample(Choice::heuristic), 3e-5);
}

TEST_F(WorkerTest, ItsOutputsComeIntoOurTensors) {
  const auto o = baseline(std::string(kHello) + kPlans + kSamples);
  tensors_.reset();
  o->answer();
  const auto outputs = tensors_.outputs();
  EXPECT_EQ(outputs[0], std::vector<float>(8, 0.0f));
  EXPECT_NE(outputs[1][0], outputs[1][0]) << "mean, which it does not make, is still poison";
  EXPECT_TRUE(o->makes(c_.tensors[3]));
  EXPECT_FALSE(o->makes(c_.tensors[4]));
  EXPECT_EQ(tensors_.damage(), "");
}

TEST_F(WorkerTest, GetsInputsAsTheyAreStored) {
  // Keeps the request, and what x's file held.
  const std::string kept = (fs::path(testing::TempDir()) / "ladder_worker_x").string();
  const std::string keep = R"(read prepare; cp "$1/x" )" + kept + R"(; echo "$prepare" > )" + kept + ".json; ";
  const std::string plans = std::string(kPlans).substr(std::string("read prepare; ").size());
  (void)baseline(kHello + keep + plans + kSamples);
  std::vector<float> x(8);
  std::ifstream(kept, std::ios::binary).read(reinterpret_cast<char*>(x.data()), 32);
  EXPECT_EQ(fs::file_size(kept), 32u);
  EXPECT_EQ(x, fill(c_, Pattern::normal, 1).values[0]);
  const auto request = nlohmann::json::parse(std::ifstream(kept + ".json"))["prepare"];
  EXPECT_EQ(request["layer"], "groupnorm");
  EXPECT_EQ(request["pass"], "forward");
  EXPECT_EQ(request["problem"], c_.text);
  EXPECT_EQ(request["search"], "all");
  EXPECT_EQ(request["kept"], "");
  EXPECT_EQ(request["tensors"][0]["shape"], (std::vector<int>{1, 1, 2, 4}));
  EXPECT_EQ(request["tensors"][3]["role"], "output");
}

TEST_F(WorkerTest, EveryBadWorkerIsOneReason) {
  const std::string hello = kHello;
  const std::string ready = hello + kPlans;
  EXPECT_EQ(complaint("exit 3"), "no Fake: the worker of Fake ended with code 3");
  EXPECT_EQ(complaint("echo 'Traceback' >&2; echo 'no module' >&2; exit 1"),
            "no Fake: the worker of Fake ended with code 1: no module");
  EXPECT_EQ(complaint("kill -9 $$"), "no Fake: the worker of Fake ended by signal 9");
  EXPECT_EQ(complaint("echo hello"), "no Fake: the worker of Fake answered 'hello'");
  EXPECT_EQ(complaint("echo '[1]'"), "no Fake: the worker of Fake answered '[1]'");
  EXPECT_EQ(complaint(R"(echo '{"error": "python3 has no module torch"}')"), "no Fake: python3 has no module torch");
  EXPECT_NE(complaint(R"(echo '{"library": 1, "empty_seconds": 1}')").find("no Fake: "), std::string::npos);
  EXPECT_EQ(complaint(hello), "the worker of Fake ended with code 0");
  EXPECT_EQ(complaint(hello + R"(read line; echo '{"error": "out of memory"}'; read line)"), "Fake: out of memory");
  EXPECT_EQ(complaint(hello + "read line; echo '{}'; read line"),
            "the worker of Fake answered what is no list of plans");
  EXPECT_EQ(complaint(hello + R"(read line; echo '{"plans": [], "heuristic": "", "makes": []}'; read line)"),
            "Fake 1.2 has no plan that runs");
  EXPECT_EQ(complaint(ready + "kill -11 $$"), "the worker of Fake ended by signal 11");
  EXPECT_EQ(complaint(ready + R"(while read line; do echo '{"error": "illegal address"}'; done)"),
            "Fake 1.2 has no plan that runs: Fake: illegal address");
  for (const char* seconds : {"0", "-1", "null", "\"quick\"", "1e999"}) {
    const std::string answer = std::string(R"(while read line; do echo '{"seconds": )") + seconds + "}'; done";
    EXPECT_NE(complaint(ready + answer), "no failure") << seconds;
  }
  EXPECT_EQ(failure_of([] { (void)Worker({.library = "Fake", .command = {"/no/such/python"}}); }),
            "no Fake: '/no/such/python' cannot be started: No such file or directory");
}

TEST_F(WorkerTest, OneThatHangsIsEndedInTime) {
  const auto start = std::chrono::steady_clock::now();
  WorkerProgram silent = fake("sleep 60 & sleep 60");
  silent.start_seconds = 0.2;
  EXPECT_EQ(failure_of([&] { (void)Worker(silent); }), "no Fake: the worker of Fake was silent for 0.2 s");
  EXPECT_EQ(complaint(std::string(kHello) + kPlans + "read line; sleep 60"), "the worker of Fake was silent for 1 s");
  EXPECT_EQ(complaint("yes x | tr -d '\\n'"), "no Fake: the worker of Fake answered more than a line can hold");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST_F(WorkerTest, AnOutputOfAnotherSizeIsRefused) {
  std::string samples = kSamples;
  samples.replace(samples.find("32"), 2, "28");
  const auto o = baseline(std::string(kHello) + kPlans + samples);
  EXPECT_EQ(failure_of([&] { o->answer(); }), "the worker of Fake wrote 28 bytes of y, which has 32");
}

TEST_F(WorkerTest, NothingIsLeftBehind) {
  fs::path folder;
  std::vector<int> pids(2);  // of the worker, which does not leave when it is told to, and of a process that it started
  {
    const Worker worker(
        fake("sleep 60 & echo $$ $! > \"$1/pids\"; " + std::string(kHello) + "read line; sleep 60; sleep 60"));
    folder = worker.folder();
    std::ifstream file(folder / "pids");
    file >> pids[0] >> pids[1];
    ASSERT_TRUE(fs::exists(folder));
  }
  EXPECT_FALSE(fs::exists(folder));
  for (const int pid : pids) {
    ASSERT_GT(pid, 0);
    EXPECT_TRUE(is_gone(pid)) << pid;
  }
}

TEST_F(WorkerTest, OneIsSharedUntilItIsLostTooOften) {
  const WorkerProgram program = fake(std::string(kHello) + "read line; exit 5");
  for (int i = 0; i < 3; ++i) {
    const auto worker = shared_worker(program);
    EXPECT_EQ(shared_worker(program), worker);
    EXPECT_EQ(failure_of([&] { (void)worker->ask({{"sample", "x"}}, 10); }), "the worker of Fake ended with code 5");
    EXPECT_EQ(failure_of([&] { (void)worker->ask({{"sample", "x"}}, 10); }), "the worker of Fake is gone");
  }
  EXPECT_EQ(failure_of([&] { (void)shared_worker(program); }), "no Fake: its worker was lost 3 times");
}

TEST_F(WorkerTest, OneThatDoesNotStartIsTriedOnce) {
  const std::string count = (fs::path(testing::TempDir()) / "ladder_worker_starts").string();
  fs::remove(count);
  const WorkerProgram program = fake("echo started >> " + count + "; exit 1");
  for (int i = 0; i < 3; ++i) EXPECT_NE(failure_of([&] { (void)shared_worker(program); }), "no failure");
  EXPECT_EQ(fs::file_size(count), std::string("started\n").size());
}

TEST(TypicalSeconds, AreTheMedianOfAFewAndOfOneWhereItIsSlow) {
  std::vector<double> left;
  const auto next = [&] {
    const double seconds = left.back();
    left.pop_back();
    return seconds;
  };
  left = {9, 1e-6, 7e-6, 2e-6, 3e-6, 4e-6};
  EXPECT_EQ(typical_seconds(next), 3e-6);
  EXPECT_EQ(left, std::vector<double>{9});
  left = {1e-6, 1e-2};
  EXPECT_EQ(typical_seconds(next), 1e-2);
  EXPECT_EQ(left, std::vector<double>{1e-6});
}

// A baseline with two plans on our stream.
class Stand : public Baseline {
 public:
  Stand(std::string name, double best, double heuristic)
      : name_(std::move(name)),
        tried_{{.name = name_ + " best", .seconds = best}, {.name = name_ + " heuristic", .seconds = heuristic}} {}
  std::string library() const override { return name_; }
  const std::vector<BaselinePlan>& tried() const override { return tried_; }
  const BaselinePlan& plan(Choice choice) const override { return tried_[choice == Choice::best ? 0 : 1]; }
  std::size_t workspace_bytes() const override { return name_.size(); }
  bool makes(const TensorSpec& output) const override { return output.name == name_; }
  std::function<void(Stream)> work(Choice choice) override {
    return [this, choice](Stream) { ran += plan(choice).name + ";"; };
  }
  void answer() override { ran += "answer;"; }

  std::string ran;

 private:
  std::string name_;
  std::vector<BaselinePlan> tried_;
};

TEST(MergedBaselines, TheFastestIsBestAndTheFirstIsTheUsersChoice) {
  std::vector<std::unique_ptr<Baseline>> both;
  both.push_back(std::make_unique<Stand>("torch", 2e-6, 3e-6));
  both.push_back(std::make_unique<Stand>("cudnn", 1e-6, 9e-6));
  auto& torch = static_cast<Stand&>(*both[0]);
  auto& cudnn = static_cast<Stand&>(*both[1]);
  const auto o = merged(std::move(both), "no third: it is ill");
  EXPECT_EQ(o->library(), "torch, cudnn");
  EXPECT_EQ(o->missing(), "no third: it is ill");
  EXPECT_EQ(o->tried().size(), 4u);
  EXPECT_EQ(o->plan(Choice::best).name, "cudnn best");
  EXPECT_EQ(o->plan(Choice::heuristic).name, "torch heuristic");
  EXPECT_EQ(o->workspace_bytes(), 5u);
  EXPECT_TRUE(o->makes({.name = "cudnn"}));
  EXPECT_FALSE(o->makes({.name = "torch"}));
  o->work(Choice::best)(nullptr);
  o->work(Choice::heuristic)(nullptr);
  o->answer();
  EXPECT_EQ(cudnn.ran, "cudnn best;answer;");
  EXPECT_EQ(torch.ran, "torch heuristic;");
  EXPECT_NE(failure_of([&] { (void)torch.sample(Choice::best); }), "no failure");
}

// Answers what the formula makes of the inputs of seed 1, the bias rounded to the dtype of y.
class RoundedBias final : public Stand {
 public:
  RoundedBias(const Case& c, const Pointers& at)
      : Stand("y", 1e-9, 1e-9), inputs(fill(c, Pattern::normal, 1)), c_(c), y_(at["y"]) {
    for (float& value : inputs["bias"]) value = round_to(c.dtype, value);
  }
  Dtype takes(const TensorSpec& input) const override {
    return declared && input.name == "bias" ? c_.dtype : input.dtype;
  }
  void answer() override {
    const std::vector<double> y = reference_outputs(c_, inputs)[0].value;
    const auto stored = encoded(c_.tensor("y"), std::vector<float>(y.begin(), y.end()));
    backend::copy_in(y_, stored.data(), stored.size());
  }

  HostTensors inputs;
  bool declared = true;

 private:
  Case c_;
  void* y_;
};

TEST(JudgedBaseline, IsHeldToTheInputsThatItTakes) {
  if (backend::unavailable()) GTEST_SKIP() << backend::unavailable();
  const Case c = pass_of<gemm::Fprop>().parse("m64 n16 k32 bias bf16");
  const ReferenceRun run = reference_run(c, Pattern::normal, 1);
  DeviceTensors tensors(c, run.inputs, 0);
  register_baseline(*c.pass, "RoundedBias", 0, [](const Case& of, const Pointers& at, const Search&, const Measure&) {
    return std::unique_ptr<Baseline>(std::make_unique<RoundedBias>(of, at));
  });
  const auto registered = make_baseline(c, tensors.pointers(), Search::heuristic, [](const auto&) { return 1.0; });
  EXPECT_EQ(judged(*registered, c, tensors, run).status, Status::pass);

  RoundedBias baseline(c, tensors.pointers());
  baseline.declared = false;
  EXPECT_EQ(judged(baseline, c, tensors, run).status, Status::fail) << "its bias is not the one that it was given";
  baseline.declared = true;
  baseline.inputs["w"][0] += 1;
  EXPECT_EQ(judged(baseline, c, tensors, run).status, Status::fail) << "what it rounds excuses no other error";
}

TEST(PytorchBaseline, IsTheScriptOfTheLayersName) {
  if (backend::unavailable()) GTEST_SKIP() << backend::unavailable();
  const auto failure = [](const char* layer) {
    Pass pass = pass_of<gemm::Wgrad>();
    pass.layer = layer;
    Case c = pass.parse("m64 n16 k32 bf16");
    c.pass = &pass;
    setenv("LADDER_PYTHON", "/bin/false", 1);
    use_pytorch_baseline(pass);
    unsetenv("LADDER_PYTHON");
    DeviceTensors tensors(c, fill(c, Pattern::normal, 1), 0);
    return failure_of(
        [&] { make_baseline(c, tensors.pointers(), Search::heuristic, [](const auto&) { return 1.0; }); });
  };
  EXPECT_EQ(failure("gemm").find("PyTorch"), std::string::npos);
  EXPECT_EQ(failure("silu").find("no PyTorch: the worker of PyTorch ended with code 1"), 0u);
}

TEST(OwnBaseline, StandsInThePlaceOfAllOthers) {
  if (backend::unavailable()) GTEST_SKIP() << backend::unavailable();
  const Case c = pass_of<gemm::Dgrad>().parse("m64 n16 k32 bf16");
  DeviceTensors tensors(c, fill(c, Pattern::normal, 1), 0);
  const auto measure = [](const auto&) { return 1.0; };
  register_baseline(*c.pass, "Stand", 0, [](const Case&, const Pointers&, const Search&, const Measure&) {
    return std::unique_ptr<Baseline>(std::make_unique<Stand>("dx", 1e-9, 1e-9));
  });
  EXPECT_NO_THROW(make_baseline(c, tensors.pointers(), Search::heuristic, measure));
  setenv("LADDER_PYTHON", "/bin/false", 1);
  use_script_baseline(*c.pass, "some/mine.py");
  unsetenv("LADDER_PYTHON");
  try {
    make_baseline(c, tensors.pointers(), Search::heuristic, measure);
    FAIL() << "a program that says nothing is no baseline";
  } catch (const Failure& error) {
    EXPECT_NE(std::string(error.what()).find("mine.py"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace ladder
