// Clusters: ranks, the cluster's barrier, distributed shared memory, and the faults that a GPU would hide.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>

#include "dev/ptx/cluster.h"
#include "tests/simt/support.h"

namespace ladder::simt::test {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// --- Launches and ranks

__global__ void ranks_kernel(int* ranks, int* sizes) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  if (threadIdx.x == 0) {
    ranks[block] = static_cast<int>(ptx::cluster_rank());
    sizes[block] = static_cast<int>(ptx::cluster_size());
  }
}

TEST(Cluster, ranks_count_within_the_cluster_x_fastest) {
  const dim3 grid(6, 4, 2);
  for (const dim3 cluster :
       {dim3(1), dim3(2), dim3(3, 2), dim3(1, 4, 2), dim3(2, 2, 2), dim3(6, 2, 1), dim3(1, 1, 2)}) {
    for (const std::string& schedule : schedules(2)) {
      const Scoped scoped(schedule, 2);
      std::vector<int> ranks(48, -1);
      std::vector<int> sizes(48, -1);
      launch(ranks_kernel, {grid, 32, 0, cluster}, nullptr, ranks.data(), sizes.data());
      for (unsigned b = 0; b < 48; ++b) {
        const unsigned x = b % 6, y = b / 6 % 4, z = b / 24;
        const unsigned rank = x % cluster.x + cluster.x * (y % cluster.y + cluster.y * (z % cluster.z));
        ASSERT_EQ(ranks[b], static_cast<int>(rank)) << "block " << x << "," << y << "," << z;
        ASSERT_EQ(sizes[b], static_cast<int>(cluster.x * cluster.y * cluster.z));
      }
    }
  }
}

__global__ void nothing_kernel() {}

TEST(Cluster, impossible_shapes_are_refused) {
  auto report = [](dim3 grid, dim3 cluster) {
    return fault_of([&] { launch(nothing_kernel, {grid, 32, 0, cluster}, nullptr); });
  };
  EXPECT_TRUE(contains(report(6, 4), "a grid of (6,1,1) blocks is not a multiple of its clusters of (4,1,1)"));
  EXPECT_TRUE(contains(report(dim3(4, 3), dim3(4, 2)), "not a multiple"));
  EXPECT_TRUE(contains(report(32, 32), "a cluster of (32,1,1) blocks; 1 to 16"));
  EXPECT_TRUE(contains(report(dim3(8, 4), dim3(8, 4)), "a cluster of (8,4,1) blocks"));
  EXPECT_TRUE(contains(report(4, 0), "1 to 16"));
  EXPECT_TRUE(contains(report(65536, 65536), "1 to 16"));
  EXPECT_EQ(report(32, 16), "no fault");
  EXPECT_EQ(report(dim3(4, 4, 2), dim3(2, 2, 2)), "no fault");
}

// --- Distributed shared memory

// sums[turn][block] = sum of all values of the block's cluster plus `turn` each: a tree over each block's threads, then
// a loop over the cluster's blocks in every block. All turns use the same shared memory.
__global__ void reduce_kernel(const int* values, int* sums, int turns) {
  LADDER_SHARED(int, part, [64]);
  LADDER_DYN_SMEM(smem);
  auto* total = reinterpret_cast<int*>(smem);
  for (int turn = 0; turn < turns; ++turn) {
    part[threadIdx.x] = values[blockIdx.x * 64 + threadIdx.x] + turn;
    __syncthreads();
    for (unsigned width = 32; width > 0; width /= 2) {
      if (threadIdx.x < width) part[threadIdx.x] += part[threadIdx.x + width];
      __syncthreads();
    }
    if (threadIdx.x == 0) *total = part[0];
    ptx::cluster_sync();
    int sum = 0;
    for (unsigned r = 0; r < ptx::cluster_size(); ++r) sum += ptx::ld_shared_cluster(ptx::mapa(total, r));
    if (threadIdx.x == 7) sums[turn * gridDim.x + blockIdx.x] = sum;
    ptx::cluster_sync();
  }
}

