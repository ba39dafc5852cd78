// Time of a training step, by operation. Every moment from the start of the step's first kernel to the end of its last
// is attributed to exactly one operation, so that the times add up to the step's.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/kernel_records.h"
#include "train/step.h"

namespace ladder::train {

// An operation's share of a step's time. busy_us and gap_us of all operations add up to the step. NOTE: across a plain
// edge, the driver's record of a kernel begins where the preceding kernel ends, so the launch latency of 0.8 to 1.0 us
// is in busy_us (H100, driver 580: gaps of 0 ns where the blocks themselves saw 770 to 1020 ns). Across a programmatic
// edge, the record begins with the kernel's first block, so the time that this block waits is in overlap_us.
struct OperationTime {
  double busy_us = 0;     // a kernel of the operation ran, and no kernel that began earlier
  double gap_us = 0;      // nothing ran, before a kernel of the operation began
  double overlap_us = 0;  // a kernel of the operation ran beside a kernel that began earlier

  bool operator==(const OperationTime&) const = default;
};

// Interval in which a kernel or copy of an operation ran.
struct Span {
  std::size_t operation = 0;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};

// Returns each operation's share of the time of one step, whose spans are in any order.
std::vector<OperationTime> operation_times(std::vector<Span> spans, std::size_t operations);

// Splits the records of one graph into its `replays` replays. Throws Failure where a record belongs to no operation's
// node, or a node has not run exactly once per replay.
std::vector<std::vector<Span>> replays_of(const std::vector<NodeRecord>& records,
                                          const std::map<std::uint64_t, std::size_t>& operation_of,
                                          std::size_t replays);

struct StepTimes {
  struct Timed {
    const Operation* operation = nullptr;  // null: copies after the last operation
    const VersionChoice* choice = nullptr;
    int runs = 0;        // per step: one for each micro-batch
    OperationTime time;  // sum of all runs, mean over the replays
  };
  std::vector<Timed> operations;  // in the order of the step
  std::string by;                 // "kernel records", or "event marks", and why
  Graph::Edges edges;             // of the graph that was timed
};

// Times the operations of replays of the step's graph, which train on the last step's inputs, from kernel records.
// Where these fail, times them from event marks between the operations: a mark costs 1.0 to 1.5 us and prevents
// overlap.
StepTimes time_step(const Step& step, int replays);

}  // namespace ladder::train
