// wgmma, as wgmma.h documents it. A warpgroup's multiplications are a queue; each warp keeps its own counts of
// multiplications issued, committed and waited for.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/simt/block.h"
#include "core/simt/order.h"
#include "core/simt/wgmma_multiply.h"

namespace ladder::simt {

using detail::Wgmma;

namespace {

constexpr int kWarps = 4;  // of a warpgroup
constexpr int kWarpRows = 16;
constexpr std::uint32_t kPoison = 0xffffffffu;
constexpr std::uint32_t kStepBytes = 32;  // of a row, in one multiplication
constexpr std::uint32_t kRunBytes = 16;

std::uint32_t start_of(std::uint64_t descriptor) { return static_cast<std::uint32_t>(descriptor & 0x3fff) << 4; }
std::uint32_t stride_of(std::uint64_t descriptor) { return static_cast<std::uint32_t>(descriptor >> 32 & 0x3fff) << 4; }
std::uint32_t chunk_stride_of(std::uint64_t descriptor) {
  return static_cast<std::uint32_t>(descriptor >> 16 & 0x3fff) << 4;
}

// Swizzle code of a descriptor: 1 for rows of 128 bytes, 2 for rows of 64.
constexpr std::uint64_t swizzle_code(int row_bytes) { return row_bytes == 128 ? 1 : 2; }
std::uint32_t row_bytes_of(std::uint64_t descriptor) { return descriptor >> 62 == 1 ? 128 : 64; }
std::uint32_t swizzle(std::uint64_t descriptor, std::uint32_t address) {
  return row_bytes_of(descriptor) == 128 ? swizzle_128(address) : swizzle_64(address);
}

// Shared address of row `row` of a K-major operand, before the swizzle.
std::uint32_t row_address(std::uint64_t descriptor, int row) {
  return start_of(descriptor) + static_cast<std::uint32_t>(row / 8) * stride_of(descriptor) +
         static_cast<std::uint32_t>(row % 8) * row_bytes_of(descriptor);
}

// Shared address of the memory row that holds `k` of chunk `chunk` of an MN-major operand, before the swizzle. The
// elements of one k lie side by side, one chunk per memory row.
constexpr int kDepth = 16;
int chunk_rows_of(std::uint64_t descriptor) { return static_cast<int>(row_bytes_of(descriptor) / 2); }
std::uint32_t line_address(std::uint64_t descriptor, int k, int chunk) {
  return start_of(descriptor) + static_cast<std::uint32_t>(k / 8) * stride_of(descriptor) +
         static_cast<std::uint32_t>(k % 8) * row_bytes_of(descriptor) +
         static_cast<std::uint32_t>(chunk) * chunk_stride_of(descriptor);
}

// Call f(shared address, row, k) for every run of eight rows of one k, rows first_row to first_row + rows - 1.
template <class F>
void for_each_mn_run(std::uint64_t descriptor, int first_row, int rows, F f) {
  for (int k = 0; k < kDepth; ++k) {
    for (int row = first_row; row < first_row + rows; row += 8) {
      const int chunk_rows = chunk_rows_of(descriptor);
      const auto offset = static_cast<std::uint32_t>(row % chunk_rows) * 2;
      f(swizzle(descriptor, line_address(descriptor, k, row / chunk_rows) + offset), row, k);
    }
  }
}

bool poisoned(const float* registers, int count) {
  return std::all_of(registers, registers + count,
                     [](const float& x) { return std::bit_cast<std::uint32_t>(x) == kPoison; });
}

}  // namespace

// A warp's 16 rows of an accumulator in flight, while its registers hold poison.
struct TensorCores::Slice {
  float* lanes[detail::kWarpSize];
  int n;
  int unfinished;  // multiplications that the warp has not waited for
  float values[kWarpRows * 256];

