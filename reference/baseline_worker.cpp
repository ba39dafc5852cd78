#include "reference/baseline_worker.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <thread>

#include "core/backend.h"
#include "core/error.h"
#include "core/paths.h"

namespace ladder {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kLongestAnswerBytes = std::size_t{1} << 20;
constexpr int kMaxLosses = 3;

// Cut a worker's message to one line of at most kMax characters, as long as a reason may be.
std::string said(std::string_view text) {
  constexpr std::size_t kMax = 300;
  return one_line(text, kMax);
}

// Create a temporary folder, in /dev/shm if it has room for the tensors of a large case.
fs::path make_folder() {
  constexpr std::uintmax_t kRoomBytes = std::uintmax_t{4} << 30;
  std::error_code error;
  const fs::space_info memory = fs::space("/dev/shm", error);
  for (const fs::path& parent : {fs::path("/dev/shm"), fs::temp_directory_path()}) {
    if (parent == "/dev/shm" && (error || memory.available < kRoomBytes)) continue;
    std::string path = (parent / "ladder-XXXXXX").string();
    if (mkdtemp(path.data())) return path;
  }
  throw Failure(std::string("no folder for a worker's tensors: ") + std::strerror(errno));
}

std::string last_line(const fs::path& path) {
  std::ifstream file(path);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last = line;
  }
  return said(last);
}

struct SpawnSetup {
  SpawnSetup() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
  }
  ~SpawnSetup() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnSetup(const SpawnSetup&) = delete;
  SpawnSetup& operator=(const SpawnSetup&) = delete;
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
};

void write_file(const fs::path& path, const std::vector<char>& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) throw Failure(fmt::format("'{}' was not written: {}", path.string(), std::strerror(errno)));
}

std::string complaint(const json& answer) {
  const json& error = answer["error"];
  return said(error.is_string() ? error.get<std::string>() : error.dump());
}

double positive(const json& figure) {
  const double value = figure.get<double>();
  if (!(value > 0 && std::isfinite(value))) throw Failure("a time of " + figure.dump() + " s");
  return value;
}

}  // namespace

Worker::Worker(WorkerProgram program) : program_(std::move(program)), folder_(make_folder()) {
  try {
    start();
    const json hello = answer(program_.start_seconds);
    if (hello.contains("error")) throw Failure(complaint(hello));
    library_ = hello.at("library").get<std::string>();
    empty_seconds_ = positive(hello.at("empty_seconds"));
  } catch (const std::exception& error) {
    end(0);
    throw Failure(fmt::format("no {}: {}", program_.library, said(error.what())));
  }
}

Worker::~Worker() { end(program_.leave_seconds); }

void Worker::start() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw Failure(std::string("socketpair: ") + std::strerror(errno));
  }
  std::vector<std::string> words = program_.command;
  words.push_back(folder_.string());
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  SpawnSetup setup;
  posix_spawn_file_actions_adddup2(&setup.actions, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&setup.actions, ends[1], STDOUT_FILENO);
  const std::string log = (folder_ / "log").string();
  posix_spawn_file_actions_addopen(&setup.actions, STDERR_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  // A process group of its own, so that the worker's children are killed with it.
  posix_spawnattr_setflags(&setup.attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&setup.attributes, 0);
  const int error = posix_spawnp(&pid_, argv[0], &setup.actions, &setup.attributes, argv.data(), environ);
  close(ends[1]);
  socket_ = ends[0];
  if (error != 0) {
    pid_ = -1;
    throw Failure(fmt::format("'{}' cannot be started: {}", argv[0], std::strerror(error)));
  }
}

json Worker::ask(const json& request, double most_seconds) {
  if (!running()) throw Failure("the worker of " + program_.library + " is gone");
  const std::string line = request.dump() + '\n';
  for (std::size_t sent = 0; sent < line.size();) {
    const ssize_t more = send(socket_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (more < 0 && errno == EINTR) continue;
    if (more < 0) break;  // the worker is gone: answer() says why
    sent += static_cast<std::size_t>(more);
  }
  json answer = this->answer(most_seconds);
  if (answer.contains("error")) throw Failure(program_.library + ": " + complaint(answer));
  return answer;
}

json Worker::answer(double most_seconds) {
  const Clock::time_point deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(most_seconds));
  std::size_t end_of_line = 0;
  while ((end_of_line = received_.find('\n')) == std::string::npos) {
    if (received_.size() > kLongestAnswerBytes) give_up("answered more than a line can hold");
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) give_up(fmt::format("was silent for {:g} s", most_seconds));
    pollfd source{.fd = socket_, .events = POLLIN, .revents = 0};
    if (poll(&source, 1, static_cast<int>(std::min<long long>(left + 1, 1'000'000))) <= 0) continue;
    char buffer[4096];
    const ssize_t got = recv(socket_, buffer, sizeof(buffer), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) give_up("ended");
    received_.append(buffer, static_cast<std::size_t>(got));
  }
  const std::string line = received_.substr(0, end_of_line);
  received_.erase(0, end_of_line + 1);
  json answer = json::parse(line, nullptr, false);
  if (!answer.is_object()) give_up("answered '" + said(line) + "'");
  return answer;
}

