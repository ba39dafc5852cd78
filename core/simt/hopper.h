// Hopper units of a block, besides threads and memory: mbarriers, the copies and stores in flight into its shared
// memory, and the tensor cores' queues of its warpgroups. Kernels use them through mbarrier.h, tma.h, cluster.h and
// wgmma.h.
#pragma once

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "core/simt/cluster_clock.h"
#include "core/simt/order.h"
#include "core/simt/tma.h"
#include "core/simt/wgmma.h"

namespace ladder::simt {

class Block;

// 128-byte swizzle of a shared address: the number of its 16-byte run, bits 4-6, is XORed with bits 7-9.
constexpr std::uint32_t swizzle_128(std::uint32_t address) { return address ^ (address >> 3 & 0x70); }
// 64-byte swizzle of a shared address: bits 4-5 are XORed with bits 7-8.
constexpr std::uint32_t swizzle_64(std::uint32_t address) { return address ^ (address >> 3 & 0x30); }

class Mbarriers {
 public:
  explicit Mbarriers(Block& block) : block_(block) {}

  void begin_block() { live_.clear(); }

  void init(std::uint64_t* barrier, unsigned arrivals, Where where);
  void arrive(std::uint64_t* barrier, std::uint32_t bytes, Where where);
  // Arrival by a thread of any block of the cluster. After a `release` from another block, waiters must acquire at
  // cluster scope.
  void arrive_from_cluster(std::uint64_t* barrier, bool release, Where where);
  enum class Scope : std::uint8_t { block, cluster };
  void wait(std::uint64_t* barrier, unsigned parity, Scope scope, Where where);

  // Note the start of a copy, by `agent`, that will complete on `barrier`. The running thread may be of any block of the
  // cluster; `what` names its instruction. `release`: the copied data are that thread's own.
  void begin_copy(std::uint64_t* barrier, order::Agent agent, bool release, const char* what, Where where);
  // Note that the copy landed. Returns empty, or the fault.
  std::string complete_copy(std::uint64_t* barrier, std::uint32_t bytes);

  // Describe, for reports, what the barrier at `event` waits for; empty if no barrier is there.
  std::string outstanding(const void* event) const;

 private:
  struct State;
  struct Live {
    const std::uint64_t* address;
    bool remote = false;    // another block released here by an arrival or a store
    ClusterClock released;  // by these releases
  };

  Live* find(const void* barrier);
  void note_access(std::uint64_t* barrier, bool release, const char* what, Where where);
  State checked(const std::uint64_t* barrier, Where where);
  void store(std::uint64_t* barrier, State state);

  Block& block_;
  std::vector<Live> live_;
};

class CopyEngine {
 public:
  explicit CopyEngine(Block& block) : block_(block) {}

  void begin_block() {
    in_flight_.clear();
    num_turns_ = 0;
  }

  // Start a copy from a tensor. The running thread may be of any block of the cluster; the addresses are this block's.
  void load(void* shared, const TensorMap& map, std::uint64_t* barrier, std::initializer_list<int> coordinates,
            Where where);
  // Start a store of at most kMaxStored bytes that passed check_cluster_access(). The running thread may be of any
  // block of the cluster.
  void store(void* shared, const void* value, int bytes, std::uint64_t* barrier, Where where);

  bool busy() const { return !in_flight_.empty(); }
  // Count a turn of the scheduler. Returns true if a copy is to land before it. `idle`: no thread can run.
  bool take_turn(bool idle);
  // Land the next copy. Throws Fault.
  void land_one();
  // Check a block whose threads have all ended. Throws Fault if copies are left over.
  void check_end() const;

 private:
  static constexpr int kMaxStored = 16;

  struct Copy {
    const char* what;  // name of the instruction
    TensorMap map;
    unsigned char* destination;
    std::uint32_t bytes;
    std::uint64_t* barrier;
    std::int64_t coordinates[TensorMap::kMaxDims];
    unsigned char stored[kMaxStored];  // data of a store, which has no map
    std::uint64_t deadline;            // the turn by which it lands
    Where where;
    const Block* by;
    int thread;
  };

  void begin(Copy copy, order::Agent agent);
  std::uint64_t draw_deadline();
  std::vector<Copy>::iterator next();
  void land(const Copy& copy);
  void land_box(const Copy& copy);
  template <class F>
  static void for_each_row(const Copy& copy, F f);

  Block& block_;
  std::vector<Copy> in_flight_;
  std::uint64_t num_turns_ = 0;
};

class TensorCores {
 public:
  explicit TensorCores(Block& block);
  ~TensorCores();

  void begin_block(int num_threads);

  // Issue a warp's multiplication. Called by the last lane to arrive, for all lanes.
  void issue(void* const (&operands)[detail::kWarpSize]);
  void note_reads(const detail::Wgmma& operands);
  void fence(Where where);
  void commit(Where where);
  // Begin a wait for all but the latest `pending` groups of this warp.
  void begin_wait(int pending, Where where);
  // Finish the wait. Called by every lane, after begin_wait().
  void finish_wait(Where where);

  // Check a block whose threads have all ended. Throws Fault if a multiplication lacks warps.
  void check_end() const;

 private:
  struct Slice;
  struct Multiplication;
  struct WarpQueue;
  struct Warpgroup;

  static constexpr int kMaxWarpgroups = 8;

  Warpgroup& own_group(Where where);
  WarpQueue& own_queue(Where where);
  std::unique_ptr<Slice> begin_slice(WarpQueue& queue, void* const (&operands)[detail::kWarpSize]);
  void check_operand(std::uint64_t descriptor, bool mn_major, int rows, const char* name, Where where) const;
  void note_reads(order::Agent agent, bool mn_major, std::uint64_t descriptor, int first_row, int rows,
                  Where where) const;
  void execute_until(Warpgroup& group, std::uint64_t end);
  void write_back(Warpgroup& group, WarpQueue& queue, Where where);

  Block& block_;
  int num_threads_ = 0;
  std::unique_ptr<Warpgroup[]> groups_;
};

struct Hopper {
  explicit Hopper(Block& block) : mbarriers(block), copies(block), tensor_cores(block) {}

  void begin_block(int num_threads) {
    mbarriers.begin_block();
    copies.begin_block();
    tensor_cores.begin_block(num_threads);
  }
  void check_end() const {
    copies.check_end();
    tensor_cores.check_end();
  }

  Mbarriers mbarriers;
  CopyEngine copies;
  TensorCores tensor_cores;
};

}  // namespace ladder::simt