TEST(Cluster, reduces_over_any_number_of_blocks) {
  constexpr int kTurns = 3;
  for (const int size : {1, 2, 3, 4, 8, 16}) {
    const int blocks = 3 * size;
    std::vector<int> values(blocks * 64);
    std::iota(values.begin(), values.end(), 5);
    for (const std::string& schedule : schedules(3)) {
      for (const int threads : {1, 3}) {
        const Scoped scoped(schedule, threads);
        std::vector<int> sums(blocks * kTurns, -1);
        launch(reduce_kernel, {static_cast<unsigned>(blocks), 64, 4, static_cast<unsigned>(size)}, nullptr,
               values.data(), sums.data(), kTurns);
        for (int turn = 0; turn < kTurns; ++turn) {
          for (int b = 0; b < blocks; ++b) {
            const auto first = values.begin() + b / size * size * 64;
            ASSERT_EQ(sums[turn * blocks + b], std::accumulate(first, first + size * 64, turn * size * 64))
                << schedule << ", cluster of " << size << ", block " << b << ", turn " << turn;
          }
        }
      }
    }
  }
}

// Value that a thread hands on, with words different from any other thread's.
template <class T>
T own_words() {
  T value;
  for (unsigned i = 0; i < sizeof(T) / 4; ++i) {
    reinterpret_cast<unsigned*>(&value)[i] = 1000 * blockIdx.x + 4 * threadIdx.x + i;
  }
  return value;
}

// Ring exchange: every block passes a T to its right neighbour until all values have gone round. Two buffers: the left
// neighbour writes one while the block reads the other.
template <class T>
__global__ void ring_kernel(T* out) {
  LADDER_SHARED(T, buffers, [2][32]);
  const unsigned size = ptx::cluster_size();
  const unsigned right = (ptx::cluster_rank() + 1) % size;
  T value = own_words<T>();
  ptx::cluster_sync();
  for (unsigned step = 0; step + 1 < size; ++step) {
    ptx::st_shared_cluster(ptx::mapa(buffers[step % 2], right) + static_cast<int>(threadIdx.x), value);
    ptx::cluster_arrive();
    ptx::cluster_wait();
    value = buffers[step % 2][threadIdx.x];
  }
  out[blockIdx.x * 32 + threadIdx.x] = value;
}

template <class T>
void check_ring(void (*kernel)(T*)) {
  for (const unsigned size : {1u, 2u, 5u, 8u, 16u}) {
    for (const std::string& schedule : schedules(2)) {
      const Scoped scoped(schedule, 2);
      std::vector<T> out(2 * size * 32);
      launch(kernel, {2 * size, 32, 0, size}, nullptr, out.data());
      for (unsigned b = 0; b < 2 * size; ++b) {
        const unsigned from = b / size * size + (b + 1) % size;  // after size - 1 steps: the right neighbour's value
        for (unsigned t = 0; t < 32; ++t) {
          for (unsigned i = 0; i < sizeof(T) / 4; ++i) {
            ASSERT_EQ(reinterpret_cast<const unsigned*>(&out[b * 32 + t])[i], 1000 * from + 4 * t + i)
                << schedule << ", cluster of " << size << ", block " << b << ", thread " << t;
          }
        }
      }
    }
  }
}

TEST(Cluster, rings_exchange_4_8_and_16_bytes) {
  check_ring<unsigned>(ring_kernel<unsigned>);
  check_ring<uint2>(ring_kernel<uint2>);
  check_ring<uint4>(ring_kernel<uint4>);
}

// Ring exchange ordered by mbarriers alone; one thread announces a row's bytes. Each step has a buffer of its own,
// because nothing tells how far the right neighbour lags behind.
template <class T>
__global__ void async_ring_kernel(T* out) {
  constexpr unsigned kMaxSteps = 15;
  LADDER_SHARED(T, buffers, [kMaxSteps][32]);
  LADDER_SHARED(ptx::Mbarrier, full, [kMaxSteps]);
  const unsigned size = ptx::cluster_size();
  const unsigned right = (ptx::cluster_rank() + 1) % size;
  const int i = static_cast<int>(threadIdx.x);
  T value = own_words<T>();
  if (i == 0) {
    for (ptx::Mbarrier& barrier : full) ptx::mbarrier_init(&barrier, 1);
    ptx::mbarrier_fence_init();
  }
  ptx::cluster_sync();
  for (unsigned step = 0; step + 1 < size; ++step) {
    ptx::st_async(ptx::mapa(buffers[step], right) + i, value, ptx::mapa(&full[step], right));
    if (i == 0) ptx::mbarrier_arrive_expect_tx(&full[step], 32 * sizeof(T));
    ptx::mbarrier_wait_cluster(&full[step], 0);
    value = buffers[step][i];
  }
  out[blockIdx.x * 32 + i] = value;
}

