#include "bench/untrusted/remote.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <iterator>
#include <utility>

#include "core/error.h"

namespace ladder {
namespace {

using nlohmann::json;

constexpr std::size_t kMostWords = 400;
constexpr int kPipeBytes = 1 << 20;

// Text on how the candidate's process ended. A shell and bubblewrap exit with 128 + the signal that ended their child.
std::string ending(int status) {
  constexpr int kSignalled = 128;
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : kSignalled + WTERMSIG(status);
  return code > kSignalled ? fmt::format("its process was ended by {}", strsignal(code - kSignalled))
                           : fmt::format("its process ended by itself, with exit status {}", code);
}

// Text from the candidate's process, made safe to print.
std::string sentence(const json& said) {
  const auto text = said.get<std::string>();
  return text == "std::bad_alloc" ? "it asks for more memory than it may have" : one_line(text, kMostWords);
}

class RemoteKernel : public KernelUnderTest {
 public:
  RemoteKernel(Remote& remote, const Case& c, int number, int& num_kernels, bool private_workspace)
      : remote_(remote), case_(c), number_(number), num_kernels_(num_kernels), private_workspace_(private_workspace) {}
  ~RemoteKernel() override {
    try {
      ask("release");
    } catch (const std::exception&) {  // the process is gone, and the kernel with it
    }
  }

  std::unique_ptr<KernelUnderTest> another() override {
    const int number = num_kernels_++;
    ask("another", {{"as", number}});
    return std::make_unique<RemoteKernel>(remote_, case_, number, num_kernels_, private_workspace_);
  }
  bool private_workspace() const override { return private_workspace_; }

  void refill(const HostTensors& inputs) override { ask("refill", {}, flat_inputs(case_, inputs)); }
  void reset(Contents outputs, Contents workspace) override {
    ask("reset", {{"outputs", outputs}, {"workspace", workspace}});
  }
  std::vector<std::vector<float>> outputs() override {
    return unpacked_outputs(case_, ask("outputs", {}, {}, num_output_values(case_)).values);
  }
  std::string damage() override { return words("damage", "damage"); }
  std::uint64_t workspace_digest() override { return ask("workspace_digest").head.at("digest"); }
  std::string launch(int times) override { return words("launch", "fault", {{"times", times}}); }
  std::string launch_held() override { return words("launch_held", "fault"); }
  std::string launch_before_inputs() override { return words("launch_before_inputs", "fault"); }

 private:
  Frame ask(const char* op, json request = json::object(), const std::vector<float>& values = {},
            std::size_t most_values = 0) {
    request["op"] = op;
    request["kernel"] = number_;
    return remote_.ask(request, values, most_values);
  }

  std::string words(const char* op, const char* field, json request = json::object()) {
    return sentence(ask(op, std::move(request)).head.at(field));
  }

  Remote& remote_;
  const Case& case_;
  int number_;
  int& num_kernels_;
  bool private_workspace_;
};

}  // namespace

Remote::Remote(std::vector<std::string> command, double seconds)
    : seconds_(seconds), errors_(std::tmpfile(), std::fclose) {
  std::signal(SIGPIPE, SIG_IGN);
  int to[2];
  int from[2];
  if (!errors_ || pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) throw Failure("no pipes for a candidate");
  for (const int pipe : {to[0], from[0]}) fcntl(pipe, F_SETPIPE_SZ, kPipeBytes);  // may fail: it is for speed alone
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) throw Failure("no process for a candidate");
  if (pid_ == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    // Move both pipes above descriptors 3 and 4, which dup2() overwrites below.
    const int in = fcntl(to[0], F_DUPFD, 10);
    const int out = fcntl(from[1], F_DUPFD, 10);
    const int nothing = open("/dev/null", O_RDWR);
    dup2(nothing, STDIN_FILENO);
    dup2(nothing, STDOUT_FILENO);
    dup2(fileno(errors_.get()), STDERR_FILENO);
    dup2(in, 3);
    dup2(out, 4);
    for (const int descriptor : {in, out}) close(descriptor);
    if (nothing > 4) close(nothing);
    std::vector<char*> argv(command.size() + 1, nullptr);
    for (std::size_t i = 0; i < command.size(); ++i) argv[i] = command[i].data();
    execvp(argv[0], argv.data());
    _exit(127);
  }
  setpgid(pid_, pid_);
  close(to[0]);
  close(from[1]);
  pipes_[0] = from[0];
  pipes_[1] = to[1];
  channel_ = std::make_unique<Channel>(pipes_[0], pipes_[1], seconds);
}

