// When each kernel, copy and fill of a replayed graph began and ended, as the driver itself records it (CUPTI's activity
// records). CUPTI is loaded when it is first asked for, so that programs start without it.
#pragma once

#include <cstdint>
#include <vector>

namespace ladder {

struct NodeRecord {
  std::uint64_t node = 0;  // KernelRecords::id_of() the node that was captured
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};

// Records while it lives. One at a time; graphs that are to be recorded are captured after it was made.
class KernelRecords {
 public:
  KernelRecords();   // throws Failure where there are none, with the reason in one line
  ~KernelRecords();  // NOLINT(performance-trivially-destructible): on a GPU it ends the recording
  KernelRecords(const KernelRecords&) = delete;
  KernelRecords& operator=(const KernelRecords&) = delete;

  std::uint64_t id_of(const void* captured_node) const;  // of one of captured_nodes(), core/graph.h
  std::vector<NodeRecord> take();                        // of all replays since the last call, which must have ended
};

}  // namespace ladder