TEST(Cluster, rings_exchange_asynchronously) {
  check_ring<unsigned>(async_ring_kernel<unsigned>);
  check_ring<uint2>(async_ring_kernel<uint2>);
  check_ring<uint4>(async_ring_kernel<uint4>);
}

// Cluster barriers may be relaxed if they only mark the blocks' start and end.
__global__ void relaxed_kernel(int* out) {
  LADDER_SHARED(int, inbox, [32]);
  const unsigned i = threadIdx.x;
  ptx::cluster_arrive_relaxed();
  ptx::cluster_wait();
  const unsigned other = ptx::cluster_size() - 1 - ptx::cluster_rank();
  ptx::st_shared_cluster(ptx::mapa(&inbox[i], other), static_cast<int>(100 * blockIdx.x + i));
  ptx::cluster_sync();
  out[blockIdx.x * 32 + i] = ptx::ld_shared_cluster(ptx::mapa(&inbox[31 - i], other));
  ptx::cluster_arrive_relaxed();
  ptx::cluster_wait();
}

TEST(Cluster, relaxed_barriers_frame_the_accesses) {
  for (const std::string& schedule : schedules(2)) {
    const Scoped scoped(schedule, 2);
    std::vector<int> out(8 * 32);
    launch(relaxed_kernel, {8, 32, 0, 4}, nullptr, out.data());
    for (int i = 0; i < 8 * 32; ++i) ASSERT_EQ(out[i], 100 * (i / 32) + 31 - i % 32) << schedule;
  }
}

// All blocks draw tickets from a counter in block 0's memory; every number is drawn once.
__global__ void tickets_kernel(int* tickets, int* totals, float* sums) {
  LADDER_SHARED(int, next, );
  LADDER_SHARED(float, sum, );
  if (threadIdx.x == 0) {
    next = 0;
    sum = 0;
  }
  ptx::cluster_sync();
  const int ticket = ptx::atomic_add_shared_cluster(ptx::mapa(&next, 0), 1);
  ptx::atomic_add_shared_cluster(ptx::mapa(&sum, ptx::cluster_size() - 1), 0.5f);
  tickets[blockIdx.x * blockDim.x + threadIdx.x] = ticket;
  ptx::cluster_sync();
  if (threadIdx.x == 0) {
    totals[blockIdx.x] = next;
    sums[blockIdx.x] = sum;
  }
}

TEST(Cluster, atomics_reach_other_blocks) {
  for (const std::string& schedule : schedules(2)) {
    const Scoped scoped(schedule, 2);
    std::vector<int> tickets(8 * 40);
    std::vector<int> totals(8);
    std::vector<float> sums(8);
    launch(tickets_kernel, {8, 40, 0, 4}, nullptr, tickets.data(), totals.data(), sums.data());
    for (int cluster = 0; cluster < 2; ++cluster) {
      std::sort(tickets.begin() + cluster * 160, tickets.begin() + (cluster + 1) * 160);
      for (int i = 0; i < 160; ++i) ASSERT_EQ(tickets[cluster * 160 + i], i);
      EXPECT_EQ(totals[cluster * 4], 160);
      EXPECT_EQ(totals[cluster * 4 + 1], 0);
      EXPECT_EQ(sums[cluster * 4 + 3], 80.0f);
    }
  }
}

