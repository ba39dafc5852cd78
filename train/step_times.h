// Where the time of a step goes, operation by operation: of every moment from the begin of its first kernel to the end of
// its last it is said which operation it belongs to, so that the sum is the step's.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/kernel_records.h"
#include "train/step.h"

namespace ladder::train {

// Of an operation in a step. Busy and gap of all operations add up to the step. NOTE: the driver's records begin a kernel
// where the one in front of it along a plain edge ends, so the 0.8 to 1.0 us of such a launch are in busy_us (H100, driver
// 580: gaps of 0 ns where blocks themselves saw 770 to 1020); along a programmatic edge where its first block begins, so
// what it waits there is in overlap_us.
struct Share {
  double busy_us = 0;     // while a kernel of it ran and none from in front of it did
  double gap_us = 0;      // while nothing ran, before a kernel of it began
  double overlap_us = 0;  // while a kernel of it ran beside one from in front

  bool operator==(const Share&) const = default;
};

// When work of an operation ran.
struct Span {
  std::size_t operation = 0;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};

// Of one step's spans in any order, by operation.
std::vector<Share> shares_of(std::vector<Span> spans, std::size_t operations);

// The records of `replays` replays of one graph, replay by replay. Throws Failure where a record is of no operation's
// node, or a node has not run once in each replay.
std::vector<std::vector<Span>> replays_of(const std::vector<NodeRecord>& records,
                                          const std::map<std::uint64_t, std::size_t>& operation_of,
                                          std::size_t replays);

struct StepTimes {
  struct Timed {
    const Operation* operation = nullptr;  // null: copies after the last one
    const VersionChoice* choice = nullptr;
    int runs = 0;  // in a step: one for each part of a batch that is cut
    Share share;   // of all runs, mean of the replays
  };
  std::vector<Timed> operations;  // in the order of the step
  std::string by;                 // "kernel records", or "event marks", and why
  Graph::Edges edges;             // of the graph that was timed
};

// Replays the step's graph, which trains on what the last step was given, under kernel records. Where that fails, marks are
// put between the operations: they cost 1.0 to 1.5 us each and part what would overlap.
StepTimes time_step(const Step& step, int replays);

}  // namespace ladder::train
