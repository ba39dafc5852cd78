// Clusters: ranks, distributed shared memory in every access width, atomics, and mbarriers of other blocks. A GPU other
// than sm_90 has no clusters and dumps no values, which the comparison reports.
#include "dev/ptx/cluster.h"
#include "dev/ptx/tma.h"
#include "tests/conformance/wrappers.h"

namespace ladder::conformance {
namespace {

bool unavailable() { return backend::device().arch != 90; }

// --- Ranks, in one to three dimensions

__global__ void ranks_kernel(std::uint32_t* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  if (threadIdx.x != 0) return;
  out[2 * block] = ptx::cluster_rank();
  out[2 * block + 1] = ptx::cluster_size();
}

Output ranks() {
  if (unavailable()) return {.words = {}, .shape = {0}};
  constexpr int kBlocks = 4 * 4 * 2;
  const dim3 clusters[] = {1, 2, 4, dim3(2, 2), dim3(1, 4), dim3(2, 2, 2), dim3(1, 1, 2), dim3(4, 2)};
  Output output{.words = {}, .shape = {8, kBlocks, 2}};
  for (const dim3 cluster : clusters) {
    DeviceArray<std::uint32_t> out(2 * kBlocks);
    launch(ranks_kernel, {dim3(4, 4, 2), 32, 0, cluster}, nullptr, out.get());
    for (const std::uint32_t word : out.to_host()) output.words.push_back(word);
  }
  return output;
}

LADDER_CONFORMS(cluster_ranks, ranks)

// --- Every block reads all blocks' rows and stores its row into its right neighbour's memory

constexpr int kThreads = 64;

template <class T>
__global__ void exchange_kernel(const T* in, T* out) {
  LADDER_SHARED(T, row, [kThreads]);
  LADDER_DYN_SMEM(smem);
  T* const inbox = reinterpret_cast<T*>(smem);
  const unsigned rank = ptx::cluster_rank();
  const unsigned size = ptx::cluster_size();
  const unsigned i = threadIdx.x;
  const T value = in[blockIdx.x * kThreads + i];
  row[i] = value;
  ptx::cluster_sync();
  ptx::st_shared_cluster(ptx::mapa(inbox, (rank + 1) % size) + static_cast<int>(kThreads - 1 - i), value);
  ptx::cluster_arrive();
  for (unsigned r = 0; r < size; ++r) {
    out[(blockIdx.x * (size + 1) + r) * kThreads + i] = ptx::ld_shared_cluster(ptx::mapa(&row[(i + r) % kThreads], r));
  }
  ptx::cluster_wait();
  out[(blockIdx.x * (size + 1) + size) * kThreads + i] = inbox[i];
  ptx::cluster_arrive_relaxed();
  ptx::cluster_wait();
}

// Output of two clusters of `size` blocks. A block reads one row, has shared memory for `inbox` rows and writes `rows`
// rows.
template <class T>
Output exchanged(void (*kernel)(const T*, T*), int size, int inbox, int rows) {
  if (unavailable()) return {.words = {}, .shape = {0}};
  constexpr int kWords = sizeof(T) / 4;
  const int blocks = 2 * size;
  DeviceArray<std::uint32_t> in(Inputs().words(blocks * kThreads * kWords));
  DeviceArray<std::uint32_t> out(blocks * rows * kThreads * kWords);
  launch(kernel, {static_cast<unsigned>(blocks), kThreads, inbox * kThreads * sizeof(T), static_cast<unsigned>(size)},
         nullptr, reinterpret_cast<const T*>(in.get()), reinterpret_cast<T*>(out.get()));
  return {.words = out.to_host(), .shape = {blocks, rows, kThreads, kWords}};
}

template <class T, int kSize>
Output exchange() {
  return exchanged(exchange_kernel<T>, kSize, 1, kSize + 1);
}

LADDER_CONFORMS(cluster_exchange_4, (exchange<std::uint32_t, 8>))
LADDER_CONFORMS(cluster_exchange_8, (exchange<uint2, 4>))
LADDER_CONFORMS(cluster_exchange_16, (exchange<uint4, 2>))
LADDER_CONFORMS(cluster_exchange_of_16_blocks, (exchange<std::uint32_t, 16>))

// --- Rows stored into every block's memory, ordered by the mbarrier that counts their bytes

template <class T>
__global__ void async_exchange_kernel(const T* in, T* out) {
  LADDER_SHARED(ptx::Mbarrier, full, );
  LADDER_DYN_SMEM(smem);
  T* const inbox = reinterpret_cast<T*>(smem);  // [size][kThreads]
  const unsigned rank = ptx::cluster_rank();
  const unsigned size = ptx::cluster_size();
  const unsigned i = threadIdx.x;
  if (i == 0) {
    ptx::mbarrier_init(&full, 1);
    ptx::mbarrier_fence_init();
  }
  ptx::cluster_sync();
  const T value = in[blockIdx.x * kThreads + i];
  for (unsigned to = 0; to < size; ++to) {
    const int at = static_cast<int>(rank * kThreads + (i + to) % kThreads);
    ptx::st_async(ptx::mapa(inbox, to) + at, value, ptx::mapa(&full, to));
  }
  if (i == 0) ptx::mbarrier_arrive_expect_tx(&full, size * kThreads * sizeof(T));
  ptx::mbarrier_wait_cluster(&full, 0);
  for (unsigned r = 0; r < size; ++r) out[(blockIdx.x * size + r) * kThreads + i] = inbox[r * kThreads + i];
}

template <class T, int kSize>
Output async_exchange() {
  return exchanged(async_exchange_kernel<T>, kSize, kSize, kSize);
}

LADDER_CONFORMS(cluster_st_async_4, (async_exchange<std::uint32_t, 8>))
LADDER_CONFORMS(cluster_st_async_8, (async_exchange<uint2, 4>))
LADDER_CONFORMS(cluster_st_async_16, (async_exchange<uint4, 2>))

// --- Atomics with totals that do not depend on the order. Float sums add small integers, hence are exact

__global__ void cluster_atomics_kernel(const std::uint32_t* in, std::uint32_t* out) {
  LADDER_SHARED(unsigned, count, );
  LADDER_SHARED(int, sum, );
  LADDER_SHARED(float, total, );
  if (threadIdx.x == 0) {
    count = 0;
    sum = 0;
    total = 0;
  }
  ptx::cluster_sync();
  const std::uint32_t x = in[blockIdx.x * kThreads + threadIdx.x];
  const unsigned to = x % ptx::cluster_size();
  ptx::atomic_add_shared_cluster(ptx::mapa(&count, to), 1u);
  ptx::atomic_add_shared_cluster(ptx::mapa(&sum, to), static_cast<int>(x % 1000) - 500);
  ptx::atomic_add_shared_cluster(ptx::mapa(&total, to), static_cast<float>(x % 64));
  ptx::cluster_sync();
  if (threadIdx.x == 0) {
    out[3 * blockIdx.x] = count;
    out[3 * blockIdx.x + 1] = static_cast<std::uint32_t>(sum);
    out[3 * blockIdx.x + 2] = __float_as_uint(total);
  }
}

Output cluster_atomics() {
  if (unavailable()) return {.words = {}, .shape = {0}};
  constexpr int kBlocks = 8;
  DeviceArray<std::uint32_t> in(Inputs().words(kBlocks * kThreads)), out(3 * kBlocks);
  launch(cluster_atomics_kernel, {kBlocks, kThreads, 0, 4}, nullptr, in.get(), out.get());
  return {.words = out.to_host(), .shape = {kBlocks, 3}};
}

LADDER_CONFORMS(cluster_atomics, cluster_atomics)

// --- Rows handed round the ring of blocks, ordered by mbarriers alone

__global__ void mbarrier_ring_kernel(const std::uint32_t* in, int turns, std::uint32_t* out) {
  LADDER_SHARED(ptx::Mbarrier, full, );   // left neighbour has filled the slot
  LADDER_SHARED(ptx::Mbarrier, empty, );  // right neighbour's slot may be filled
  LADDER_SHARED(std::uint32_t, slot, [kThreads]);
  const unsigned size = ptx::cluster_size();
  const unsigned right = (ptx::cluster_rank() + 1) % size;
  const unsigned left = (ptx::cluster_rank() + size - 1) % size;
  const unsigned i = threadIdx.x;
  if (i == 0) {
    ptx::mbarrier_init(&full, kThreads);
    ptx::mbarrier_init(&empty, kThreads);
    ptx::mbarrier_fence_init();
  }
  ptx::cluster_sync();
  std::uint32_t value = in[blockIdx.x * kThreads + i];
  for (int turn = 0; turn < turns; ++turn) {
    ptx::mbarrier_wait_cluster(&empty, (turn + 1) % 2);
    ptx::st_shared_cluster(ptx::mapa(slot, right) + static_cast<int>((i + 1) % kThreads), value);
    ptx::mbarrier_arrive_cluster(ptx::mapa(&full, right));
    ptx::mbarrier_wait_cluster(&full, turn % 2);
    value = 3 * slot[i] + 1;
    ptx::mbarrier_arrive_cluster(ptx::mapa(&empty, left));
  }
  out[blockIdx.x * kThreads + i] = value;
  ptx::cluster_sync();
}

Output mbarrier_ring() {
  if (unavailable()) return {.words = {}, .shape = {0}};
  constexpr int kBlocks = 8;
  DeviceArray<std::uint32_t> in(Inputs().words(kBlocks * kThreads)), out(kBlocks * kThreads);
  launch(mbarrier_ring_kernel, {kBlocks, kThreads, 0, 4}, nullptr, in.get(), 13, out.get());
  return {.words = out.to_host(), .shape = {kBlocks, kThreads}};
}

LADDER_CONFORMS(cluster_mbarrier_ring, mbarrier_ring)

// --- Each block multicasts a part of the rows into all blocks' memory, every turn to the same place

constexpr int kPartRows = 8;

__global__ void multicast_kernel(const __grid_constant__ ptx::TensorMap map, int turns, std::uint32_t* out) {
  LADDER_SHARED(ptx::Mbarrier, full, );
  LADDER_SHARED(ptx::Mbarrier, empty, );  // all blocks have read
  LADDER_DYN_SMEM(smem);
  const unsigned rank = ptx::cluster_rank();
  const unsigned size = ptx::cluster_size();
  const int part_bytes = kPartRows * 128;
  const int words = static_cast<int>(size) * part_bytes / 4;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&full, 1);
    ptx::mbarrier_init(&empty, size * kThreads);
    ptx::mbarrier_fence_init();
  }
  ptx::cluster_sync();
  for (int turn = 0; turn < turns; ++turn) {
    if (threadIdx.x == 0) {
      ptx::mbarrier_wait(&empty, (turn + 1) % 2);
      ptx::mbarrier_arrive_expect_tx(&full, size * part_bytes);
      const auto all = static_cast<std::uint16_t>((1u << size) - 1);
      ptx::tma_load_multicast(smem + rank * part_bytes, map, &full, all, 4 * turn,
                              static_cast<int>(rank) * kPartRows - 3, static_cast<int>(blockIdx.x / size));
    }
    ptx::mbarrier_wait(&full, turn % 2);
    std::uint32_t* const to = out + (blockIdx.x * turns + turn) * words;
    for (int i = threadIdx.x; i < words; i += kThreads) to[i] = reinterpret_cast<const std::uint32_t*>(smem)[i];
    for (unsigned r = 0; r < size; ++r) ptx::mbarrier_arrive_cluster_relaxed(ptx::mapa(&empty, r));
  }
  ptx::cluster_sync();
}

template <int kSize>
Output multicast() {
  if (unavailable()) return {.words = {}, .shape = {0}};
  constexpr int kTurns = 5, kBlocks = 2 * kSize, kRows = kSize * kPartRows;
  DeviceArray<std::uint32_t> in(Inputs().words(2 * kRows * 48)), out(kBlocks * kTurns * kRows * 32);
  const auto map = ptx::make_tensor_map(Dtype::tf32, in.get(), {48, kRows, 2}, {32, kPartRows, 1});
  launch(multicast_kernel, {kBlocks, kThreads, kRows * 128, kSize}, nullptr, map, kTurns, out.get());
  return {.words = out.to_host(), .shape = {kBlocks, kTurns, kRows, 32}};
}

LADDER_CONFORMS(cluster_tma_multicast_2, multicast<2>)
LADDER_CONFORMS(cluster_tma_multicast_4, multicast<4>)

}  // namespace
}  // namespace ladder::conformance
