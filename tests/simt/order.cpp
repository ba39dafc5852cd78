// The order of accesses (core/simt/order.h), where tests/faults has no kernel for it.
#include <gtest/gtest.h>

#include "core/backend.h"
#include "dev/ptx/mbarrier.h"
#include "tests/simt/support.h"

#if defined(LADDER_ORDER)

namespace ladder::simt::test {
namespace {

template <class T>
__global__ void neighbours_kernel() {
  LADDER_SHARED(T, values, [64]);
  values[threadIdx.x] = static_cast<T>(threadIdx.x);
}

TEST(Order, neighbours_in_the_same_four_bytes_do_not_race) {
  EXPECT_EQ(fault_of([] { launch(neighbours_kernel<std::uint16_t>, {1, 64}, nullptr); }), "no fault");
  EXPECT_EQ(fault_of([] { launch(neighbours_kernel<std::uint8_t>, {1, 64}, nullptr); }), "no fault");
}

// All threads read a value, those of the first warp announce it, and thread 0 overwrites it.
__global__ void readers_kernel(unsigned num_announcing) {
  LADDER_SHARED(int, value, );
  LADDER_SHARED(ptx::Mbarrier, read, );
  LADDER_SHARED(int, seen, [64]);
  if (threadIdx.x == 0) {
    value = 1;
    ptx::mbarrier_init(&read, num_announcing);
  }
  __syncthreads();
  seen[threadIdx.x] = value;
  if (threadIdx.x < num_announcing) ptx::mbarrier_arrive(&read);
  if (threadIdx.x != 0) return;
  ptx::mbarrier_wait(&read, 0);
  value = 2;
}

TEST(Order, every_reader_of_shared_memory_counts) {
  EXPECT_EQ(fault_of([] { launch(readers_kernel, {1, 64}, nullptr, 64u); }), "no fault");
  for (const std::string& schedule : schedules(2)) {
    const Scoped scoped(schedule);
    // Schedules differ in whether thread 63 has read when the value is overwritten.
    const std::string said = fault_of([] { launch(readers_kernel, {1, 64}, nullptr, 63u); });
    EXPECT_NE(said.find("by thread (63,0,0) of block (0,0,0)"), std::string::npos) << said;
    EXPECT_NE(said.find("a race: "), std::string::npos) << said;
    EXPECT_NE(said.find("shared array value + 0 bytes"), std::string::npos) << said;
  }
}

__global__ void add_kernel(int* sum, bool atomically) {
  if (atomically) {
    atomicAdd(sum, 1);
  } else {
    *sum += 1;
  }
}

TEST(Order, atomics_do_not_race_with_each_other) {
  auto* const sum = static_cast<int*>(backend::allocate(sizeof(int)));
  backend::set_bytes(sum, 0, sizeof(int));
  EXPECT_EQ(fault_of([=] { launch(add_kernel, {4, 32}, nullptr, sum, true); }), "no fault");
  EXPECT_NE(fault_of([=] {
              launch(add_kernel, {4, 1}, nullptr, sum, false);
            }).find("blocks of a grid"),
            std::string::npos);
  EXPECT_EQ(fault_of([=] { launch(add_kernel, {1, 1}, nullptr, sum, false); }), "no fault") << "of another launch";
  backend::release(sum);
}

}  // namespace
}  // namespace ladder::simt::test

#endif
