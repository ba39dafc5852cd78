// Vector clocks of a cluster's threads, copies and tensor cores, called agents: which epochs of the others happened before.
#pragma once

#include <vector_types.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "core/simt/order.h"

namespace ladder::simt::order {

// Most agents of a cluster, or of a cooperative grid, whose accesses are checked: each thread has a clock of all of them.
inline constexpr unsigned kMaxAgents = 6144;

// The work of an agent between two of its releases. Clusters are numbered over all launches, from 1 on.
struct Event {
  std::uint32_t cluster = 0;
  std::uint32_t epoch = 0;
  unsigned who = 0;
};

class Clocks {
 public:
  static constexpr unsigned kWarpgroups = 8;  // of a block, at most
  static constexpr unsigned kCopies = 16;     // agents for copies into a block's shared memory, used in turn

  // Returns false if the launch's clusters are too large to be checked.
  bool begin_launch(unsigned num_blocks, unsigned num_block_threads);
  void begin_cluster(unsigned num_blocks, uint3 index);
  void end_cluster();

  std::uint32_t cluster() const { return cluster_; }              // number of the running one
  std::uint32_t first_cluster() const { return first_cluster_; }  // of the launch
  uint3 index_of(std::uint32_t cluster) const { return indices_[cluster - first_cluster_]; }
  unsigned num_agents() const { return num_agents_; }

  // Agents are numbered block by block: threads, warpgroups, copies.
  unsigned thread(unsigned rank, unsigned index) const { return rank * stride() + index; }
  unsigned rank_of(unsigned who) const { return who / stride(); }
  unsigned in_block(unsigned who) const { return who % stride(); }
  bool is_copy(unsigned who) const { return in_block(who) >= num_block_threads_ + kWarpgroups; }
  bool is_warpgroup(unsigned who) const { return in_block(who) >= num_block_threads_ && !is_copy(who); }
  unsigned warpgroup_of(unsigned who) const { return in_block(who) - num_block_threads_; }
  Agent next_copy(unsigned rank);
  Agent multiplication(unsigned rank, unsigned warpgroup, std::uint64_t number) const;

  std::uint32_t epoch(unsigned thread) const { return seen(thread)[thread]; }
  void release(unsigned thread, const void* at);
  void acquire(unsigned thread, const void* at);
  void release(Agent agent, const void* at);
  void acquire(unsigned thread, Agent agent);
  void release_fence(unsigned thread);
  void acquire_fence(unsigned thread);
  void fence_proxy_async(unsigned thread);

  // Returns true if the event happened before what `thread` does now.
  bool before(const Event& event, unsigned thread) const;
  // Returns true if a proxy fence made the event's stores, by a thread of the running cluster, visible to the async proxy
  // before what `thread` does now.
  bool fenced_before(const Event& event, unsigned thread) const;

 private:
  // The knowledge that was released at an address.
  struct Released {
    std::vector<std::uint32_t> seen;  // epochs of each agent that happened before; the last entry: a fence was acquired
    std::vector<std::uint32_t> fenced;  // those before the agent's latest proxy fence
  };

  unsigned stride() const { return num_block_threads_ + kWarpgroups + kCopies; }
  std::uint32_t* row(std::uint32_t* clocks, unsigned thread) const {
    return clocks + std::size_t{rank_of(thread) * num_block_threads_ + in_block(thread)} * row_;
  }
  std::uint32_t* seen(unsigned thread) const { return row(seen_, thread); }
  std::uint32_t* fenced(unsigned thread) const { return row(fenced_, thread); }

  std::uint32_t cluster_ = 0;
  std::uint32_t first_cluster_ = 1;
  std::vector<uint3> indices_;  // of the launch's clusters
  unsigned num_block_threads_ = 0;
  unsigned num_threads_ = 0;
  unsigned num_agents_ = 0;
  unsigned row_ = 0;  // entries of a clock
  std::uint32_t* seen_ = nullptr;
  std::uint32_t* fenced_ = nullptr;
  std::size_t size_ = 0;  // of each of the two, in entries
  bool any_proxy_fence_ = false;
  std::vector<std::uint32_t> num_copies_;  // into each block
  std::unordered_map<const void*, Released> released_;
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>>
      fences_;  // released by fences of clusters that are over
};

// Zeroed memory that takes room only where it is touched.
void* map_zeros(std::size_t bytes);
void unmap(void* memory, std::size_t bytes);

}  // namespace ladder::simt::order