void Worker::give_up(const std::string& what) {
  end(what == "ended" ? program_.leave_seconds : 0);  // a worker that ended has an exit code to wait for
  std::string reason = fmt::format("the worker of {} {}", program_.library, what);
  if (what == "ended") {
    reason += WIFSIGNALED(status_) ? fmt::format(" by signal {}", WTERMSIG(status_))
                                   : fmt::format(" with code {}", WEXITSTATUS(status_));
  }
  throw Failure(reason + log_);
}

void Worker::end(double patience_seconds) {
  if (pid_ > 0 && patience_seconds == 0) kill(-pid_, SIGKILL);  // before it can log the closed socket
  if (socket_ >= 0) close(socket_);
  socket_ = -1;
  if (pid_ > 0) {
    const Clock::time_point start = Clock::now();
    pid_t ended = 0;
    while ((ended = waitpid(pid_, &status_, WNOHANG)) == 0 &&
           std::chrono::duration<double>(Clock::now() - start).count() < patience_seconds) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    kill(-pid_, SIGKILL);
    if (ended == 0) waitpid(pid_, &status_, 0);
    pid_ = -1;
  }
  if (const std::string line = last_line(folder_ / "log"); !line.empty()) log_ = ": " + line;
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

std::shared_ptr<Worker> shared_worker(const WorkerProgram& program) {
  struct Known {
    std::shared_ptr<Worker> worker;
    std::string reason;  // why it did not start
    int starts = 0;
  };
  static std::map<std::vector<std::string>, Known> all;
  Known& known = all[program.command];
  if (known.worker && known.worker->running()) return known.worker;
  if (!known.reason.empty()) throw Failure(known.reason);
  if (known.starts == kMaxLosses) {
    throw Failure(fmt::format("no {}: its worker was lost {} times", program.library, kMaxLosses));
  }
  ++known.starts;
  known.worker.reset();
  try {
    known.worker = std::make_shared<Worker>(program);
  } catch (const Failure& error) {
    known.reason = error.what();
    throw;
  }
  return known.worker;
}

namespace {

constexpr const char* kExtents[] = {"all", "listed", "heuristic", "none"};  // indexed by Search::Extent

class WorkerBaseline final : public Baseline {
 public:
  WorkerBaseline(std::shared_ptr<Worker> worker, const Case& c, const Pointers& pointers, const Search& search)
      : worker_(std::move(worker)), case_(c) {
    for (const TensorSpec& spec : c.tensors) pointers_.push_back(pointers[spec.name]);
    try {
      const std::string kept = search.kept_plan(library());
      prepare(kept.empty() ? search.extent : Search::heuristic, kept);
    } catch (const json::exception&) {
      throw Failure("the worker of " + worker_->program().library + " answered what is no list of plans");
    }
    for (std::size_t i = 0; i < tried_.size(); ++i) rank(i);
    const auto slower = [](const BaselinePlan& a, const BaselinePlan& b) {
      return a.seconds > 0 && (b.seconds == 0 || a.seconds < b.seconds);
    };
    best_ = static_cast<std::size_t>(std::min_element(tried_.begin(), tried_.end(), slower) - tried_.begin());
    if (tried_.empty() || tried_[best_].seconds == 0) {
      throw Failure(library() + " has no plan that runs" + (tried_.empty() ? "" : ": " + tried_.front().reason));
    }
    if (tried_[heuristic_].seconds == 0) heuristic_ = best_;
  }

  std::string library() const override { return worker_->library(); }
  const std::vector<BaselinePlan>& tried() const override { return tried_; }
  const BaselinePlan& plan(Choice choice) const override { return tried_[index(choice)]; }
  std::size_t workspace_bytes() const override { return 0; }  // unknown
  bool makes(const TensorSpec& output) const override {
    return std::find(makes_.begin(), makes_.end(), output.name) != makes_.end();
  }
  std::function<void(Stream)> work(Choice) override { return {}; }
  double sample(Choice choice) override { return sample(index(choice)); }
  double empty_seconds() const override { return worker_->empty_seconds(); }

  void answer() override {
    worker_->ask({{"answer", tried_[best_].name}}, worker_->program().sample_seconds);
    for (std::size_t i = 0; i < case_.tensors.size(); ++i) {
      const TensorSpec& spec = case_.tensors[i];
      if (!spec.is_written() || !makes(spec)) continue;
      const fs::path path = file(spec);
      std::error_code error;
      const std::uintmax_t size = fs::file_size(path, error);
      if (error || size != spec.bytes()) {
        throw Failure(fmt::format("the worker of {} wrote {} bytes of {}, which has {}", worker_->program().library,
                                  error ? 0 : size, spec.name, spec.bytes()));
      }
      std::vector<char> bytes(spec.bytes());
      std::ifstream(path, std::ios::binary).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
      backend::copy_in(pointers_[i], bytes.data(), bytes.size());
      fs::remove(path, error);
    }
  }

 private:
  std::size_t index(Choice choice) const { return choice == Choice::best ? best_ : heuristic_; }
  fs::path file(const TensorSpec& spec) const { return worker_->folder() / spec.name; }

  // Send the inputs to the worker and receive its list of plans.
  void prepare(Search::Extent extent, const std::string& kept) {
    json tensors = json::array();
    for (std::size_t i = 0; i < case_.tensors.size(); ++i) {
      const TensorSpec& spec = case_.tensors[i];
      tensors.push_back({{"name", spec.name},
                         {"role", spec.role == Role::input   ? "input"
                                  : spec.role == Role::inout ? "inout"
                                                             : "output"},
                         {"dtype", ladder::name(spec.dtype)},
                         {"shape", spec.shape},
                         {"file", file(spec).string()}});
      if (!spec.is_read()) continue;
      std::vector<char> bytes(spec.bytes());
      backend::copy_out(bytes.data(), pointers_[i], bytes.size());
      write_file(file(spec), bytes);
    }
    const json answer = worker_->ask({{"prepare",
                                       {{"layer", case_.pass->layer},
                                        {"pass", case_.pass->name},
                                        {"problem", case_.text},
                                        {"search", kExtents[extent]},
                                        {"kept", kept},
                                        {"tensors", tensors}}}},
                                     worker_->program().prepare_seconds);
    for (const TensorSpec& spec : case_.tensors) {
      std::error_code ignored;
      fs::remove(file(spec), ignored);
    }
    for (const json& plan : answer.at("plans")) {
      tried_.push_back(
          {.name = plan.at("name").get<std::string>(), .reason = said(plan.at("reason").get<std::string>())});
      if (tried_.back().name == answer.at("heuristic").get<std::string>()) heuristic_ = tried_.size() - 1;
    }
    makes_ = answer.at("makes").get<std::vector<std::string>>();
  }

  double sample(std::size_t i) {
    const json answer = worker_->ask({{"sample", tried_[i].name}}, worker_->program().sample_seconds);
    try {
      return positive(answer.at("seconds"));
    } catch (const json::exception&) {
      throw Failure("the worker of " + worker_->program().library + " answered no time");
    }
  }

  void rank(std::size_t i) {
    if (!tried_[i].reason.empty()) return;
    try {
      tried_[i].seconds = typical_seconds([&] { return sample(i); });
    } catch (const Failure& error) {
      if (!worker_->running()) throw;
      tried_[i].reason = error.what();
    }
  }

  std::shared_ptr<Worker> worker_;
  Case case_;
  std::vector<void*> pointers_;
  std::vector<BaselinePlan> tried_;
  std::vector<std::string> makes_;
  std::size_t best_ = 0;
  std::size_t heuristic_ = 0;
};

WorkerProgram python_program(const std::string& library, const std::string& script) {
  const char* python = std::getenv("LADDER_PYTHON");
  return {.library = library,
          .command = {python && *python ? python : "python3",
                      (fs::path(source_dir()) / "reference" / "pytorch" / script).string()}};
}

BaselineFactory baseline_by(const WorkerProgram& program) {
  return [program](const Case& c, const Pointers& pointers, const Search& search, const Measure&) {
    return make_worker_baseline(shared_worker(program), c, pointers, search);
  };
}

}  // namespace

std::unique_ptr<Baseline> make_worker_baseline(std::shared_ptr<Worker> worker, const Case& c, const Pointers& pointers,
                                               const Search& search) {
  return std::make_unique<WorkerBaseline>(std::move(worker), c, pointers, search);
}

void use_pytorch_baseline(const Pass& pass) {
  const WorkerProgram program = python_program("PyTorch", pass.layer + ".py");
  if (fs::exists(program.command.back())) register_baseline(pass, "PyTorch", 0, baseline_by(program));
}

void use_script_baseline(const Pass& pass, const std::filesystem::path& file) {
  WorkerProgram program = python_program(file.filename().string(), "own.py");
  program.command.push_back(fs::absolute(file).string());
  replace_baselines(pass, program.library, baseline_by(program));
}

}  // namespace ladder
