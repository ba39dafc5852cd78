// Shared helpers of tests with files: a scratch folder, full disks, messages.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <stdexcept>
#include <string>

#include "tests/subprocess.h"

namespace ladder::test {

// Temporary folder, removed with its contents.
class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "ladder_train_XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline std::string contents(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw std::runtime_error("no file " + file.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void put(const std::filesystem::path& file, const std::string& text) {
  std::ofstream out(file, std::ios::binary);
  out << text;
  if (!out.flush()) throw std::runtime_error("cannot write " + file.string());
}

// Number of entries of a folder.
inline std::ptrdiff_t count_in(const std::filesystem::path& folder) {
  return std::distance(std::filesystem::directory_iterator(folder), {});
}

// Simulate a full disk, or a process killed in the middle of a write: run `action` in another process whose files can
// grow to `most` bytes. Exit code 1 and the message on stderr if `action` throws, else 0. With `kills` the system kills
// the process at the first byte too many; else the write fails with EFBIG.
inline Ended with_file_limit(std::size_t most, bool kills, const std::function<void()>& action) {
  return run_function([&] {
    std::signal(SIGXFSZ, kills ? SIG_DFL : SIG_IGN);
    const rlimit core{0, 0}, size{most, most};
    setrlimit(RLIMIT_CORE, &core);
    setrlimit(RLIMIT_FSIZE, &size);
    try {
      action();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s", error.what());
      return 1;
    }
    return 0;
  });
}

inline testing::AssertionResult has(const std::string& text, const std::string& words) {
  if (text.find(words) != text.npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "'" << text << "' says nothing of '" << words << "'";
}

// Returns the message of the `Error` that `action` throws, one line.
template <class Error, class Action>
std::string message_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.find('\n'), message.npos) << message;
    return message;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace ladder::test