// Shared variables declared in an order that depends on the block must have the same offset in all blocks of the
// cluster.
__global__ void declared_late_kernel(int* out) {
  if (ptx::cluster_rank() == 0) {
    LADDER_SHARED(int, only_here, [20]);
    only_here[threadIdx.x] = 1;
  }
  LADDER_SHARED(int, everywhere, [20]);
  everywhere[threadIdx.x] = static_cast<int>(100 * blockIdx.x + threadIdx.x);
  ptx::cluster_sync();
  const auto other = ptx::mapa(everywhere, 1 - ptx::cluster_rank());
  out[blockIdx.x * 20 + threadIdx.x] = ptx::ld_shared_cluster(other + static_cast<int>(threadIdx.x));
  ptx::cluster_sync();
}

TEST(Cluster, static_variables_have_one_place_in_all_blocks) {
  for (const std::string& schedule : schedules(2)) {
    const Scoped scoped(schedule);
    std::vector<int> out(40);
    launch(declared_late_kernel, {2, 20, 0, 2}, nullptr, out.data());
    for (int i = 0; i < 40; ++i) ASSERT_EQ(out[i], 100 * (1 - i / 20) + i % 20) << schedule;
  }
}

// Producer and consumer blocks synchronised by mbarriers alone. Block 0 sends rows to each other block through one
// slot, which the block empties before the next row.
__global__ void mbarrier_kernel(int turns, int* sums) {
  LADDER_SHARED(ptx::Mbarrier, full, );
  LADDER_SHARED(ptx::Mbarrier, empty, );
  LADDER_SHARED(int, slot, [32]);
  const unsigned others = ptx::cluster_size() - 1;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&full, 32);
    ptx::mbarrier_init(&empty, others * 32);
    ptx::mbarrier_fence_init();
  }
  ptx::cluster_sync();
  int sum = 0;
  for (int turn = 0; turn < turns; ++turn) {
    if (ptx::cluster_rank() == 0) {
      ptx::mbarrier_wait_cluster(&empty, (turn + 1) % 2);
      for (unsigned r = 1; r <= others; ++r) {
        const int value = static_cast<int>(threadIdx.x + r * turn);
        ptx::st_shared_cluster(ptx::mapa(slot, r) + static_cast<int>(threadIdx.x), value);
        ptx::mbarrier_arrive_cluster(ptx::mapa(&full, r));
      }
    } else {
      ptx::mbarrier_wait_cluster(&full, turn % 2);
      sum += slot[31 - threadIdx.x];
      ptx::mbarrier_arrive_cluster(ptx::mapa(&empty, 0));
    }
  }
  sums[blockIdx.x * 32 + threadIdx.x] = sum;
  // NOTE: block 0 may not end before the last arrivals at its barrier.
  if (ptx::cluster_rank() == 0) ptx::mbarrier_wait_cluster(&empty, (turns + 1) % 2);
}

TEST(Cluster, mbarriers_order_blocks_without_the_clusters_barrier) {
  constexpr int kTurns = 5;
  for (const unsigned size : {2u, 4u}) {
    for (const std::string& schedule : schedules(4)) {
      const Scoped scoped(schedule);
      std::vector<int> sums(2 * size * 32, -1);
      launch(mbarrier_kernel, {2 * size, 32, 0, size}, nullptr, kTurns, sums.data());
      for (unsigned b = 0; b < 2 * size; ++b) {
        for (unsigned t = 0; t < 32 && b % size > 0; ++t) {
          ASSERT_EQ(sums[b * 32 + t], static_cast<int>(kTurns * (31 - t) + b % size * kTurns * (kTurns - 1) / 2))
              << schedule;
        }
      }
    }
  }
}

// --- Schedules

// Record the order in which the blocks' threads run.
__global__ void order_kernel(int* next, int* when) {
  for (int step = 0; step < 4; ++step) {
    when[(blockIdx.x * 4 + step) * blockDim.x + threadIdx.x] = atomicAdd(next, 1);
    __syncwarp();
  }
  ptx::cluster_sync();
}

std::vector<int> order(const std::string& schedule) {
  const Scoped scoped(schedule);
  std::vector<int> when(4 * 4 * 64);
  int next = 0;
  launch(order_kernel, {4, 64, 0, 4}, nullptr, &next, when.data());
  return when;
}

