// Processes that are ranks of one world on this host, each forked by the test; none outlives it.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "train/world.h"

namespace ladder::train::test {

using Variables = std::map<std::string, std::string>;

inline constexpr int kLimitSeconds = 30;  // of a process; a test that hangs fails by it

inline Environment environment_of(const Variables& variables) {
  return [variables](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

// A socket of this process on the loopback interface: listening at a port, or connected to it.
inline Socket loopback_socket(int port, bool listens) {
  Socket result(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  const bool good = listens ? bind(result.fd(), generic, sizeof(address)) == 0 && listen(result.fd(), 16) == 0
                            : connect(result.fd(), generic, sizeof(address)) == 0;
  return good ? std::move(result) : Socket();
}

// Returns the first of 17 ports that nothing listens on, below those that connections get.
inline int free_ports() {
  static int next = 12000 + getpid() % 56 * 340;  // another process of tests begins 20 worlds further
  for (;; next = next < 31000 ? next + 17 : 12000) {
    bool free = true;
    for (int port = next; port < next + 17 && free; ++port) free = static_cast<bool>(loopback_socket(port, true));
    if (free) return std::exchange(next, next + 17);
  }
}

inline constexpr double kAtOnce = 5;  // seconds within which the others end

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

inline std::string exchange_once(World& world) {
  std::string text;
  for (const std::string& one : world.exchange(fmt::format("{} of {};", world.rank(), world.size()))) text += one;
  return text;
}

inline std::string exchange_for_ever(World& world) {
  for (;;) world.exchange("again");
}

// Token of this process's worlds: another process of tests may use the same ports at the same time.
inline const std::string kRun = fmt::format("test {}", getpid());

// Variables of a rank of a world on this host whose ports are port + 1 to port + 16.
inline Variables rank_variables(int rank, int size, int port) {
  return {{"RANK", std::to_string(rank)}, {"WORLD_SIZE", std::to_string(size)},  {"LOCAL_RANK", std::to_string(rank)},
          {"MASTER_ADDR", "127.0.0.1"},   {"MASTER_PORT", std::to_string(port)}, {"LADDER_RUN", kRun}};
}

// Processes, each of which says one text: the result of its function, or the error that ended it. Killed at the end.
class Processes {
 public:
  explicit Processes(int limit_seconds = kLimitSeconds) : limit_seconds_(limit_seconds) {}
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;
  ~Processes() {
    for (const pid_t pid : pids_) {
      if (pid > 0) kill(pid, SIGKILL);
      if (pid > 0) waitpid(pid, nullptr, 0);
    }
    for (const int pipe : pipes_) close(pipe);
  }

  void start(const std::function<std::string()>& function) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    std::fflush(nullptr);
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      alarm(static_cast<unsigned>(limit_seconds_));
      const std::string text = result_of(function);
      _exit(write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
    }
    close(ends[1]);
    pids_.push_back(pid);
    pipes_.push_back(ends[0]);
  }

  void start(const Variables& variables, const std::function<std::string(World&)>& function, double timeout_s = 20) {
    start([=] {
      World world(environment_of(variables), "flags", timeout_s);
      return function(world);
    });
  }

  void kill_now(int index) { kill(pids_[static_cast<std::size_t>(index)], SIGKILL); }

  // Returns the process's text, empty if a signal ended it.
  std::string said(int index) {
    const auto i = static_cast<std::size_t>(index);
    std::string text;
    char bytes[4096];
    for (ssize_t got; (got = read(pipes_[i], bytes, sizeof(bytes))) > 0;)
      text.append(bytes, static_cast<std::size_t>(got));
    waitpid(std::exchange(pids_[i], 0), nullptr, 0);
    return text;
  }

 private:
  static std::string result_of(const std::function<std::string()>& function) {
    try {
      return function();
    } catch (const RankEnded& error) {
      return fmt::format("RankEnded {}: {}", error.rank, error.what());
    } catch (const Failure& error) {
      return fmt::format("Failure: {}", error.what());
    } catch (const UsageError& error) {
      return fmt::format("UsageError: {}", error.what());
    } catch (const std::exception& error) {
      return fmt::format("exception: {}", error.what());
    }
  }

  int limit_seconds_;
  std::vector<pid_t> pids_;
  std::vector<int> pipes_;
};

}  // namespace ladder::train::test
