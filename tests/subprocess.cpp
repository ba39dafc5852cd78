#include "tests/subprocess.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <stdexcept>

namespace ladder::test {
namespace {

struct Pipe {
  Pipe() {
    if (pipe(ends.data()) != 0) throw std::runtime_error("pipe failed");
  }
  std::array<int, 2> ends{};
};

// Reads both ends as they fill, so that neither can block the child.
void read_all(std::array<pollfd, 2> sources, const std::array<std::string*, 2>& sinks) {
  int num_open = 2;
  while (num_open > 0 && poll(sources.data(), sources.size(), -1) > 0) {
    for (std::size_t i = 0; i < sources.size(); ++i) {
      if (sources[i].revents == 0) continue;
      char buffer[4096];
      const ssize_t got = read(sources[i].fd, buffer, sizeof(buffer));
      if (got > 0) {
        sinks[i]->append(buffer, static_cast<std::size_t>(got));
      } else {
        sources[i].fd = -1;  // poll() passes over it
        --num_open;
      }
    }
  }
}

}  // namespace

Ended run_function(const std::function<int()>& function) {
  std::cout.flush();
  std::fflush(nullptr);
  const Pipe out, err;
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    dup2(out.ends[1], STDOUT_FILENO);
    dup2(err.ends[1], STDERR_FILENO);
    for (const Pipe* p : {&out, &err}) {
      close(p->ends[0]);
      close(p->ends[1]);
    }
    const int code = function();
    std::cout.flush();
    std::fflush(nullptr);
    _exit(code);
  }
  close(out.ends[1]);
  close(err.ends[1]);
  Ended ended;
  read_all({pollfd{out.ends[0], POLLIN, 0}, pollfd{err.ends[0], POLLIN, 0}}, {&ended.out, &ended.err});
  close(out.ends[0]);
  close(err.ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ended;
}

Ended run_program(const std::vector<std::string>& words) {
  return run_function([&] {
    std::vector<char*> argv;
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    execvp(argv[0], argv.data());
    std::perror(argv[0]);
    return 127;
  });
}

std::string built_program(const std::string& name) {
  const std::filesystem::path self = std::filesystem::canonical("/proc/self/exe");
  return (self.parent_path().parent_path() / name).string();
}

}  // namespace ladder::test