Remote::~Remote() {
  kill(-pid_, SIGKILL);
  if (gone_.empty()) waitpid(pid_, nullptr, 0);
  for (const int pipe : pipes_) close(pipe);
}

Frame Remote::ask(const json& request, const std::vector<float>& values, std::size_t most_values) {
  if (!gone_.empty()) throw Failure(gone_);
  std::string operation = request.at("op");
  try {
    channel_->send(request, values);
    if (std::optional<Frame> answer = channel_->receive(most_values)) {
      const auto error = answer->head.find("error");
      if (error == answer->head.end()) return std::move(*answer);
      throw UsageError(sentence(*error));  // the candidate threw; its process goes on
    }
    gone_ = "ended";
  } catch (const UsageError& error) {
    throw Failure(error.what());
  } catch (const Late&) {
    gone_ = fmt::format("it was still busy after {:g} s, at {}, and was ended", seconds_, operation);
  } catch (const Failure& error) {
    gone_ = error.what();
  } catch (const json::exception&) {
    gone_ = "it does not keep to the protocol";
  }
  const bool by_itself = gone_ == "ended" || gone_ == "it reads no more";
  if (!by_itself) kill(-pid_, SIGKILL);
  int status = 0;
  siginfo_t info{};
  // Wait up to 1 s for the process to exit: it may have closed its pipes and still be running.
  const auto runs = [&] { return waitid(P_PID, pid_, &info, WEXITED | WNOHANG | WNOWAIT), info.si_pid == 0; };
  for (int i = 0; by_itself && i < 100 && runs(); ++i) usleep(10'000);
  kill(-pid_, SIGKILL);
  waitpid(pid_, &status, 0);
  if (by_itself) gone_ = fmt::format("{}, at {}{}", ending(status), operation, last_words());
  throw Failure(gone_);
}

std::string Remote::last_words() {
  constexpr long kMost = 4096;
  std::fseek(errors_.get(), 0, SEEK_END);
  const long size = std::ftell(errors_.get());
  std::fseek(errors_.get(), std::max(0L, size - kMost), SEEK_SET);
  std::string text(kMost, '\0');
  text.resize(std::fread(text.data(), 1, kMost, errors_.get()));
  const std::string line = one_line(text, kMostWords);
  return line.empty() ? "" : ": " + line;
}

std::unique_ptr<KernelUnderTest> Remote::bind(const Case& c, const std::string& plan) {
  const int number = num_kernels_++;
  const Frame answer = ask({{"op", "bind"}, {"as", number}, {"plan", plan}});
  return std::make_unique<RemoteKernel>(*this, c, number, num_kernels_, answer.head.value("private_workspace", false));
}

std::vector<float> flat_inputs(const Case& c, const HostTensors& inputs) {
  std::vector<float> values;
  for (std::size_t i = 0; i < c.tensors.size(); ++i) {
    if (c.tensors[i].is_read()) values.insert(values.end(), inputs.values[i].begin(), inputs.values[i].end());
  }
  return values;
}

std::size_t num_output_values(const Case& c) {
  std::size_t count = 0;
  for (const TensorSpec* spec : written(c.tensors)) count += spec->elements();
  return count;
}

std::vector<std::vector<float>> unpacked_outputs(const Case& c, const std::vector<float>& values) {
  if (values.size() != num_output_values(c)) throw Failure("it hands over outputs of another size");
  std::vector<std::vector<float>> outputs;
  auto begin = values.begin();
  for (const TensorSpec* spec : written(c.tensors)) {
    const auto end = begin + static_cast<std::ptrdiff_t>(spec->elements());
    outputs.emplace_back(begin, end);
    begin = end;
  }
  return outputs;
}

}  // namespace ladder
