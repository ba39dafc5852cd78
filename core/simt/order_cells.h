// Latest accesses of every four bytes of shared and device memory. After FastTrack (Flanagan and Freund, PLDI 2009): the last
// writes, and the reads since that are not ordered among each other.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/simt/order_clocks.h"

namespace ladder::simt {

class BlockCluster;

namespace order {

enum Flags : unsigned { kWrites = 1, kAsync = 2, kAtomic = 4 };  // of an access

struct Access {
  std::uint32_t cluster = 0;  // number of the cluster; 0: none
  std::uint32_t epoch = 0;
  std::int32_t place = 0;  // see Checker
  std::uint16_t who = 0;
  std::uint8_t flags = 0;
  std::uint8_t mask = 0;  // bytes of the cell

  Event event() const { return {cluster, epoch, who}; }
};

class Cells {
 public:
  static constexpr unsigned kCellBytes = 4;

  explicit Cells(const Clocks& clocks) : clocks_(clocks) {}

  void begin_launch(bool reports_unset);
  void begin_cluster(const BlockCluster& cluster);

  // Note an access that `thread` made or issued. Returns the earlier access that nothing orders before it, whose bytes
  // begin at `raced`; null if there is none; with `reports_unset`, an Access of cluster 0 for a read of shared memory that
  // nobody wrote. Accesses outside of shared and device memory do not count.
  const Access* note(std::uintptr_t address, std::size_t bytes, unsigned thread, Access access, std::uintptr_t& raced);

 private:
  struct Cell {
    Access writes[2];
    Access reads[2];
    std::uint32_t table = 0;  // of more readers, if table_cluster is the running cluster; shared memory only
    std::uint32_t table_cluster = 0;
  };
  // An entry of a table, one for each agent.
  struct Reader {
    std::uint32_t epoch_mask = 0;  // epoch << 4 | mask
    std::int32_t place = 0;
  };
  struct Region {
    std::uintptr_t begin = 0;
    std::size_t bytes = 0;
    Cell* cells = nullptr;
    bool is_shared = false;
  };

  const Region* region_of(std::uintptr_t address);
  Region& buffer_region(std::uintptr_t begin, std::size_t bytes);
  bool noted(const Cell& cell, const Access& access, bool has_table, std::uint32_t first) const;
  const Access* touch(Cell& cell, unsigned thread, const Access& access, bool is_shared);
  void note_read(Cell& cell, unsigned thread, const Access& access, bool is_shared, std::uint32_t first);
  bool unset(const Cell& cell, const Access& access, std::uintptr_t address) const;
  const Access* check_table(Cell& cell, unsigned thread, const Access& access);

  const Clocks& clocks_;
  std::vector<Region> shared_;  // of each block of the largest cluster so far
  std::size_t num_blocks_ = 0;  // of the running cluster
  std::map<std::uintptr_t, Region> buffers_;
  std::size_t num_buffer_cells_ = 0;
  static constexpr unsigned kRecent = 256;
  Region recent_[kRecent] = {};  // buffers, and pages without one, by address
  std::vector<Reader*> tables_;
  std::uint32_t num_tables_ = 0;
  static constexpr Access kUnset{};
  bool reports_unset_ = false;
  Access raced_;  // an entry of a table, for a report
};

}  // namespace order

}  // namespace ladder::simt
