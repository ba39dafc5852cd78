// Shared memory, asynchronous copies, stacks: what a kernel must not rely on is made visible.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "dev/ptx/cp_async.h"
#include "tests/simt/support.h"

namespace ladder::simt::test {
namespace {

__global__ void fresh_smem_kernel(int* stale) {
  LADDER_SHARED(float, array, [5][7]);
  LADDER_SHARED(unsigned, scalar, );
  LADDER_DYN_SMEM(dynamic);
  if (threadIdx.x == 0) {
    int count = 0;
    for (auto& row : array) {
      for (float& element : row) {
        count += std::bit_cast<unsigned>(element) != ~0u;
        element = 1;
      }
    }
    count += scalar != ~0u;
    scalar = 2;
    for (int i = 0; i < 3000; ++i) {
      count += dynamic[i] != 0xff;
      dynamic[i] = 3;
    }
    atomicAdd(stale, count);
  }
}

TEST(SharedMemory, is_nan_bytes_in_every_block) {
  for (const int threads : {1, 3}) {
    const Scoped scoped("asc", threads);
    int stale = 0;
    launch(fresh_smem_kernel, {50, 32, 3000}, nullptr, &stale);
    EXPECT_EQ(stale, 0);
  }
}

template <int kTag>
__global__ void addresses_kernel(std::uintptr_t* out) {
  LADDER_SHARED(float, a, [3]);
  LADDER_SHARED(alignas(128) float, b, [3]);
  LADDER_SHARED(double2, c, );
  LADDER_DYN_SMEM(d);
  out[0] = reinterpret_cast<std::uintptr_t>(&a);
  out[1] = reinterpret_cast<std::uintptr_t>(&b);
  out[2] = reinterpret_cast<std::uintptr_t>(&c);
  out[3] = reinterpret_cast<std::uintptr_t>(d);
}

TEST(SharedMemory, is_aligned_as_declared_and_no_better) {
  std::uintptr_t address[4];
  launch(addresses_kernel<0>, {1, 1, 64}, nullptr, static_cast<std::uintptr_t*>(address));
  EXPECT_EQ(address[0] % 8, 4u) << "a float array";
  EXPECT_EQ(address[1] % 256, 128u) << "alignas(128)";
  EXPECT_EQ(address[2] % 32, 16u) << "double2";
  EXPECT_EQ(address[3] % 1024, 0u) << "dynamic";
}

__global__ void shared_by_all_kernel(int* out) {
  LADDER_SHARED(int, s, [64]);
  s[threadIdx.x] = static_cast<int>(threadIdx.x + 100 * blockIdx.x);
  __syncthreads();
  out[blockIdx.x * 64 + threadIdx.x] = s[63 - threadIdx.x];
}

TEST(SharedMemory, is_one_for_a_block) {
  for (const std::string& schedule : schedules(2)) {
    const Scoped scoped(schedule, 2);
    std::vector<int> out(64 * 10);
    launch(shared_by_all_kernel, {10, 64}, nullptr, out.data());
    for (int i = 0; i < 640; ++i) ASSERT_EQ(out[i], 100 * (i / 64) + 63 - i % 64);
  }
}

__global__ void too_much_kernel() {
  LADDER_SHARED(char, a, [40 * 1024]);
  LADDER_SHARED(char, b, [8 * 1024 + 1]);
  a[0] = b[0] = 0;
}

TEST(SharedMemory, has_the_gpus_limit) {
  EXPECT_NE(fault_of([] { launch(too_much_kernel, {1, 1}, nullptr); }).find("no room"), std::string::npos);
}

#if !defined(LADDER_ASAN)  // which has signal handlers, and reports, of its own
__global__ void behind_dynamic_kernel(int index) {
  LADDER_DYN_SMEM(dynamic);
  dynamic[index] = 1;
}
__global__ void behind_static_kernel(int index) {
  LADDER_SHARED(int, s, [10]);
  s[index] = 1;
}

TEST(SharedMemory, stray_writes_are_noticed_and_name_the_array) {
  const std::pair<int, const char*> strays[] = {
      {100, "+ 100 bytes (it has 100)"}, {163, "+ 163 bytes"}, {-1, "- 1 bytes"}};
  for (const auto& stray : strays) {
    const std::string report = fault_of([&] { launch(behind_dynamic_kernel, {1, 1, 100}, nullptr, stray.first); });
    EXPECT_NE(report.find(std::string("a write out of bounds: dynamic shared memory ") + stray.second),
              std::string::npos)
        << report;
  }
  EXPECT_EQ(fault_of([&] { launch(behind_dynamic_kernel, {1, 1, 100}, nullptr, 99); }), "no fault");
  for (const int index : {10, 3000}) {
    const std::string report = fault_of([&] { launch(behind_static_kernel, {1, 1}, nullptr, index); });
    EXPECT_NE(report.find("shared array s + " + std::to_string(4 * index) + " bytes (it has 40)"), std::string::npos)
        << report;
  }
}

// NOTE: volatile keeps the frame, and the recursion a recursion.
__global__ void deep_kernel(volatile int* depth) {
  volatile char frame[4096];
  frame[0] = 1;
  for (int i = 0; i < 4096; i += 64) frame[i] = static_cast<char>(i);
  if (*depth > 0) {
    *depth = *depth - 1;
    deep_kernel(depth);
  }
  frame[1] = frame[0];
}

TEST(Stack, overflow_is_a_fault) {
  int enough = 8;
  launch(deep_kernel, {1, 2}, nullptr, static_cast<volatile int*>(&enough));
  int too_deep = 100;
  const std::string report = fault_of([&] {
    launch(deep_kernel, {1, 2}, nullptr, static_cast<volatile int*>(&too_deep));
  });
  EXPECT_NE(report.find("KiB is full"), std::string::npos) << report;
  EXPECT_NE(report.find("tests/simt/memory.cpp:"), std::string::npos) << report;
}
#endif

// --- cp.async

// Thread 0's view of its own copy at every step: before, issued, committed, and after waits.
template <int kBytes>
__global__ void copy_steps_kernel(const std::uint32_t* from, std::uint32_t* seen) {
  LADDER_SHARED(uint4, shared, [3]);
  auto* words = reinterpret_cast<std::uint32_t*>(&shared[0]);
  constexpr int kWords = kBytes / 4;
  words[0] = 7;
  int step = 0;
  auto look = [&] { seen[step++] = words[0]; };
  ptx::cp_async<kBytes>(&shared[0], from, true);
  look();
  ptx::cp_async_commit();
  look();
  ptx::cp_async<kBytes>(&shared[1], from + 4, true);
  ptx::cp_async<kBytes>(&shared[2], from + 8, false);
  ptx::cp_async_commit();
  ptx::cp_async_wait<2>();
  look();
  ptx::cp_async_wait<1>();
  look();
  seen[step++] = words[4];
  ptx::cp_async_wait<0>();
  for (int i = 0; i < kWords; ++i) {
    seen[8 + i] = words[i];
    seen[12 + i] = words[4 + i];
    seen[16 + i] = words[8 + i];
  }
}

template <int kBytes>
void check_copy_steps() {
  std::vector<std::uint32_t> from(12);
  for (int i = 0; i < 12; ++i) from[i] = 1000 + i;
  std::vector<std::uint32_t> seen(20);
  launch(copy_steps_kernel<kBytes>, {1, 1}, nullptr, static_cast<const std::uint32_t*>(from.data()), seen.data());
  EXPECT_EQ(seen[0], ~0u) << "poisoned when issued";
  EXPECT_EQ(seen[1], ~0u) << "a commit lands nothing";
  EXPECT_EQ(seen[2], ~0u) << "two groups may be pending";
  EXPECT_EQ(seen[3], 1000u) << "the older group has landed";
  EXPECT_EQ(seen[4], ~0u) << "the younger has not";
  for (int i = 0; i < kBytes / 4; ++i) {
    EXPECT_EQ(seen[8 + i], 1000u + i);
    EXPECT_EQ(seen[12 + i], 1004u + i);
    EXPECT_EQ(seen[16 + i], 0u) << "not valid: zeros";
  }
}

TEST(CpAsync, lands_only_at_the_wait_for_its_group) {
  check_copy_steps<4>();
  check_copy_steps<8>();
  check_copy_steps<16>();
}

__global__ void uncommitted_kernel(const std::uint32_t* from, std::uint32_t* seen) {
  LADDER_SHARED(uint4, shared, );
  ptx::cp_async<16>(&shared, from, true);
  ptx::cp_async_wait<0>();
  seen[0] = shared.x;
}

TEST(CpAsync, without_commit_never_lands) {
  const std::vector<std::uint32_t> from(4, 5);
  std::uint32_t seen = 0;
  launch(uncommitted_kernel, {1, 1}, nullptr, from.data(), &seen);
  EXPECT_EQ(seen, ~0u);
}

std::atomic<int> line = 0;

__global__ void misplaced_copy_kernel(const char* from, char* global, int shared_offset, int global_offset,
                                      bool to_global) {
  LADDER_DYN_SMEM(dynamic);
  line = __LINE__ + 1;
  ptx::cp_async<8>(to_global ? global : reinterpret_cast<char*>(dynamic) + shared_offset, from + global_offset, true);
}

TEST(CpAsync, misplaced_copies_are_reported_with_the_kernels_line) {
  alignas(16) char from[64] = {};
  alignas(16) char to[64] = {};
  auto report = [&](int shared_offset, int global_offset, bool to_global) {
    return fault_of([&] {
      launch(misplaced_copy_kernel, {1, 1, 64}, nullptr, static_cast<const char*>(from), static_cast<char*>(to),
             shared_offset, global_offset, to_global);
    });
  };
  EXPECT_EQ(report(8, 16, false), "no fault");
  EXPECT_NE(report(4, 0, false).find("destination is not aligned"), std::string::npos);
  EXPECT_NE(report(0, 4, false).find("source is not aligned"), std::string::npos);
  EXPECT_NE(report(64, 0, false).find("not in the block's shared memory"), std::string::npos);
  EXPECT_NE(report(0, 0, true).find("not in the block's shared memory"), std::string::npos);
  EXPECT_NE(report(4, 0, false).find("memory.cpp:" + std::to_string(line)), std::string::npos);
}

}  // namespace
}  // namespace ladder::simt::test
