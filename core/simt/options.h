// In which order the emulator runs threads. A GPU promises none between two barriers, so a correct kernel computes the
// same under every schedule; a kernel with a missing barrier does not.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ladder::simt {

enum class Schedule : std::uint8_t {
  ascending,   // always the lowest warp and lane that can run
  descending,  // always the highest
  random,      // any warp, any lane
  greedy,      // a random warp, which then runs as far ahead of the others as it can
  late,  // random, but a thread that arrives at a barrier lets others run; copies, tensor cores and streams (stream.h)
         // do their work when something waits for it, the newest first
};

struct Options {
  Schedule schedule = Schedule::ascending;
  std::uint64_t seed = 1;  // of random, greedy and late; every block draws its own stream from it
  int threads = 0;         // OS threads that share a launch's blocks; 0: one for each core

  std::string str() const;  // "asc", "desc", "random:7", "greedy:7", "late:7": what set_schedule() reads

  // Sets schedule and seed from "asc", "desc", "random[:seed]", "greedy[:seed]" or "late[:seed]"; throws UsageError.
  void set_schedule(std::string_view text);
};

// The process's options; launches read them as they start. Change them only while no kernel runs. The first schedule is
// that of the environment's LADDER_SCHEDULE, else asc.
Options& options();

}  // namespace ladder::simt
