// The ranks of one training: a process each, with a part of every batch. One rank needs neither network nor communicator.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/communicator.h"
#include "train/world.h"

namespace ladder::train {

struct RanksOptions {
  double start_timeout_s = 600;
  double rank_timeout_s = 300;       // without a step, until the ranks ask each other for a sign of life
  bool collectives_on_host = false;  // through host memory and TCP: for tests, and for ranks that share a GPU
};

class Ranks {
 public:
  Ranks() = default;  // one rank
  // Waits for all ranks that the environment names, and chooses this rank's device. Throws UsageError or Failure.
  Ranks(const Environment& environment, const RanksOptions& options, std::string flags_digest);

  // Compares builds, flags, devices, data and promotions of all ranks. Collective; call it before the first kernel. Throws
  // Failure on every rank.
  void compare(const std::string& data_digest, const std::string& promotions);
  // Connects the communicator. Collective.
  void connect();

  int rank() const { return world_ ? world_->rank() : 0; }
  int size() const { return world_ ? world_->size() : 1; }
  bool leads() const { return rank() == 0; }                    // prints, logs, reads and writes the run's folder
  std::string hosts() const;                                    // "node1, node2", each once
  Communicator* communicator() { return communicator_.get(); }  // null: one rank

  // Returns the bytes of all ranks in their order; collective. No step may be in flight.
  std::vector<std::string> exchange(std::string bytes);
  // Returns the values of all ranks one after the other, gather() on rank 0 alone; collective. No step may be in flight.
  std::vector<float> exchange(const std::vector<float>& values);
  std::vector<float> gather(std::vector<float> values);
  // Returns rank 0's bytes; collective.
  std::string from_first(std::string bytes) { return exchange(leads() ? std::move(bytes) : std::string())[0]; }

  // Prints on rank 0.
  template <class... Args>
  void print(fmt::format_string<Args...> format, Args&&... args) const {
    if (!leads()) return;
    fmt::print(format, std::forward<Args>(args)...);
    std::fflush(stdout);
  }

  // The newest step. From the first one on, all ranks end where none follows for rank_timeout_s, unless a rank is in a Pause.
  void set_step(std::int64_t step);

  // Work of unknown length between two steps, such as a checkpoint.
  class Pause {
   public:
    explicit Pause(Ranks& ranks) : ranks_(ranks) { ranks_.set_paused(true); }
    ~Pause() { ranks_.set_paused(false); }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    Ranks& ranks_;
  };

  // Calls `body` and returns its status. Ends the process where `body` throws, where another rank has ended, or where
  // the pipe LADDER_PARENT_PIPE of `./ladder` is closed. The lowest rank alive then prints why.
  int run(std::string_view program, const std::function<int()>& body);

 private:
  bool on_host() const;  // the communicator
  void watch(std::string_view program, const std::stop_token& stopped);
  void set_paused(bool on);
  void check_progress();
  [[noreturn]] void leave(std::string_view program, const std::exception& error, int status);

  std::unique_ptr<World> world_;
  RanksOptions options_;
  std::string flags_digest_;
  std::unique_ptr<Communicator> communicator_;
  int parent_pipe_ = -1;
  std::atomic<std::int64_t> step_ = 0;
  std::atomic<bool> paused_ = false;
  std::atomic<std::chrono::steady_clock::time_point> progress_;  // of the newest step or pause
  std::optional<std::chrono::steady_clock::time_point> asked_;   // the watcher's
  std::atomic<bool> finished_ = false;                           // in order: this rank's body has returned
  std::atomic<bool> leaving_ = false;
};

// Runs `body` as a rank and returns the process's exit status.
int run_ranks(std::string_view program, const Environment& environment, const RanksOptions& options,
              const std::string& flags_digest, const std::function<int(Ranks&)>& body);

}  // namespace ladder::train