  // Call f(register of a lane, element that it holds), in the layout of dev/ptx/wgmma.h.
  template <class F>
  void for_each(F f) {
    for (int lane = 0; lane < detail::kWarpSize; ++lane) {
      for (int i = 0; i < n / 2; ++i) {
        const int row = lane / 4 + i / 2 % 2 * 8;
        const int column = i / 4 * 8 + lane % 4 * 2 + i % 2;
        f(lanes[lane][i], values[row * n + column]);
      }
    }
  }
};

struct TensorCores::Multiplication {
  Wgmma operands;
  std::uint64_t wgmma_group;
  int num_warps = 0;  // that have issued it
  Slice* slices[kWarps] = {};
  const std::uint32_t* a_registers[kWarps][detail::kWarpSize] = {};
};

struct TensorCores::WarpQueue {
  std::uint64_t num_issued = 0;
  std::uint64_t num_waited = 0;  // finished multiplications that it has waited for
  std::uint64_t goal = 0;        // of the current wait
  std::uint64_t num_groups = 0;
  std::deque<std::uint64_t> group_ends;  // of each group that is committed and not waited for, in multiplications
  bool fenced = false;                   // since the last wait
  std::vector<std::unique_ptr<Slice>> in_flight;
  std::vector<std::unique_ptr<Slice>> finished;  // kept for their memory, and to detect changed registers
};

struct TensorCores::Warpgroup {
  std::deque<Multiplication> queue;
  std::uint64_t first = 0;     // the number of queue.front()
  std::uint64_t executed = 0;  // multiplications computed
  WarpQueue warps[kWarps];
};

TensorCores::TensorCores(Block& block) : block_(block), groups_(new Warpgroup[kMaxWarpgroups]) {}
TensorCores::~TensorCores() = default;

void TensorCores::begin_block(int num_threads) {
  num_threads_ = num_threads;
  for (int g = 0; g < kMaxWarpgroups; ++g) {
    Warpgroup& group = groups_[g];
    group.queue.clear();
    group.first = group.executed = 0;
    for (WarpQueue& warp : group.warps) {
      warp.num_issued = warp.num_waited = warp.goal = warp.num_groups = 0;
      warp.group_ends.clear();
      warp.fenced = false;
      for (auto& slice : warp.in_flight) warp.finished.push_back(std::move(slice));
      warp.in_flight.clear();
      for (auto& slice : warp.finished) slice->lanes[0] = nullptr;
    }
  }
}

TensorCores::Warpgroup& TensorCores::own_group(Where where) {
  const int g = block_.thread() / (kWarps * detail::kWarpSize);
  if ((g + 1) * kWarps * detail::kWarpSize > num_threads_) {
    block_.fault("wgmma: needs a warpgroup, four whole warps of which the first one's index is divisible by four",
                 where);
  }
  return groups_[g];
}

TensorCores::WarpQueue& TensorCores::own_queue(Where where) {
  return own_group(where).warps[block_.thread() / detail::kWarpSize % kWarps];
}

void TensorCores::check_operand(std::uint64_t descriptor, bool mn_major, int rows, const char* name,
                                Where where) const {
  const std::uint64_t code = descriptor >> 62;
  if ((code != swizzle_code(128) && code != swizzle_code(64)) || (descriptor >> 49 & 7) != 0) {
    block_.fault(fmt::format("wgmma: operand {} has no descriptor of a 128-byte or 64-byte swizzled tile", name),
                 where);
  }
  const std::uint32_t row_bytes = row_bytes_of(descriptor);
  auto check_line = [&](std::uint32_t address, int row) {
    if (!block_.in_dynamic(block_.shared().dynamic() + address / row_bytes * row_bytes, row_bytes)) {
      block_.fault(
          fmt::format("wgmma: row {} of operand {} is not within the block's dynamic shared memory", row, name), where);
    }
  };
  if (mn_major) {
    if (start_of(descriptor) % row_bytes != 0) {
      block_.fault(fmt::format("wgmma: MN-major operand {} starts {} bytes into a {}-byte row", name,
                               start_of(descriptor) % row_bytes, row_bytes),
                   where);
    }
    const int chunk_rows = chunk_rows_of(descriptor);
    for (int row = 0; row < rows; row += chunk_rows) {
      for (int k = 7; k < kDepth; k += 8) check_line(line_address(descriptor, k, row / chunk_rows), row);
    }
    return;
  }
  if (start_of(descriptor) % kStepBytes != 0) {
    block_.fault(fmt::format("wgmma: operand {} starts {} bytes into its {}-byte row; it must be a multiple of 32",
                             name, start_of(descriptor) % row_bytes, row_bytes),
                 where);
  }
  for (int row = 7; row < rows; row += 8) check_line(row_address(descriptor, row), row);
}

// Note reads for order.h: a warp reads its own rows of A and all of B, and is done when it has waited.
void TensorCores::note_reads(const Wgmma& operands) {
  if constexpr (!order::kChecked) return;
  const int warp = block_.thread() / detail::kWarpSize;
  const order::Agent agent = order::multiplication(block_, warp / kWarps, own_queue(operands.where).num_issued);
  if (!operands.a_registers) {
    note_reads(agent, operands.a_mn_major, operands.a, warp % kWarps * kWarpRows, kWarpRows, operands.where);
  }
  note_reads(agent, operands.b_mn_major, operands.b, 0, operands.n, operands.where);
}

void TensorCores::note_reads(order::Agent agent, bool mn_major, std::uint64_t descriptor, int first_row, int rows,
                             Where where) const {
  const unsigned char* const shared = block_.shared().dynamic();
  if (mn_major) {
    for_each_mn_run(descriptor, first_row, rows, [&](std::uint32_t address, int, int) {
      order::async_read(agent, shared + address, kRunBytes, where);
    });
    return;
  }
  for (int row = first_row; row < first_row + rows; ++row) {
    for (std::uint32_t run = 0; run < kStepBytes; run += kRunBytes) {
      order::async_read(agent, shared + swizzle(descriptor, row_address(descriptor, row) + run), kRunBytes, where);
    }
  }
}

// Move the accumulator registers into a slice: they hold the sum to add to.
std::unique_ptr<TensorCores::Slice> TensorCores::begin_slice(WarpQueue& queue,
                                                             void* const (&operands)[detail::kWarpSize]) {
  const Wgmma& first = *static_cast<const Wgmma*>(operands[0]);
  auto last = std::find_if(queue.finished.begin(), queue.finished.end(),
                           [&](const auto& slice) { return slice->lanes[0] == first.d && slice->n == first.n; });
  if (!queue.fenced) {
    bool changed = last == queue.finished.end();
    if (!changed) {
      (*last)->for_each([&](const float& resident, const float& value) {
        changed = changed || std::bit_cast<std::uint32_t>(resident) != std::bit_cast<std::uint32_t>(value);
      });
    }
    if (changed) block_.fault("wgmma: no wgmma_fence since the accumulators were written", first.where);
  }
  if (last == queue.finished.end()) {
    last = std::find_if(queue.finished.begin(), queue.finished.end(),
                        [](const auto& slice) { return slice->lanes[0] == nullptr; });
  }
  std::unique_ptr<Slice> slice;
  if (last == queue.finished.end()) {
    slice = std::make_unique<Slice>();
  } else {
    slice = std::move(*last);
    queue.finished.erase(last);
  }
  slice->n = first.n;
  slice->unfinished = 0;
  for (int lane = 0; lane < detail::kWarpSize; ++lane)
    slice->lanes[lane] = static_cast<const Wgmma*>(operands[lane])->d;
  slice->for_each([](float& resident, float& value) {
    value = resident;
    resident = std::bit_cast<float>(kPoison);
  });
  return slice;
}

void TensorCores::issue(void* const (&operands)[detail::kWarpSize]) {
  const Wgmma& issued = *static_cast<const Wgmma*>(operands[0]);
  for (void* lane : operands) {
    const Wgmma& other = *static_cast<const Wgmma*>(lane);
    if (other.a != issued.a || other.b != issued.b || other.accumulate != issued.accumulate || other.n != issued.n ||
        other.a_mn_major != issued.a_mn_major || other.b_mn_major != issued.b_mn_major ||
        !other.a_registers != !issued.a_registers) {
      block_.fault("wgmma: lanes gave different operands", issued.where);
    }
  }
  Warpgroup& group = own_group(issued.where);
  const int warp = block_.thread() / detail::kWarpSize % kWarps;
  WarpQueue& queue = group.warps[warp];

  // Check that this is the same multiplication as the other warps'.
  const std::uint64_t number = queue.num_issued;
  if (number == group.first + group.queue.size()) {
    if (!issued.a_registers) check_operand(issued.a, issued.a_mn_major, kWarps * kWarpRows, "A", issued.where);
    check_operand(issued.b, issued.b_mn_major, issued.n, "B", issued.where);
    group.queue.push_back({.operands = issued, .wgmma_group = queue.num_groups});
  }
  Multiplication& multiplication = group.queue[number - group.first];
  const Wgmma& theirs = multiplication.operands;
  if (!(issued.where == theirs.where) || issued.a != theirs.a || issued.b != theirs.b || issued.n != theirs.n ||
      issued.format != theirs.format || issued.a_mn_major != theirs.a_mn_major ||
      issued.b_mn_major != theirs.b_mn_major || issued.accumulate != theirs.accumulate ||
      queue.num_groups != multiplication.wgmma_group) {
    block_.fault(
        fmt::format("wgmma: another warp of the warpgroup has a different multiplication in its place, at {}:{}",
                    theirs.where.file, theirs.where.line),
        issued.where);
  }

  if (issued.a_registers) {
    if (!queue.fenced) block_.fault("wgmma: A is in registers, and no wgmma_fence since the last wait", issued.where);
    for (int lane = 0; lane < detail::kWarpSize; ++lane) {
      multiplication.a_registers[warp][lane] = static_cast<const Wgmma*>(operands[lane])->a_registers;
    }
  }

  // Find or begin the slice of the warp's rows.
  auto slice = std::find_if(queue.in_flight.begin(), queue.in_flight.end(),
                            [&](const auto& candidate) { return candidate->lanes[0] == issued.d; });
  if (slice == queue.in_flight.end()) {
    queue.in_flight.push_back(begin_slice(queue, operands));
    slice = queue.in_flight.end() - 1;
  } else {
    if ((*slice)->n != issued.n) block_.fault("wgmma: accumulators of another width are in flight here", issued.where);
    for (const float* lane : (*slice)->lanes) {
      if (!poisoned(lane, issued.n / 2)) block_.fault("wgmma: accumulators were written while in flight", issued.where);
    }
  }
  ++(*slice)->unfinished;
  multiplication.slices[warp] = slice->get();
  ++multiplication.num_warps;
  ++queue.num_issued;

  if (multiplication.num_warps == kWarps) {
    const Schedule schedule = block_.options().schedule;
    const bool early =
        schedule == Schedule::ascending ||
        ((schedule == Schedule::random || schedule == Schedule::greedy) && block_.random().next() % 2 == 0);
    if (early) execute_until(group, number + 1);
    block_.wake(&group);
  }
}

void TensorCores::execute_until(Warpgroup& group, std::uint64_t end) {
  const unsigned char* const shared = block_.shared().dynamic();
  for (; group.executed < end; ++group.executed) {
    const Multiplication& multiplication = group.queue[group.executed - group.first];
    const Wgmma& operands = multiplication.operands;
    auto gather = [&](std::uint64_t descriptor, bool mn_major, int rows, detail::WgmmaRow* to) {
      if (mn_major) {
        for_each_mn_run(descriptor, 0, rows, [&](std::uint32_t address, int row, int k) {
          for (int i = 0; i < 8; ++i) std::memcpy(to[row + i].bytes + 2 * k, shared + address + 2 * i, 2);
        });
        return;
      }
      for (int row = 0; row < rows; ++row) {
        for (std::uint32_t run = 0; run < kStepBytes; run += kRunBytes) {
          std::memcpy(to[row].bytes + run, shared + swizzle(descriptor, row_address(descriptor, row) + run), kRunBytes);
        }
      }
    };
    detail::WgmmaRow a[kWarps * kWarpRows];
    detail::WgmmaRow b[256];
    if (operands.a_registers) {
      // The layout of dev/ptx/wgmma.h.
      for (int row = 0; row < kWarps * kWarpRows; ++row) {
        for (int word = 0; word < 8; ++word) {
          const std::uint32_t* const resident = multiplication.a_registers[row / kWarpRows][row % 8 * 4 + word % 4];
          std::memcpy(a[row].bytes + 4 * word, resident + row % kWarpRows / 8 + word / 4 * 2, 4);
        }
      }
    } else {
      gather(operands.a, operands.a_mn_major, kWarps * kWarpRows, a);
    }
    gather(operands.b, operands.b_mn_major, operands.n, b);
    float* d[kWarps];
    for (int warp = 0; warp < kWarps; ++warp) d[warp] = multiplication.slices[warp]->values;
    detail::multiply_wgmma(operands.format, operands.n, a, b, operands.accumulate, d);
  }
}

void TensorCores::fence(Where where) { own_queue(where).fenced = true; }

void TensorCores::commit(Where where) {
  WarpQueue& queue = own_queue(where);
  ++queue.num_groups;
  queue.group_ends.push_back(queue.num_issued);
}

void TensorCores::begin_wait(int pending, Where where) {
  WarpQueue& queue = own_queue(where);
  queue.goal = queue.num_waited;
  for (; queue.group_ends.size() > static_cast<std::size_t>(pending); queue.group_ends.pop_front()) {
    queue.goal = queue.group_ends.front();
  }
}

// Execute and write back in the first lane to come through, for its warp.
void TensorCores::finish_wait(Where where) {
  Warpgroup& group = own_group(where);
  WarpQueue& queue = own_queue(where);
  auto issued_by_all = [&] {
    return std::all_of(group.warps, group.warps + kWarps,
                       [&](const WarpQueue& other) { return other.num_issued >= queue.goal; });
  };
  while (!issued_by_all()) block_.wait_for(&group, "wgmma_wait", where);
  order::acquire(order::multiplication(block_, static_cast<int>(&group - groups_.get()), queue.goal));
  if (queue.num_waited == queue.goal) return;
  execute_until(group, queue.goal);
  write_back(group, queue, where);
}

void TensorCores::write_back(Warpgroup& group, WarpQueue& queue, Where where) {
  const auto warp = &queue - group.warps;
  queue.fenced = false;
  for (; queue.num_waited < queue.goal; ++queue.num_waited) {
    --group.queue[queue.num_waited - group.first].slices[warp]->unfinished;
  }
  for (std::size_t i = 0; i < queue.in_flight.size();) {
    Slice& slice = *queue.in_flight[i];
    if (slice.unfinished > 0) {
      ++i;
      continue;
    }
    for (const float* lane : slice.lanes) {
      if (!poisoned(lane, slice.n / 2)) block_.fault("wgmma: accumulators were written while in flight", where);
    }
    slice.for_each([](float& resident, const float& value) { resident = value; });
    queue.finished.push_back(std::move(queue.in_flight[i]));
    queue.in_flight.erase(queue.in_flight.begin() + static_cast<std::ptrdiff_t>(i));
  }
  auto waited_by_all = [&](std::uint64_t number) {
    return std::all_of(group.warps, group.warps + kWarps,
                       [&](const WarpQueue& other) { return other.num_waited > number; });
  };
  for (; !group.queue.empty() && waited_by_all(group.first); ++group.first) group.queue.pop_front();
}

void TensorCores::check_end() const {
  for (int g = 0; g < kMaxWarpgroups; ++g) {
    for (const Multiplication& multiplication : groups_[g].queue) {
      if (multiplication.num_warps < kWarps) {
        block_.fault(fmt::format("wgmma: only {} of warpgroup {}'s four warps took part", multiplication.num_warps, g),
                     multiplication.operands.where, g * kWarps * detail::kWarpSize);
      }
    }
  }
}

// --- Calls of the running thread

namespace detail {

namespace {

TensorCores& tensor_cores() { return active("wgmma", {}).hopper().tensor_cores; }

void complete_wgmma(void* const (&operands)[kWarpSize], unsigned mask) {
  const Wgmma& issued = *static_cast<const Wgmma*>(operands[0]);
  if (mask != kFullMask) fault("wgmma: needs all 32 lanes of the warp", issued.where);
  tensor_cores().issue(operands);
  tensor_cores().note_reads(issued);
}
void complete_fence(void* const (&operands)[kWarpSize], unsigned) {
  tensor_cores().fence(*static_cast<const Where*>(operands[0]));
}
void complete_commit(void* const (&operands)[kWarpSize], unsigned) {
  tensor_cores().commit(*static_cast<const Where*>(operands[0]));
}

struct Wait {
  int pending;
  Where where;
};
void complete_wait(void* const (&operands)[kWarpSize], unsigned) {
  const Wait& wait = *static_cast<const Wait*>(operands[0]);
  tensor_cores().begin_wait(wait.pending, wait.where);
}

constexpr Collective kWgmma{"wgmma", true, false, complete_wgmma};
constexpr Collective kFence{"wgmma_fence", true, false, complete_fence};
constexpr Collective kCommit{"wgmma_commit", true, false, complete_commit};
constexpr Collective kWait{"wgmma_wait", true, false, complete_wait};

}  // namespace

void issue_wgmma(Wgmma& operands) { join(kWgmma, kFullMask, &operands, operands.where); }

}  // namespace detail

namespace {

std::uint64_t describe(const void* shared, unsigned group_stride, unsigned chunk_stride, int row_bytes, Where where) {
  Block& block = detail::active("wgmma_descriptor", where);
  detail::check_aligned(shared, 16, "wgmma_descriptor: start is not aligned to 16 bytes", where);
  if (!block.in_dynamic(shared, 16)) {
    block.fault("wgmma_descriptor: start is not within the block's dynamic shared memory", where);
  }
  for (const unsigned stride : {group_stride, chunk_stride}) {
    if (stride % 16 != 0 || stride >> 18 != 0) {
      block.fault(fmt::format("wgmma_descriptor: a stride of {} bytes; multiples of 16 below 2^18 are allowed", stride),
                  where);
    }
  }
  const auto start = static_cast<std::uint64_t>(static_cast<const unsigned char*>(shared) - block.shared().dynamic());
  return swizzle_code(row_bytes) << 62 | std::uint64_t{group_stride >> 4} << 32 |
         std::uint64_t{chunk_stride >> 4} << 16 | start >> 4;
}

}  // namespace

std::uint64_t wgmma_descriptor(const void* shared, unsigned group_stride, int row_bytes, Where where) {
  constexpr unsigned kChunkIgnored = 16;
  return describe(shared, group_stride, kChunkIgnored, row_bytes, where);
}
std::uint64_t wgmma_descriptor_mn(const void* shared, unsigned group_stride, unsigned chunk_stride, int row_bytes,
                                  Where where) {
  return describe(shared, group_stride, chunk_stride, row_bytes, where);
}

void fence_proxy_async() { order::fence_proxy_async(); }
void wgmma_fence(Where where) { detail::join(detail::kFence, detail::kFullMask, &where, where); }
void wgmma_commit(Where where) { detail::join(detail::kCommit, detail::kFullMask, &where, where); }
void wgmma_wait(int pending, Where where) {
  detail::Wait wait{pending, where};
  detail::join(detail::kWait, detail::kFullMask, &wait, where);
  detail::tensor_cores().finish_wait(where);
}

}  // namespace ladder::simt
