// The folder of a run: log.jsonl, options.json, checkpoints/, samples/. One process trains in it at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace ladder::train {

// Options that may change when an interrupted training is resumed.
struct TrainingOptions {
  std::filesystem::path data;
  std::filesystem::path out;
  std::filesystem::path initial_weights;  // safetensors; empty: PyTorch's initialisation
  bool resume = false;
  bool graph = true;
  bool branches = true;
  bool batches = true;
  bool overlap = true;  // this and the next two: of several ranks, see StepOptions
  int buckets = 3;
  std::string reduce = "fp32";
  std::string use;              // versions in place of promoted ones: "conv3x3/fprop=v07"
  std::int64_t log_every = 50;  // this and the next three: interval in steps; 0: never
  std::int64_t held_out_every = 1000;
  std::int64_t sample_every = 0;
  std::int64_t checkpoint_every = 5000;
  int keep = 3;                                          // checkpoints
  std::int64_t stop_at = 0;                              // a step to stop at, as if interrupted; 0: the last step
  std::size_t device_data_bytes = std::size_t{8} << 30;  // larger data sets are streamed from the host
};

// The options that a resumed training takes from options.json, by flag; take_options() sets those whose flag was not
// `given`, and throws UsageError where one is wrong.
nlohmann::json kept_options(const TrainingOptions& options);
void take_options(TrainingOptions& options, const nlohmann::json& kept,
                  const std::function<bool(const char* flag)>& given);

// Writes `options` to options.json of options.out, except the options that apply to one start only: out,
// initial_weights, resume, stop_at.
void save_options(const TrainingOptions& options);

// Sets each option whose flag was not `given` on the command line from options.json of options.out, if that file
// exists. Throws Failure where the file is damaged.
void recall_options(TrainingOptions& options, const std::function<bool(const char* flag)>& given);

// Lock on a run's folder, which is created if missing: no other process trains there while the lock exists.
class RunLock {
 public:
  explicit RunLock(const std::filesystem::path& run);  // throws UsageError naming the process that trains there
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int descriptor_ = -1;
};

// Log of JSON lines, each with its "step", each flushed when written.
class Log {
 public:
  // Keeps the complete lines up to step `after`. Drops a partial line left by a killed process, and lines of steps that
  // will be run again.
  Log(const std::filesystem::path& file, std::int64_t after);
  void add(const nlohmann::json& line);

 private:
  std::filesystem::path path_;
  std::ofstream out_;
};

}  // namespace ladder::train
