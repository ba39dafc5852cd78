// Baselines that live in a process of their own, such as Python's libraries: started once, asked in lines of JSON, and
// believed no more than a kernel. A worker that dies, hangs or talks nonsense is one clear reason, and a new one is started
// for the next case.
//
//     we                                   the worker
//                                          {"library": "PyTorch 2.11.0", "empty_seconds": 3.1e-6}, or {"error": ...}
//     {"prepare": {"layer", "pass",        {"plans": [{"name": ..., "reason": "" or why it cannot run}, ...],
//      "problem", "search", "tensors"}}     "heuristic": a name, "makes": [outputs' names]}
//     {"sample": a plan's name}            {"seconds": 1.2e-5}, one cold run
//     {"answer": a plan's name}            {} once the outputs are in their files
//
// Of a tensor: "name", "role" ("input", "output", "inout"), "dtype", "shape" and "file", which holds its elements as they are
// stored. Where the worker cannot do what it was asked, it answers {"error": one line} and goes on. Its last argument is
// the folder of those files; it ends, and removes the folder, when nobody is there to ask it.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "reference/baseline.h"

namespace ladder {

struct WorkerProgram {
  std::string library;               // "PyTorch": whom a complaint names
  std::vector<std::string> command;  // the program is looked up in PATH
  double start_seconds = 180;        // for how long it may be silent, at most
  double prepare_seconds = 900;
  double sample_seconds = 60;
  double leave_seconds = 5;  // to end by itself when it is no longer asked
};

class Worker {
 public:
  explicit Worker(WorkerProgram program);  // starts it and hears its first line; throws Failure
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Its answer, an object without "error". Throws Failure; unless it said itself what is wrong, the worker is then ended.
  nlohmann::json ask(const nlohmann::json& request, double most_seconds);

  bool running() const { return pid_ > 0; }
  const WorkerProgram& program() const { return program_; }
  const std::filesystem::path& folder() const { return folder_; }
  const std::string& library() const { return library_; }  // with its version
  double empty_seconds() const { return empty_seconds_; }

 private:
  void start();
  nlohmann::json answer(double most_seconds);  // which may be an "error"
  [[noreturn]] void give_up(const std::string& what);
  void end(double patience_seconds);

  WorkerProgram program_;
  std::filesystem::path folder_;
  std::string library_;
  double empty_seconds_ = 0;
  int socket_ = -1;
  int pid_ = -1;
  int status_ = 0;        // as waitpid() had it
  std::string received_;  // what came after the latest line
  std::string log_;       // the last line of its complaints, once it has ended
};

// The worker of this program, shared by all cases; started where none is running. Throws Failure, and the same again
// without another try once it did not start, or was lost three times.
std::shared_ptr<Worker> shared_worker(const WorkerProgram& program);

// The worker's plans for a case, those that run ranked by its own timer. Throws Failure if none does.
std::unique_ptr<Baseline> make_worker_baseline(std::shared_ptr<Worker> worker, const Case& c, const Pointers& pointers,
                                               const Search& search);

// The functions of a Python file in the place of the pass's baselines: reference/pytorch/own.py says how it is written.
void use_script_baseline(const Pass& pass, const std::filesystem::path& file);

// Registers reference/pytorch/<layer>.py of the pass's layer as its baseline PyTorch, where there is such a file. It is run by
// python3, or by the interpreter that LADDER_PYTHON names.
void use_pytorch_baseline(const Pass& pass);

}  // namespace ladder
