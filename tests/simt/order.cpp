// The order of accesses (core/simt/order.h), where tests/faults has no kernel for it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

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

// Thread 0 writes all elements but `missing`, and sums up.
template <class T>
__global__ void sum_kernel(unsigned missing, float* sum) {
  LADDER_SHARED(T, values, [16]);
  for (unsigned i = 0; i < 16; ++i) {
    if (i != missing) values[i] = static_cast<T>(1.0f);
  }
  *sum = 0;
  for (const T& value : values) *sum += static_cast<float>(value);
}

template <class T>
void check_unset() {
  float sum = 0;
  EXPECT_EQ(fault_of([&] { launch(sum_kernel<T>, {1, 1}, nullptr, 16u, &sum); }), "no fault");
  EXPECT_EQ(sum, 16.0f);
  for (const unsigned missing : {0u, 7u, 12u}) {
    const std::string said = fault_of([&] { launch(sum_kernel<T>, {1, 1}, nullptr, missing, &sum); });
    const std::string place = "values + " + std::to_string(missing * sizeof(T)) + " bytes";
    EXPECT_NE(said.find("nobody wrote this shared memory: "), std::string::npos) << said;
    EXPECT_NE(said.find(place), std::string::npos) << said;
    EXPECT_NE(said.find("tests/simt/order.cpp:"), std::string::npos) << said;
  }
}

TEST(Order, shared_memory_that_nobody_wrote_may_be_read_unless_it_is_asked_for) {
  float sum = 0;
  EXPECT_EQ(fault_of([&] { launch(sum_kernel<float>, {1, 1}, nullptr, 7u, &sum); }), "no fault");
  setenv("LADDER_ORDER", "unset", 1);
  check_unset<float>();
  check_unset<int>();
  check_unset<std::uint16_t>();
  check_unset<__half>();
  check_unset<__nv_bfloat16>();
  unsetenv("LADDER_ORDER");
}

// A byte of all ones, in a cell of which later writes have displaced its own, is none that nobody wrote.
__global__ void bytes_kernel(int* sum) {
  LADDER_SHARED(std::uint8_t, values, [4]);
  values[threadIdx.x] = 0xff;
  __syncthreads();
  if (threadIdx.x == 0) *sum = values[0] + values[1] + values[2] + values[3];
}

TEST(Order, bytes_that_were_written_are_not_unset) {
  int sum = 0;
  setenv("LADDER_ORDER", "unset", 1);
  EXPECT_EQ(fault_of([&] { launch(bytes_kernel, {1, 4}, nullptr, &sum); }), "no fault");
  unsetenv("LADDER_ORDER");
  EXPECT_EQ(sum, 4 * 0xff);
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
