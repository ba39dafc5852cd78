#if defined(LADDER_ORDER)

#include "core/simt/order_cells.h"

#include <algorithm>

#include "core/simt/block.h"
#include "core/simt/memory.h"

namespace ladder::simt::order {

namespace {

constexpr unsigned kWholeCell = 0xf;

std::size_t cells_in(std::size_t bytes) { return (bytes + Cells::kCellBytes - 1) / Cells::kCellBytes; }

}  // namespace

// --- Regions

void Cells::begin_launch(bool reports_unset) {
  reports_unset_ = reports_unset;
  std::fill(std::begin(recent_), std::end(recent_), Region{});
  constexpr std::size_t kMaxCells = std::size_t{1} << 26;
  if (num_buffer_cells_ < kMaxCells) return;
  for (const auto& [begin, region] : buffers_) unmap(region.cells, cells_in(region.bytes) * sizeof(Cell));
  buffers_.clear();
  num_buffer_cells_ = 0;
}

void Cells::begin_cluster(const BlockCluster& cluster) {
  num_blocks_ = static_cast<std::size_t>(cluster.size());
  if (shared_.size() < num_blocks_) shared_.resize(num_blocks_);
  for (int rank = 0; rank < cluster.size(); ++rank) {
    Region& region = shared_[static_cast<std::size_t>(rank)];
    region.begin = reinterpret_cast<std::uintptr_t>(cluster.block(rank).shared().begin());
    region.bytes = SharedMemory::kBytes;
    region.is_shared = true;
    if (region.cells == nullptr) region.cells = static_cast<Cell*>(map_zeros(cells_in(region.bytes) * sizeof(Cell)));
  }
  num_tables_ = 0;
}

// The cells of a buffer: those of an earlier buffer at its address if they are enough.
Cells::Region& Cells::buffer_region(std::uintptr_t begin, std::size_t bytes) {
  Region& region = buffers_[begin];
  if (region.bytes >= bytes) return region;
  unmap(region.cells, cells_in(region.bytes) * sizeof(Cell));
  num_buffer_cells_ += cells_in(bytes) - cells_in(region.bytes);
  region = {.begin = begin, .bytes = bytes, .cells = static_cast<Cell*>(map_zeros(cells_in(bytes) * sizeof(Cell)))};
  return region;
}

// Returns null for memory that is neither shared nor a buffer.
const Cells::Region* Cells::region_of(std::uintptr_t address) {
  const Region& own = shared_[static_cast<std::size_t>(running().block->rank())];
  if (address - own.begin < own.bytes) return &own;
  constexpr unsigned kLogPage = 12;
  constexpr unsigned kLogGap = 30;  // buffers lie this far apart
  Region& recent = recent_[(address >> kLogPage ^ address >> kLogGap) % kRecent];
  if (address - recent.begin < recent.bytes) return recent.cells == nullptr ? nullptr : &recent;
  for (std::size_t rank = 0; rank < num_blocks_; ++rank) {
    if (address - shared_[rank].begin < shared_[rank].bytes) return &shared_[rank];
  }
  const auto [begin, bytes] = buffer_at(reinterpret_cast<const void*>(address));  // NOLINT(performance-no-int-to-ptr)
  if (begin == nullptr) {
    recent = {.begin = address >> kLogPage << kLogPage, .bytes = std::size_t{1} << kLogPage};
    return nullptr;
  }
  recent = buffer_region(reinterpret_cast<std::uintptr_t>(begin), bytes);
  return &recent;
}

// --- Accesses

const Access* Cells::note(std::uintptr_t address, std::size_t bytes, unsigned thread, Access access,
                          std::uintptr_t& raced) {
  const Region* const region = region_of(address);
  if (region == nullptr) return nullptr;
  std::uintptr_t at = address - region->begin;
  const std::uintptr_t end = std::min(at + bytes, std::uintptr_t{region->bytes});
  while (at < end) {
    const auto first = static_cast<unsigned>(at % kCellBytes);
    const auto count = static_cast<unsigned>(std::min<std::uintptr_t>(end - at, kCellBytes - first));
    access.mask = static_cast<std::uint8_t>((kWholeCell >> (kCellBytes - count)) << first);
    Cell& cell = region->cells[at / kCellBytes];
    const Access* earlier = touch(cell, thread, access, region->is_shared);
    if (reports_unset_ && earlier == nullptr && region->is_shared && unset(cell, access, at - first + region->begin)) {
      earlier = &kUnset;
    }
    if (earlier != nullptr) [[unlikely]] {
      raced = region->begin + at;
      return earlier;
    }
    at += count;
  }
  return nullptr;
}

// Returns true for a read of a cell of shared memory at `address` if some of its bytes were not written in this cluster and
// hold what they hold when a block begins. A cell that is written byte by byte may have forgotten a write.
bool Cells::unset(const Cell& cell, const Access& access, std::uintptr_t address) const {
  if (access.flags & kWrites) return false;
  unsigned unwritten = access.mask;
  for (const Access& write : cell.writes) {
    if (write.cluster == clocks_.cluster()) unwritten &= ~unsigned{write.mask};
  }
  if (unwritten == 0) [[likely]]
    return false;
  constexpr unsigned char kPoison = 0xff;
  const auto* const bytes = reinterpret_cast<const unsigned char*>(address);  // NOLINT(performance-no-int-to-ptr)
  const bool forgets = cell.writes[0].cluster == clocks_.cluster() && cell.writes[1].cluster == clocks_.cluster();
  for (unsigned i = 0; i < kCellBytes; ++i) {
    if ((unwritten >> i & 1) != 0 && bytes[i] != kPoison) return false;
  }
  return !forgets;
}

// Returns true if the cell has this very access already, with none in between.
bool Cells::noted(const Cell& cell, const Access& access, bool has_table, std::uint32_t first) const {
  const auto is_it = [&](const Access& known) {
    return known.cluster == access.cluster && known.who == access.who && known.epoch == access.epoch &&
           known.flags == access.flags && (known.mask & access.mask) == access.mask;
  };
  if (access.flags & kWrites) {
    return is_it(cell.writes[0]) && cell.reads[0].cluster < first && cell.reads[1].cluster < first && !has_table;
  }
  if (is_it(cell.reads[0]) || is_it(cell.reads[1])) return true;
  if (!has_table) return false;
  const Reader& reader = tables_[cell.table][access.who];
  return reader.epoch_mask >> 4 == access.epoch && (reader.epoch_mask & access.mask) == access.mask;
}

const Access* Cells::touch(Cell& cell, unsigned thread, const Access& access, bool is_shared) {
  const std::uint32_t first = is_shared ? clocks_.cluster() : clocks_.first_cluster();  // older accesses are over
  const bool has_table = is_shared && cell.table_cluster == first;
  if (noted(cell, access, has_table, first)) return nullptr;

  const auto races = [&](const Access& earlier) {
    if (earlier.cluster < first || (earlier.mask & access.mask) == 0) return false;
    if ((earlier.flags & access.flags & kAtomic) || (earlier.cluster == access.cluster && earlier.who == access.who)) {
      return false;
    }
    if ((access.flags & kAsync) && (earlier.flags & kWrites) && !(earlier.flags & kAsync) &&
        earlier.cluster == access.cluster) {
      return !clocks_.fenced_before(earlier.event(), thread);
    }
    return !clocks_.before(earlier.event(), thread);
  };
  for (const Access& write : cell.writes) {
    if (races(write)) [[unlikely]]
      return &write;
  }
  if (!(access.flags & kWrites)) {
    note_read(cell, thread, access, is_shared, first);
    return nullptr;
  }
  for (const Access& read : cell.reads) {
    if (races(read)) [[unlikely]]
      return &read;
  }
  if (has_table) {
    if (const Access* const read = check_table(cell, thread, access)) return read;
  }
  for (Access* known : {&cell.reads[0], &cell.reads[1], &cell.writes[0], &cell.writes[1]}) {
    known->mask &= static_cast<std::uint8_t>(~access.mask);
    if (known->mask == 0) known->cluster = 0;
  }
  if (cell.writes[0].cluster >= first) cell.writes[1] = cell.writes[0];
  cell.writes[0] = access;
  return nullptr;
}

void Cells::note_read(Cell& cell, unsigned thread, const Access& access, bool is_shared, std::uint32_t first) {
  Access* free = nullptr;
  for (Access& read : cell.reads) {
    if (read.cluster < first) {
      free = free == nullptr ? &read : free;
      continue;
    }
    // A read that is ordered before this one is covered by it: whatever is ordered after this one is after both.
    if ((read.mask & ~access.mask) == 0 && read.cluster == access.cluster &&
        (read.who == access.who || clocks_.before(read.event(), thread))) {
      read = access;
      return;
    }
  }
  if (free != nullptr) {
    *free = access;
    return;
  }
  if (!is_shared) {  // NOTE: a third concurrent reader of device memory takes the place of one of two
    cell.reads[access.epoch % 2] = access;
    return;
  }
  if (cell.table_cluster != first) {
    if (num_tables_ == tables_.size()) tables_.push_back(static_cast<Reader*>(map_zeros(kMaxAgents * sizeof(Reader))));
    cell.table = num_tables_++;
    cell.table_cluster = first;
    std::fill_n(tables_[cell.table], clocks_.num_agents(), Reader{});
  }
  tables_[cell.table][access.who] = {access.epoch << 4 | access.mask, access.place};
}

// A write to a cell whose readers are in a table, which it clears.
const Access* Cells::check_table(Cell& cell, unsigned thread, const Access& access) {
  Reader* const readers = tables_[cell.table];
  for (unsigned who = 0; who < clocks_.num_agents(); ++who) {
    Reader& reader = readers[who];
    if ((reader.epoch_mask & access.mask) == 0) continue;
    const Event read{access.cluster, reader.epoch_mask >> 4, who};
    if (who != access.who && !clocks_.before(read, thread)) [[unlikely]] {
      raced_ = {
          .cluster = read.cluster, .epoch = read.epoch, .place = reader.place, .who = static_cast<std::uint16_t>(who)};
      return &raced_;
    }
    reader.epoch_mask &= ~std::uint32_t{access.mask};
  }
  if (access.mask == kWholeCell) cell.table_cluster = 0;
  return nullptr;
}

}  // namespace ladder::simt::order

#endif