TEST(Cluster, schedules_replay_and_interleave_blocks) {
  auto first_of = [](const std::vector<int>& when, int b) {
    return *std::min_element(when.begin() + b * 256, when.begin() + (b + 1) * 256);
  };
  auto last_of = [](const std::vector<int>& when, int b) {
    return *std::max_element(when.begin() + b * 256, when.begin() + (b + 1) * 256);
  };
  const std::vector<int> up = order("asc");
  const std::vector<int> down = order("desc");
  for (int b = 0; b < 3; ++b) {
    EXPECT_LT(last_of(up, b), first_of(up, b + 1));
    EXPECT_GT(first_of(down, b), last_of(down, b + 1));
  }
  int mixed[2] = {};
  int alone[2] = {};
  for (int seed = 1; seed <= 8; ++seed) {
    for (const bool greedy : {false, true}) {
      const std::string schedule = (greedy ? "greedy:" : "random:") + std::to_string(seed);
      const std::vector<int> when = order(schedule);
      EXPECT_EQ(when, order(schedule)) << schedule;
      for (int b = 0; b < 4; ++b) ++(last_of(when, b) - first_of(when, b) == 255 ? alone : mixed)[greedy];
    }
  }
  EXPECT_EQ(alone[false], 0) << "random mixes all blocks";
  EXPECT_GT(mixed[true], 0) << "greedy lets a warp run ahead of its block";
  EXPECT_GT(alone[true], 0) << "and a block ahead of its cluster";
}

// --- Faults

enum class Misuse {
  none,
  rank,
  not_shared,
  beyond_dynamic,
  beyond_static,
  misaligned,
  not_started,
  no_last_barrier,
  late_access,
  arrive_twice,
  wait_alone,
  ends_before,
  ends_during,
  other_barrier,
  one_block_stays,
  narrow_wait,
  global_barrier,
  other_blocks_barrier,
  narrow_async_wait,
  ends_before_store,
  unannounced_store,
};
std::atomic<int> line = 0;

__global__ void misuse_kernel(Misuse misuse, ptx::Mbarrier* global) {
  LADDER_SHARED(int, part, [4]);
  LADDER_SHARED(ptx::Mbarrier, full, );
  LADDER_DYN_SMEM(smem);
  const unsigned rank = ptx::cluster_rank();
  const unsigned other = 1 - rank;
  if (threadIdx.x < 4) part[threadIdx.x] = 1;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&full, 1);
    ptx::mbarrier_fence_init();
  }
  if (misuse == Misuse::not_started) {
    line = __LINE__ + 1;
    ptx::ld_shared_cluster(ptx::mapa(part, other));
  }
  ptx::cluster_sync();
  switch (misuse) {
    case Misuse::rank:
      line = __LINE__ + 1;
      ptx::mapa(part, 2);
      break;
    case Misuse::not_shared:
      ptx::mapa(global, other);
      break;
    case Misuse::beyond_dynamic:
      line = __LINE__ + 1;
      ptx::ld_shared_cluster(ptx::mapa(reinterpret_cast<int*>(smem), other) + 25);
      break;
    case Misuse::beyond_static:
      ptx::st_shared_cluster(ptx::mapa(part, other) + 4, 1);
      break;
    case Misuse::misaligned:
      ptx::ld_shared_cluster(ptx::mapa(reinterpret_cast<uint4*>(smem + 8), other));
      break;
    case Misuse::no_last_barrier:
      line = __LINE__ + 1;
      ptx::ld_shared_cluster(ptx::mapa(part, other));
      return;
    case Misuse::late_access:
      if (rank == 0) return;
      ptx::ld_shared_cluster(ptx::mapa(part, other));
      return;
    case Misuse::arrive_twice:
      ptx::cluster_arrive();
      ptx::cluster_arrive();
      break;
    case Misuse::wait_alone:
      ptx::cluster_wait();
      break;
    case Misuse::ends_before:
      if (rank == 1) return;
      break;
    case Misuse::ends_during:
      if (threadIdx.x == 5) return;
      break;
    case Misuse::other_barrier:
      if (threadIdx.x < 32 && rank == 1) {
        line = __LINE__ + 1;
        __syncthreads();
      }
      break;
    case Misuse::one_block_stays:
      if (rank == 0) ptx::mbarrier_wait(&full, 0);
      break;
    case Misuse::narrow_wait:
      if (threadIdx.x == 0 && rank == 1) ptx::mbarrier_arrive_cluster(ptx::mapa(&full, 0));
      if (threadIdx.x == 0 && rank == 0) ptx::mbarrier_wait(&full, 0);
      break;
    case Misuse::global_barrier:
      ptx::mbarrier_arrive_cluster({global});
      break;
    case Misuse::other_blocks_barrier:
      line = __LINE__ + 1;
      ptx::st_async(ptx::mapa(part, other), 1, ptx::mapa(&full, rank));
      break;
    case Misuse::narrow_async_wait:
      if (threadIdx.x == 0 && rank == 1) ptx::st_async(ptx::mapa(part, 0), 1, ptx::mapa(&full, 0));
      if (threadIdx.x == 0 && rank == 0) {
        ptx::mbarrier_arrive_expect_tx(&full, 4);
        ptx::mbarrier_wait(&full, 0);
      }
      break;
    case Misuse::ends_before_store:
      if (threadIdx.x == 0 && rank == 1) ptx::st_async(ptx::mapa(part, 0), 1, ptx::mapa(&full, 0));
      return;
    case Misuse::unannounced_store:
      if (threadIdx.x == 0 && rank == 1) {
        ptx::st_async(ptx::mapa(reinterpret_cast<uint2*>(smem), 0), {1, 2}, ptx::mapa(&full, 0));
      }
      if (threadIdx.x == 0 && rank == 0) {
        ptx::mbarrier_arrive_expect_tx(&full, 4);
        ptx::mbarrier_wait_cluster(&full, 0);
      }
      break;
    case Misuse::none:
    case Misuse::not_started:
      break;
  }
  ptx::cluster_sync();
}

