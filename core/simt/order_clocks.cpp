#if defined(LADDER_ORDER)

#include "core/simt/order_clocks.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace ladder::simt::order {

namespace {

constexpr char kFence = 0;  // its address stands for all fences

[[gnu::target_clones("avx2", "default")]] void merge(std::uint32_t* to, const std::uint32_t* from, unsigned count) {
  for (unsigned i = 0; i < count; ++i) to[i] = to[i] < from[i] ? from[i] : to[i];
}

}  // namespace

void* map_zeros(std::size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  LADDER_CHECK(memory != MAP_FAILED, "no memory to check the order of accesses");
  return memory;
}

void unmap(void* memory, std::size_t bytes) {
  if (memory != nullptr) munmap(memory, bytes);
}

// --- Launches and clusters

bool Clocks::begin_launch(unsigned num_blocks, unsigned num_block_threads) {
  first_cluster_ = cluster_ + 1;
  indices_.clear();
  fences_.clear();
  num_block_threads_ = num_block_threads;
  return num_blocks <= kMaxAgents / stride();
}

void Clocks::begin_cluster(unsigned num_blocks, uint3 index) {
  ++cluster_;
  indices_.push_back(index);
  num_threads_ = num_blocks * num_block_threads_;
  num_agents_ = num_blocks * stride();
  row_ = num_agents_ + 1;
  any_proxy_fence_ = false;
  num_copies_.assign(num_blocks, 0);
  released_.clear();
  const std::size_t size = std::size_t{num_threads_} * row_;
  if (size > size_) {
    for (std::uint32_t** clocks : {&seen_, &fenced_}) {
      unmap(*clocks, size_ * sizeof(**clocks));
      *clocks = static_cast<std::uint32_t*>(map_zeros(size * sizeof(**clocks)));
    }
    size_ = size;
  } else {
    std::memset(seen_, 0, size * sizeof(*seen_));
  }
  for (unsigned rank = 0; rank < num_blocks; ++rank) {
    for (unsigned i = 0; i < num_block_threads_; ++i) seen(thread(rank, i))[thread(rank, i)] = 1;
  }
}

void Clocks::end_cluster() {
  const auto fence = released_.find(&kFence);
  if (fence != released_.end()) fences_[cluster_] = std::move(fence->second.seen);
}

// --- Agents

Agent Clocks::next_copy(unsigned rank) {
  const std::uint32_t number = num_copies_[rank]++;
  return {thread(rank, num_block_threads_ + kWarpgroups + number % kCopies), number / kCopies + 1};
}

Agent Clocks::multiplication(unsigned rank, unsigned warpgroup, std::uint64_t number) const {
  return {thread(rank, num_block_threads_ + warpgroup), static_cast<std::uint32_t>(number)};
}

// --- Edges

void Clocks::release(unsigned thread, const void* at) {
  Released& to = released_[at];
  to.seen.resize(row_);
  merge(to.seen.data(), seen(thread), row_);
  if (any_proxy_fence_) {
    to.fenced.resize(row_);
    merge(to.fenced.data(), fenced(thread), row_);
  }
  ++seen(thread)[thread];
}

void Clocks::acquire(unsigned thread, const void* at) {
  const auto from = released_.find(at);
  if (from == released_.end()) return;
  merge(seen(thread), from->second.seen.data(), row_);
  if (!from->second.fenced.empty()) merge(fenced(thread), from->second.fenced.data(), row_);
}

void Clocks::release(Agent agent, const void* at) {
  Released& to = released_[at];
  to.seen.resize(row_);
  to.seen[agent.who] = std::max(to.seen[agent.who], agent.epoch);
}

void Clocks::acquire(unsigned thread, Agent agent) {
  std::uint32_t& known = seen(thread)[agent.who];
  known = std::max(known, agent.epoch);
}

void Clocks::release_fence(unsigned thread) { release(thread, &kFence); }

void Clocks::acquire_fence(unsigned thread) {
  seen(thread)[num_agents_] = 1;
  acquire(thread, &kFence);
}

void Clocks::fence_proxy_async(unsigned thread) {
  if (!any_proxy_fence_) std::memset(fenced_, 0, std::size_t{num_threads_} * row_ * sizeof(*fenced_));
  any_proxy_fence_ = true;
  fenced(thread)[thread] = seen(thread)[thread]++;
}

bool Clocks::before(const Event& event, unsigned thread) const {
  if (event.cluster == cluster_) return event.who == thread || seen(thread)[event.who] >= event.epoch;
  if (seen(thread)[num_agents_] == 0) return false;
  const auto fence = fences_.find(event.cluster);
  return fence != fences_.end() && fence->second[event.who] >= event.epoch;
}

bool Clocks::fenced_before(const Event& event, unsigned thread) const {
  return any_proxy_fence_ && fenced(thread)[event.who] >= event.epoch;
}

}  // namespace ladder::simt::order

#endif
