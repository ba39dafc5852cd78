// The contract between versions and those who run them: plan, bind, launch; tensors that are read and overwritten, integers,
// traffic; graphs, streams and events.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <thread>

#include "core/backend.h"
#include "core/check/check.h"
#include "core/early_tensors.h"
#include "core/error.h"
#include "core/graph.h"
#include "tests/kernel/bound_twice.h"
#include "tests/kernel/toy.h"
#include "tests/repeats.h"
#include "tests/support.h"

namespace ladder {
namespace {

const Pass& pass() { return pass_of<toy::Step>(); }
const Version& version(int number) { return find_version(pass(), number); }

std::vector<std::string> names(const std::vector<Kernel>& kernels) {
  std::vector<std::string> names;
  for (const Kernel& kernel : kernels) names.push_back(kernel.name);
  return names;
}

TEST(Plans, AreListedWithTheDefaultFirst) {
  EXPECT_EQ(names(plans(version(toy::kRight), pass().parse("n64"))), std::vector<std::string>{"64 threads"});
  EXPECT_EQ(names(plans(version(toy::kRight), pass().parse("n65"))),
            (std::vector<std::string>{"128 threads", "64 threads"}));
  EXPECT_EQ(names(plans(version(toy::kForgetsW), pass().parse("n65"))), std::vector<std::string>{""});
  EXPECT_EQ(plan(version(toy::kRight), pass().parse("n65")).name, "128 threads");
  EXPECT_EQ(plan(version(toy::kRight), pass().parse("n65"), "64 threads").name, "64 threads");
  EXPECT_TRUE(plan(version(toy::kRight), pass().parse("n65")).private_workspace);
  EXPECT_FALSE(plan(version(toy::kForgetsW), pass().parse("n65")).private_workspace);
}

TEST(Plans, OneThatIsNotThereIsNamedWithThoseThatAre) {
  try {
    plan(version(toy::kRight), pass().parse("n65"), "256 threads");
    FAIL() << "there is no such plan";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("no plan '256 threads'"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("128 threads, 64 threads"), std::string::npos) << error.what();
  }
}

TEST(Plans, AVersionThatDoesNotSupportTheCaseSaysWhy) {
  Version picky = version(toy::kRight);
  picky.def.supports = [](const Case&) { return "n is odd"; };
  try {
    plan(picky, pass().parse("n65"));
    FAIL() << "it is not supported";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("cannot run 'n65 fp32': n is odd"), std::string::npos) << error.what();
  }
}

TEST(EarlyTensors, AreThoseOfTheInnermostScopeOfTheThread) {
  const int a = 0, b = 0;
  {
    const EarlyTensors outer({&a});
    EXPECT_TRUE(loads_early(&a));
    EXPECT_FALSE(loads_early(&b));
    {
      const EarlyTensors inner({&b});
      EXPECT_FALSE(loads_early(&a));
      EXPECT_TRUE(loads_early(&b));
    }
    EXPECT_TRUE(loads_early(&a));
    std::jthread([&] { EXPECT_FALSE(loads_early(&a)); });
    load_early(false);
    EXPECT_FALSE(loads_early(&a));
    load_early(true);
  }
  EXPECT_FALSE(loads_early(&a));
}

TEST(Case, CountsBytesAsItsPassSays) {
  const Case c = pass().parse("n10");
  EXPECT_EQ(c.traffic.read_bytes, 10);
  EXPECT_EQ(c.traffic.write_bytes, 20);
  const Traffic once = each_once(c.tensors);
  EXPECT_EQ(once.read_bytes, 3 * 4 * 10) << "w, g and label";
  EXPECT_EQ(once.write_bytes, 2 * 4 * 10) << "w and y";
}

TEST(Case, HasItsProblemInAnotherDtype) {
  const Case c = pass().parse("n10");
  EXPECT_FALSE(c.names_dtype);
  EXPECT_TRUE(pass().parse("n10 fp32").names_dtype);
  EXPECT_EQ(c.with_dtype(Dtype::bf16).text, "n10 bf16");
  EXPECT_EQ(c.with_dtype(Dtype::bf16).dtype, Dtype::bf16);
}

TEST(Inputs, IntegersAreDrawnFromTheirRange) {
  const HostTensors inputs = fill(pass().parse("n100000"), Pattern::normal, test::seed());
  float low = 1e9f;
  float high = -1e9f;
  for (const float label : inputs["label"]) {
    EXPECT_EQ(label, std::round(label));
    low = std::min(low, label);
    high = std::max(high, label);
  }
  EXPECT_EQ(low, -3);
  EXPECT_EQ(high, 1000);
  EXPECT_EQ(inputs["w"].size(), 100000u) << "what is overwritten begins with values, too";
  EXPECT_TRUE(inputs["y"].empty());
}

class Toy : public testing::Test {
 protected:
  void SetUp() override {
    if (const char* reason = backend::unavailable()) GTEST_SKIP() << reason;
  }
};

TEST_F(Toy, TheRightVersionPassesUnderEveryPlan) {
  for (const char* line : {"n64", "n65", "n1000"}) {
    CheckedCase c(pass().parse(line), test::seed());
    for (const Kernel& kernel : plans(version(toy::kRight), *c)) {
      const Verdict verdict = check(version(toy::kRight), c, kernel.name);
      EXPECT_EQ(verdict.status, Status::pass) << line << ", " << kernel.name << ": " << verdict.reason;
      EXPECT_EQ(verdict.errors.size(), 2u) << "w and y";
    }
  }
}

TEST_F(Toy, AnOverwrittenTensorMustBeOverwritten) {
  const Verdict verdict = check(version(toy::kForgetsW), pass().parse("n1000"), test::seed());
  EXPECT_EQ(verdict.status, Status::fail);
  EXPECT_NE(verdict.reason.find("w["), std::string::npos) << verdict.reason;
}

TEST_F(Toy, AnOutputIsNotAddedTo) {
  EXPECT_EQ(check(version(toy::kAccumulates), pass().parse("n1000"), test::seed()).status, Status::fail);
}

TEST_F(Toy, ResettingUndoesWhatALaunchOverwrote) {
  const Case c = pass().parse("n100");
  const HostTensors inputs = fill(c, Pattern::normal, test::seed());
  DeviceTensors tensors(c, inputs, 0);
  const BoundLaunch launch = plan(version(toy::kRight), c).bind(tensors.pointers(), tensors.workspace());
  EXPECT_TRUE(tensors.untouched());
  EXPECT_EQ(tensors.outputs().at(0), inputs["w"]);
  launch(backend::check_stream());
  backend::synchronize();
  EXPECT_FALSE(tensors.untouched());
  EXPECT_NE(tensors.outputs().at(0), inputs["w"]);
  tensors.reset();
  EXPECT_TRUE(tensors.untouched());
  EXPECT_EQ(tensors.outputs().at(0), inputs["w"]);
}

TEST_F(Toy, IsCapturedAndReplayed) {
  EXPECT_EQ(test::difference_between_replays(version(toy::kRight), pass().parse("n1000"), test::seed()), "");
}

// Device memory that frees itself.
struct Memory {
  explicit Memory(std::size_t bytes) : data(backend::allocate(bytes)) {}
  ~Memory() { backend::release(data); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* data;
};

class Graphs : public Toy {
 protected:
  static constexpr std::size_t kBytes = 1024;
  std::vector<unsigned char> read(const Memory& memory) const {
    std::vector<unsigned char> bytes(kBytes);
    backend::copy_out(bytes.data(), memory.data, kBytes);
    return bytes;
  }
};

TEST_F(Graphs, RecordWithoutRunningAndReplayAsOftenAsOneLikes) {
  const Memory a(kBytes);
  const Memory b(kBytes);
  backend::set_bytes(a.data, 1, kBytes);
  backend::set_bytes(b.data, 2, kBytes);
  std::vector<const void*> first, both;
  const Graph graph = Graph::capture([&](Stream stream) {
    copy_async(b.data, a.data, kBytes, stream);
    first = captured_nodes(stream);
    set_bytes_async(a.data, 7, kBytes, stream);
    both = captured_nodes(stream);
  });
  EXPECT_EQ(graph.num_nodes(), 2u);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(both.size(), 2u);
  EXPECT_EQ(std::count(both.begin(), both.end(), first[0]), 1);
  EXPECT_EQ(graph.edges().plain, backend::kind() == backend::Kind::gpu ? 1u : 0u);
  EXPECT_EQ(graph.edges().programmatic, 0u);
  EXPECT_EQ(read(b), std::vector<unsigned char>(kBytes, 2)) << "nothing has run";
  const OwnedStream stream;
  graph.replay(stream);
  stream.synchronize();
  EXPECT_EQ(read(b), std::vector<unsigned char>(kBytes, 1));
  graph.replay(stream);
  stream.synchronize();
  EXPECT_EQ(read(b), std::vector<unsigned char>(kBytes, 7));
}

TEST_F(Graphs, TakeInStreamsThatWaitForAnEvent) {
  const Memory a(kBytes);
  const Memory b(kBytes);
  backend::set_bytes(a.data, 1, kBytes);
  backend::set_bytes(b.data, 1, kBytes);
  const OwnedStream side;
  Event fork;
  Event join;
  const Graph graph = Graph::capture([&](Stream stream) {
    fork.record(stream);
    fork.hold_back(side);
    set_bytes_async(b.data, 5, kBytes, side);
    set_bytes_async(a.data, 6, kBytes, stream);
    join.record(side);
    join.hold_back(stream);
  });
  EXPECT_EQ(graph.num_nodes(), 2u);
  EXPECT_EQ(read(b), std::vector<unsigned char>(kBytes, 1));
  const OwnedStream stream;
  graph.replay(stream);
  stream.synchronize();
  EXPECT_EQ(read(a), std::vector<unsigned char>(kBytes, 6));
  EXPECT_EQ(read(b), std::vector<unsigned char>(kBytes, 5));
  // The side stream is an ordinary one again.
  set_bytes_async(b.data, 9, kBytes, side);
  side.synchronize();
  EXPECT_EQ(read(b), std::vector<unsigned char>(kBytes, 9));
}

TEST_F(Graphs, AStreamThatJoinedIsWaitedForInTheEnd) {
  const Memory a(kBytes);
  const OwnedStream side;
  Event fork;
  Event join;
  EXPECT_THROW(Graph::capture([&](Stream stream) {
                 fork.record(stream);
                 fork.hold_back(side);
                 set_bytes_async(a.data, 5, kBytes, side);
                 join.record(side);
                 join.hold_back(stream);
                 set_bytes_async(a.data, 6, kBytes, side);  // after what is waited for
               }),
               Failure);
}

// A GPU is told the most that a kernel may ask for: a second binding that asks for less must not take it away from the first.
TEST_F(Graphs, AKernelBoundAgainWithLessSharedMemoryStillRunsWithMore) {
  constexpr std::size_t kMore = 96 * 1024;
  constexpr std::size_t kLess = 64 * 1024;
  auto* const y = static_cast<float*>(backend::allocate(2 * sizeof(float)));
  backend::set_bytes(y, 0, 2 * sizeof(float));
  const BoundLaunch more = toy::bind_last_of_smem(kMore, y);
  const BoundLaunch less = toy::bind_last_of_smem(kLess, y + 1);
  const OwnedStream stream;
  more(stream);
  less(stream);
  stream.synchronize();
  float found[2];
  backend::copy_out(found, y, sizeof(found));
  backend::release(y);
  EXPECT_EQ(found[0], 1.0f);
  EXPECT_EQ(found[1], 1.0f);
}

TEST_F(Graphs, CopiesGoThroughPinnedMemory) {
  const Memory device(kBytes);
  const PinnedBuffer host(kBytes);
  const PinnedBuffer back(kBytes);
  EXPECT_EQ(host.bytes(), kBytes);
  std::fill_n(static_cast<unsigned char*>(host.data()), kBytes, static_cast<unsigned char>(3));
  const OwnedStream stream;
  Event before;
  Event after;
  before.record(stream);
  copy_in_async(device.data, host.data(), kBytes, stream);
  copy_out_async(back.data(), device.data, kBytes, stream);
  after.record(stream);
  after.synchronize();
  EXPECT_GE(after.seconds_since(before), 0);
  EXPECT_TRUE(std::equal(static_cast<unsigned char*>(back.data()), static_cast<unsigned char*>(back.data()) + kBytes,
                         static_cast<unsigned char*>(host.data())));
}

TEST_F(Graphs, AHostFunctionRunsBetweenCopies) {
  const Memory device(kBytes);
  const PinnedBuffer host(kBytes);
  auto* const bytes = static_cast<unsigned char*>(host.data());
  const auto added = std::make_shared<unsigned char>(static_cast<unsigned char>(1));
  const auto add = [&](Stream stream) {
    copy_out_async(host.data(), device.data, kBytes, stream);
    run_on_host_async([bytes, added] { std::for_each_n(bytes, kBytes, [&](unsigned char& b) { b += *added; }); },
                      stream);
    copy_in_async(device.data, host.data(), kBytes, stream);
  };
  const OwnedStream stream;
  backend::set_bytes(device.data, 1, kBytes);
  add(stream);
  stream.synchronize();
  EXPECT_EQ(read(device), std::vector<unsigned char>(kBytes, 2));
  EXPECT_EQ(added.use_count(), 1) << "a function that has run is not kept";
  const Graph graph = Graph::capture(add);
  EXPECT_EQ(graph.num_nodes(), 3u);
  EXPECT_EQ(added.use_count(), 2) << "the graph keeps its function";
  *added = 3;
  for (const unsigned char expected : {5, 8}) {
    graph.replay(stream);
    stream.synchronize();
    EXPECT_EQ(read(device), std::vector<unsigned char>(kBytes, expected));
  }
}

TEST_F(Graphs, AnExceptionEndsTheCapture) {
  EXPECT_THROW(Graph::capture([](Stream) { throw Failure("no"); }), Failure);
  const Memory a(kBytes);
  const Graph graph = Graph::capture([&](Stream stream) { set_bytes_async(a.data, 4, kBytes, stream); });
  const OwnedStream stream;
  graph.replay(stream);
  stream.synchronize();
  EXPECT_EQ(read(a), std::vector<unsigned char>(kBytes, 4));
}

TEST(Backend, DevicesAreTakenByNumber) {
  EXPECT_THROW(backend::use_device(-1), UsageError);
  EXPECT_THROW(backend::use_device(backend::num_devices()), UsageError);
  for (int number = backend::num_devices() - 1; number >= 0; --number) {  // 0 is current in the end
    backend::use_device(number);
    EXPECT_EQ(backend::current_device(), number);
    EXPECT_EQ(&backend::device(), &backend::device(number));
    void* const bytes = backend::allocate(4);
    const int written = 7 + number;
    backend::copy_in(bytes, &written, sizeof written);
    int read = 0;
    backend::peek(&read, bytes, sizeof read);
    EXPECT_EQ(read, written);
    backend::release(bytes);
  }
}

}  // namespace
}  // namespace ladder