TEST(Cluster, misuse_is_reported_under_every_schedule) {
  struct Case {
    Misuse misuse;
    const char* says;
    bool names_line;
  };
  const Case cases[] = {
      {Misuse::none, "no fault", false},
      {Misuse::rank, "mapa: rank 2 in a cluster of 2 blocks", true},
      {Misuse::not_shared, "mapa: not an address in the calling block's shared memory", false},
      {Misuse::beyond_dynamic, "ld.shared::cluster: out of bounds of block (", true},
      {Misuse::beyond_static, "st.shared::cluster: out of bounds of block (", false},
      {Misuse::misaligned, "not aligned to the access's 16 bytes", false},
      {Misuse::not_started, "is not known to have started", true},
      {Misuse::no_last_barrier, "ended", true},
      {Misuse::late_access, "ended", false},
      {Misuse::arrive_twice, "arrived before and did not wait", false},
      {Misuse::wait_alone, "did not arrive before", false},
      {Misuse::ends_before, "ended", false},
      {Misuse::ends_during, "ended", false},
      {Misuse::other_barrier, "deadlock", true},
      {Misuse::one_block_stays, "deadlock", false},
      {Misuse::narrow_wait, "must acquire at the scope of the cluster", false},
      {Misuse::global_barrier, "not in the cluster's shared memory", false},
      {Misuse::other_blocks_barrier, "the mbarrier is not in the memory of the block that it stores to", true},
      {Misuse::narrow_async_wait, "must acquire at the scope of the cluster", false},
      {Misuse::ends_before_store, "ended", false},
      {Misuse::unannounced_store, "landed than were announced", false},
  };
  alignas(8) ptx::Mbarrier global = 0;
  for (const Case& c : cases) {
    for (const std::string& schedule : schedules(4)) {
      const Scoped scoped(schedule);
      const std::string report = fault_of([&] { launch(misuse_kernel, {4, 64, 100, 2}, nullptr, c.misuse, &global); });
      EXPECT_TRUE(contains(report, c.says)) << schedule << ", case " << static_cast<int>(c.misuse) << ": " << report;
      if (c.names_line) {
        EXPECT_TRUE(contains(report, "cluster.cpp:" + std::to_string(line))) << report;
      }
      if (c.misuse != Misuse::none) {
        EXPECT_TRUE(contains(report, "[schedule " + schedule + "]")) << report;
      }
    }
  }
}

