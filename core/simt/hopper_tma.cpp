// The Tensor Memory Accelerator, as tma.h documents it, and the asynchronous stores of cluster.h.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/early_tensors.h"
#include "core/error.h"
#include "core/simt/block.h"
#include "core/simt/cluster.h"
#include "core/simt/order.h"
#include "core/simt/sanitizer.h"

namespace ladder::simt {

namespace {

constexpr int kPoison = 0xff;
constexpr unsigned kRunBytes = 16;      // what the swizzle moves as one
constexpr unsigned kMaxRowBytes = 128;  // of a box, with this swizzle

}  // namespace

TensorMap make_tensor_map(Dtype dtype, const void* base, std::initializer_list<std::uint64_t> dims,
                          std::initializer_list<std::uint32_t> box) {
  auto refuse = [](const std::string& what) { throw Failure("tensor map refused: " + what); };
  constexpr std::uint64_t kMaxExtent = std::uint64_t{1} << 32;
  constexpr std::uint64_t kMaxStride = std::uint64_t{1} << 40;
  constexpr std::uint32_t kMaxBox = 256;

  TensorMap map;
  map.base = static_cast<const unsigned char*>(base);
  map.element_bytes = static_cast<unsigned>(size_of(dtype));
  map.rank = static_cast<unsigned>(dims.size());
  if (map.rank == 0 || map.rank > TensorMap::kMaxDims) {
    refuse(fmt::format("{} dimensions; 1 to {} are allowed", map.rank, TensorMap::kMaxDims));
  }
  if (box.size() != dims.size()) refuse(fmt::format("a box of {} dimensions for a tensor of {}", box.size(), map.rank));
  if (reinterpret_cast<std::uintptr_t>(base) % 16 != 0 || base == nullptr) {
    refuse("the tensor's address is not a multiple of 16");
  }
  std::uint64_t stride = map.element_bytes;
  for (unsigned i = 0; i < map.rank; ++i) {
    map.dims[i] = dims.begin()[i];
    map.box[i] = box.begin()[i];
    if (map.dims[i] == 0 || map.dims[i] > kMaxExtent) {
      refuse(fmt::format("dimension {} has {} elements; 1 to 2^32 are allowed", i, map.dims[i]));
    }
    if (map.box[i] == 0 || map.box[i] > kMaxBox) {
      refuse(fmt::format("dimension {} of the box has {} elements; 1 to {} are allowed", i, map.box[i], kMaxBox));
    }
    if (i > 0 && (stride % 16 != 0 || stride >= kMaxStride)) {
      refuse(fmt::format("dimension {} has a stride of {} bytes; multiples of 16 below 2^40 are allowed", i, stride));
    }
    stride *= map.dims[i];
  }
  const unsigned row_bytes = map.box[0] * map.element_bytes;
  if (row_bytes % kRunBytes != 0 || row_bytes > kMaxRowBytes) {
    refuse(
        fmt::format("the box's innermost dimension has {} bytes; multiples of 16 up to {} are allowed with the "
                    "128-byte swizzle",
                    row_bytes, kMaxRowBytes));
  }
  map.loads_early = loads_early(base);
  return map;
}

void tma_load(void* shared, const TensorMap& map, std::uint64_t* barrier, std::initializer_list<int> coordinates,
              Where where) {
  detail::active("tma_load", where).hopper().copies.load(shared, map, barrier, coordinates, where);
}

void tma_load_multicast(void* shared, const TensorMap& map, std::uint64_t* barrier, unsigned blocks,
                        std::initializer_list<int> coordinates, Where where) {
  Block& self = detail::active("tma_load_multicast", where);
  const unsigned size = detail::current->cluster_size;
  if (blocks == 0 || blocks >> size != 0) {
    self.fault(fmt::format("tma_load_multicast: blocks {:#x} of a cluster of {}", blocks, size), where);
  }
  for (unsigned rank = 0; rank < size; ++rank) {
    if ((blocks >> rank & 1) == 0) continue;
    const auto its = [&](void* local) { return detail::map_shared(local, rank, where); };
    self.cluster()
        .block(static_cast<int>(rank))
        .hopper()
        .copies.load(its(shared), map, static_cast<std::uint64_t*>(its(barrier)), coordinates, where);
  }
}

void CopyEngine::load(void* shared, const TensorMap& map, std::uint64_t* barrier,
                      std::initializer_list<int> coordinates, Where where) {
  if (coordinates.size() != map.rank) {
    block_.fault(
        fmt::format("tma_load: {} coordinates for a tensor map of {} dimensions", coordinates.size(), map.rank), where);
  }
  if (!running().waited && !map.loads_early) {
    block_.fault("tma_load before griddepcontrol.wait: the kernel in front may not have written the tensor yet", where);
  }
  // An H200 answers this with an illegal instruction.
  if (*coordinates.begin() * static_cast<int>(map.element_bytes) % 16 != 0) {
    block_.fault(
        fmt::format("tma_load: the innermost coordinate {} is not at a multiple of 16 bytes", *coordinates.begin()),
        where);
  }
  detail::check_aligned(shared, 128, "tma_load: destination is not aligned to 128 bytes", where);
  const std::uint32_t bytes = map.box_bytes();
  const std::uint32_t lines = (bytes + kMaxRowBytes - 1) / kMaxRowBytes;  // the swizzle stays within each
  if (!block_.in_dynamic(shared, lines * kMaxRowBytes)) {
    block_.fault(
        fmt::format("tma_load: the {} bytes of the box are not within the block's dynamic shared memory", bytes),
        where);
  }
  Copy copy{.what = "tma_load",
            .map = map,
            .destination = static_cast<unsigned char*>(shared),
            .bytes = bytes,
            .barrier = barrier,
            .where = where};
  std::copy(coordinates.begin(), coordinates.end(), copy.coordinates);
  unsigned char* const base = block_.shared().dynamic();
  const auto start = static_cast<std::uint32_t>(copy.destination - base);
  const order::Agent agent = order::copy_into(block_);
  for (std::uint32_t run = 0; run < bytes; run += kRunBytes) {
    unsigned char* const to = base + swizzle_128(start + run);
    std::memset(to, kPoison, kRunBytes);
    order::async_wrote(agent, to, kRunBytes, /*generic_proxy=*/false, where);
  }
  if constexpr (order::kChecked) {
    for_each_row(copy, [&](std::uint32_t, const unsigned char* source, std::size_t, std::size_t count) {
      if (source != nullptr) order::async_read(agent, source, count, where);
    });
  }
  begin(copy, agent);
}

void CopyEngine::store(void* shared, const void* value, int bytes, std::uint64_t* barrier, Where where) {
  Copy copy{.what = "st.async",
            .destination = static_cast<unsigned char*>(shared),
            .bytes = static_cast<std::uint32_t>(bytes),
            .barrier = barrier,
            .where = where};
  std::memcpy(copy.stored, value, copy.bytes);
  const order::Agent agent = order::copy_into(block_);
  std::memset(copy.destination, kPoison, copy.bytes);
  order::async_wrote(agent, copy.destination, copy.bytes, /*generic_proxy=*/true, where);
  begin(copy, agent);
}

// Its destination is poisoned already, which whoever waits for the copy sees as well.
void CopyEngine::begin(Copy copy, order::Agent agent) {
  const bool stores = copy.map.rank == 0;  // what the thread had
  block_.hopper().mbarriers.begin_copy(copy.barrier, agent, stores, copy.what, copy.where);
  copy.deadline = draw_deadline();
  copy.by = running().block;
  copy.thread = running().index;
  in_flight_.push_back(copy);
  if (copy.deadline <= num_turns_) land_one();
}

// When a copy lands, in turns of the scheduler. Random delays are spread over magnitudes: a warp takes 32 turns to reach
// its next collective, a block 1024.
std::uint64_t CopyEngine::draw_deadline() {
  constexpr std::uint64_t kMagnitudes = 14;
  switch (block_.options().schedule) {
    case Schedule::ascending:
      return num_turns_;
    case Schedule::descending:
    case Schedule::late:
      return std::numeric_limits<std::uint64_t>::max() - num_turns_++;
    case Schedule::random:
    case Schedule::greedy:
      break;
  }
  return num_turns_ + (std::uint64_t{1} << block_.random().next() % kMagnitudes);
}

std::vector<CopyEngine::Copy>::iterator CopyEngine::next() {
  return std::min_element(in_flight_.begin(), in_flight_.end(),
                          [](const Copy& a, const Copy& b) { return a.deadline < b.deadline; });
}

bool CopyEngine::take_turn(bool idle) { return idle || next()->deadline <= ++num_turns_; }

void CopyEngine::land_one() {
  const auto which = next();
  const Copy copy = *which;
  in_flight_.erase(which);
  land(copy);
  const std::string wrong = block_.hopper().mbarriers.complete_copy(copy.barrier, copy.bytes);
  if (!wrong.empty()) copy.by->fault(wrong, copy.where, copy.thread);
}

void CopyEngine::land(const Copy& copy) {
  if (copy.map.rank > 0) {
    land_box(copy);
  } else {
    std::memcpy(copy.destination, copy.stored, copy.bytes);
  }
}

void CopyEngine::land_box(const Copy& copy) {
  block_.cluster().open_memory();
  const unsigned row_bytes = copy.map.box[0] * copy.map.element_bytes;
  unsigned char* const base = block_.shared().dynamic();
  const auto start = static_cast<std::uint32_t>(copy.destination - base);
  for_each_row(copy, [&](std::uint32_t r, const unsigned char* source, std::size_t begin, std::size_t bytes) {
    unsigned char row[kMaxRowBytes] = {};
    if (source != nullptr) {
      if (sanitizer::poisoned(source, bytes)) {
        block_.fault("tma_load: the tensor map reaches beyond the memory that it describes", copy.where, copy.thread);
      }
      std::memcpy(row + begin, source, bytes);
    }
    for (unsigned run = 0; run < row_bytes; run += kRunBytes) {
      std::memcpy(base + swizzle_128(start + r * row_bytes + run), row + run, kRunBytes);
    }
  });
}

// Calls f(row of the box, source, begin, bytes): bytes [begin, begin + bytes) of the row come from `source`, which is null
// for a row outside the tensor; the others are zeros.
template <class F>
void CopyEngine::for_each_row(const Copy& copy, F f) {
  const TensorMap& map = copy.map;
  const std::int64_t x = copy.coordinates[0];
  const std::int64_t extent = static_cast<std::int64_t>(map.dims[0]);
  const std::int64_t first = std::clamp<std::int64_t>(-x, 0, map.box[0]);
  const std::int64_t last = std::clamp<std::int64_t>(extent - x, first, map.box[0]);
  const std::size_t begin = static_cast<std::size_t>(first) * map.element_bytes;
  const std::size_t bytes = static_cast<std::size_t>(last - first) * map.element_bytes;

  const std::uint32_t num_rows = copy.bytes / (map.box[0] * map.element_bytes);
  std::uint32_t at[TensorMap::kMaxDims] = {};  // the row's place in the box
  for (std::uint32_t r = 0; r < num_rows; ++r) {
    bool inside = bytes > 0;
    std::uint64_t offset = 0;  // in elements
    std::uint64_t stride = map.dims[0];
    for (unsigned i = 1; i < map.rank; ++i) {
      const std::int64_t c = copy.coordinates[i] + at[i];
      inside = inside && c >= 0 && c < static_cast<std::int64_t>(map.dims[i]);
      offset += static_cast<std::uint64_t>(c) * stride;
      stride *= map.dims[i];
    }
    const std::uint64_t element = offset + static_cast<std::uint64_t>(x + first);
    f(r, inside ? map.base + element * map.element_bytes : nullptr, begin, bytes);
    for (unsigned i = 1; i < map.rank && ++at[i] == map.box[i]; ++i) at[i] = 0;
  }
}

void CopyEngine::check_end() const {
  if (in_flight_.empty()) return;
  const Copy& copy = in_flight_.front();
  copy.by->fault(fmt::format("{}: the block ended while the copy was in flight", copy.what), copy.where, copy.thread);
}

void st_async(void* address, const void* value, int bytes, std::uint64_t* barrier, Where where) {
  detail::check_cluster_access(address, bytes, "st.async", where);
  Block& self = detail::active("st.async", where);
  if (detail::current->cluster_size == 1)
    self.fault("st.async: the cluster has no other block, as an H200 needs it to", where);
  Block& owner = *self.cluster().owner(address);
  if (self.cluster().owner(barrier) != &owner) {
    self.fault("st.async: the mbarrier is not in the memory of the block that it stores to", where);
  }
  owner.hopper().copies.store(address, value, bytes, barrier, where);
}

}  // namespace ladder::simt