__global__ void store_to_itself_kernel(int* out) {
  LADDER_SHARED(int, inbox, );
  LADDER_SHARED(ptx::Mbarrier, full, );
  ptx::mbarrier_init(&full, 1);
  ptx::mbarrier_arrive_expect_tx(&full, sizeof(int));
  ptx::cluster_sync();
  ptx::st_async(ptx::mapa(&inbox, ptx::cluster_rank()), 7, ptx::mapa(&full, ptx::cluster_rank()));
  ptx::mbarrier_wait_cluster(&full, 0);
  out[blockIdx.x] = inbox;
}

// A block may store to itself asynchronously; on an H200 not if it is the cluster's only block.
TEST(Cluster, an_asynchronous_store_needs_another_block) {
  const Scoped scoped("asc");
  std::vector<int> out(2, -1);
  const auto report = [&](unsigned cluster) {
    return fault_of([&] { launch(store_to_itself_kernel, {2, 1, 0, cluster}, nullptr, out.data()); });
  };
  EXPECT_EQ(report(2), "no fault");
  EXPECT_EQ(out, std::vector<int>(2, 7));
  const std::string alone = report(1);
  EXPECT_TRUE(contains(alone, "st.async: the cluster has no other block")) << alone;
}

TEST(Cluster, a_deadlock_says_of_every_block_who_waits_where) {
  const Scoped scoped("asc");
  alignas(8) ptx::Mbarrier global = 0;
  auto report = [&](Misuse misuse) {
    return fault_of([&] { launch(misuse_kernel, {4, 64, 100, 2}, nullptr, misuse, &global); });
  };
  const std::string barriers = report(Misuse::other_barrier);
  EXPECT_TRUE(contains(barriers, "32 threads, first (0,0,0), wait in __syncthreads")) << barriers;
  EXPECT_TRUE(contains(barriers, "32 threads, first (32,0,0), wait in barrier.cluster.wait")) << barriers;
  EXPECT_TRUE(contains(barriers, "64 threads, first (0,0,0), wait in barrier.cluster.wait")) << barriers;
  EXPECT_TRUE(contains(barriers, "96 of the cluster's 128 threads have arrived")) << barriers;
  EXPECT_TRUE(contains(barriers, "block (0,0,0)") && contains(barriers, "block (1,0,0)")) << barriers;
  const std::string one = report(Misuse::one_block_stays);
  EXPECT_TRUE(contains(one, "wait in mbarrier_wait")) << one;
  EXPECT_TRUE(contains(one, "64 of the cluster's 128 threads have arrived")) << one;
}

// A fault in one cluster must not affect the next launch.
TEST(Cluster, a_fault_leaves_nothing_behind) {
  alignas(8) ptx::Mbarrier global = 0;
  std::vector<int> values(8 * 64, 1);
  for (const std::string& schedule : schedules(2)) {
    const Scoped scoped(schedule, 2);
    EXPECT_NE(fault_of([&] {
                launch(misuse_kernel, {8, 64, 100, 2}, nullptr, Misuse::other_barrier, &global);
              }),
              "no fault");
    std::vector<int> sums(8, -1);
    launch(reduce_kernel, {8, 64, 4, 4}, nullptr, values.data(), sums.data(), 1);
    EXPECT_EQ(std::count(sums.begin(), sums.end(), 256), 8) << schedule;
  }
}

// Run the largest cluster, which needs more stacks than any other launch.
TEST(Cluster, sixteen_blocks_of_1024_threads_run) {
  const Scoped scoped("greedy:1");
  std::vector<int> ranks(16, -1);
  std::vector<int> sizes(16, -1);
  launch(ranks_kernel, {16, 1024, 0, 16}, nullptr, ranks.data(), sizes.data());
  for (int b = 0; b < 16; ++b) EXPECT_EQ(ranks[b], b);
}

}  // namespace
}  // namespace ladder::simt::test
