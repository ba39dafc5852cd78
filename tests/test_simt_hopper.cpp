// The emulator's Hopper units (mbarrier, TMA, wgmma) against plain loops, and the faults that the emulator must find.
#include <gtest/gtest.h>

#include "core/backend.h"

#if !defined(__CUDACC__)

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <random>

#include "dev/ptx/setmaxnreg.h"
#include "dev/ptx/tma.h"
#include "dev/ptx/wgmma.h"
#include "tests/simt/support.h"
#include "tests/support.h"

namespace ladder::simt::test {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

template <class T>
T from_float(float x) {
  if constexpr (std::is_same_v<T, float>)
    return x;
  else
    return detail::from_float<T>(x);
}

template <class T>
constexpr Dtype kDtype = std::is_same_v<T, __nv_bfloat16> ? Dtype::bf16
                         : std::is_same_v<T, __half>      ? Dtype::f16
                                                          : Dtype::tf32;

// Small integers, exact in every format, so that sums are exact in any order.
template <class T>
std::vector<T> integers(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<T> values(count);
  for (T& value : values) value = from_float<T>(static_cast<float>(static_cast<int>(random() % 9) - 4));
  return values;
}

// Array in 256-byte aligned memory, like device memory.
template <class T>
class Device {
 public:
  explicit Device(const std::vector<T>& values) : count_(values.size()) {
    data_ = static_cast<T*>(backend::allocate(count_ * sizeof(T)));
    std::copy(values.begin(), values.end(), data_);
  }
  ~Device() { backend::release(data_); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  T* data() const { return data_; }

 private:
  std::size_t count_;
  T* data_;
};

// --- mbarrier

// Threads 1, 2, .. store and arrive; thread 0 waits and sums. Repeat for `turns` phases.
__global__ void gather_kernel(int turns, int* sums) {
  LADDER_SHARED(ptx::Mbarrier, full, );
  LADDER_SHARED(ptx::Mbarrier, empty, );
  LADDER_SHARED(int, slots, [96]);
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&full, blockDim.x - 1);
    ptx::mbarrier_init(&empty, 1);
    ptx::mbarrier_fence_init();
  }
  __syncthreads();
  for (int turn = 0; turn < turns; ++turn) {
    if (threadIdx.x == 0) {
      ptx::mbarrier_wait(&full, turn % 2);
      int sum = 0;
      for (unsigned i = 1; i < blockDim.x; ++i) sum += slots[i];
      sums[turn] = sum;
      ptx::mbarrier_arrive(&empty);
    } else {
      ptx::mbarrier_wait(&empty, (turn + 1) % 2);  // the first wait returns at once
      slots[threadIdx.x] = static_cast<int>(threadIdx.x) * (turn + 1);
      ptx::mbarrier_arrive(&full);
    }
  }
}

TEST(Mbarrier, phases_order_producers_and_consumer) {
  for (const std::string& schedule : schedules(4)) {
    const Scoped scoped(schedule);
    int sums[5] = {};
    launch(gather_kernel, {1, 96}, nullptr, 5, static_cast<int*>(sums));
    for (int turn = 0; turn < 5; ++turn) EXPECT_EQ(sums[turn], 95 * 96 / 2 * (turn + 1)) << schedule;
  }
}

enum class Misuse {
  uninitialised,
  misaligned,
  global,
  twice,
  no_arrivals,
  parity,
  never,
  too_many_bytes,
  over_arrival,
  missed_phase,
};
int line = 0;

__global__ void misuse_kernel(Misuse misuse, ptx::Mbarrier* global) {
  LADDER_SHARED(ptx::Mbarrier, barriers, [4]);
  ptx::Mbarrier* barrier = &barriers[0];
  if (misuse == Misuse::missed_phase) {
    if (threadIdx.x == 0) ptx::mbarrier_init(barrier, 1);
    __syncthreads();
    if (threadIdx.x == 0) ptx::mbarrier_wait(barrier, 0);
    if (threadIdx.x == 1) {
      ptx::mbarrier_arrive(barrier);
      ptx::mbarrier_arrive(barrier);
    }
    return;
  }
  if (threadIdx.x != 0) return;
  switch (misuse) {
    case Misuse::uninitialised:
      line = __LINE__ + 1;
      return ptx::mbarrier_arrive(barrier);
    case Misuse::misaligned:
      return ptx::mbarrier_init(reinterpret_cast<ptx::Mbarrier*>(reinterpret_cast<char*>(barrier) + 4), 1);
    case Misuse::global:
      return ptx::mbarrier_init(global, 1);
    case Misuse::twice:
      ptx::mbarrier_init(barrier, 1);
      return ptx::mbarrier_init(barrier, 1);
    case Misuse::no_arrivals:
      return ptx::mbarrier_init(barrier, 0);
    case Misuse::parity:
      ptx::mbarrier_init(barrier, 1);
      return ptx::mbarrier_wait(barrier, 2);
    case Misuse::never:
      ptx::mbarrier_init(barrier, 2);
      ptx::mbarrier_arrive(barrier);
      line = __LINE__ + 1;
      ptx::mbarrier_wait(barrier, 0);
      return;
    case Misuse::too_many_bytes:
      ptx::mbarrier_init(barrier, 1);
      return ptx::mbarrier_arrive_expect_tx(barrier, 1 << 20);
    case Misuse::over_arrival:
      ptx::mbarrier_init(barrier, 1);
      ptx::mbarrier_arrive_expect_tx(barrier, 64);
      return ptx::mbarrier_arrive(barrier);
    case Misuse::missed_phase:
      return;
  }
}

TEST(Mbarrier, misuse_is_reported) {
  alignas(8) ptx::Mbarrier global = 0;
  auto report = [&](Misuse misuse) {
    return fault_of([&] { launch(misuse_kernel, {1, 2}, nullptr, misuse, &global); });
  };
  EXPECT_TRUE(contains(report(Misuse::uninitialised), "before it was initialised"));
  EXPECT_TRUE(contains(report(Misuse::uninitialised), "test_simt_hopper.cpp:" + std::to_string(line)));
  EXPECT_TRUE(contains(report(Misuse::misaligned), "not aligned to 8"));
  EXPECT_TRUE(contains(report(Misuse::global), "not in the block's shared memory"));
  EXPECT_TRUE(contains(report(Misuse::twice), "initialised twice"));
  EXPECT_TRUE(contains(report(Misuse::no_arrivals), "0 arrivals"));
  EXPECT_TRUE(contains(report(Misuse::parity), "parity 2"));
  EXPECT_TRUE(contains(report(Misuse::too_many_bytes), "announced"));
  EXPECT_TRUE(contains(report(Misuse::over_arrival), "one arrival more than the 1"));
  EXPECT_TRUE(contains(report(Misuse::missed_phase), "and the next one too")) << report(Misuse::missed_phase);
  const std::string deadlock = report(Misuse::never);
  EXPECT_TRUE(contains(deadlock, "deadlock")) << deadlock;
  EXPECT_TRUE(contains(deadlock, "mbarrier_wait")) << deadlock;
  EXPECT_TRUE(contains(deadlock, "1 of 2 arrivals")) << deadlock;
  EXPECT_TRUE(contains(deadlock, "test_simt_hopper.cpp:" + std::to_string(line))) << deadlock;
}

// --- TMA

struct Corner {
  int x[4];
};

// Copy one box to shared memory, then shared memory to `out`, byte for byte.
template <int kRank>
__global__ void fetch_kernel(const __grid_constant__ ptx::TensorMap map, Corner corner, int offset, int bytes,
                             unsigned char* out) {
  LADDER_DYN_SMEM(smem);
  LADDER_SHARED(ptx::Mbarrier, full, );
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&full, 1);
    ptx::mbarrier_fence_init();
    ptx::tma_prefetch(map);
    ptx::mbarrier_arrive_expect_tx(&full, bytes);
    if constexpr (kRank == 3) {
      ptx::tma_load(smem + offset, map, &full, corner.x[0], corner.x[1], corner.x[2]);
    } else {
      ptx::tma_load(smem + offset, map, &full, corner.x[0], corner.x[1], corner.x[2], corner.x[3]);
    }
  }
  __syncthreads();
  ptx::mbarrier_wait(&full, 0);
  for (int i = static_cast<int>(threadIdx.x); i < bytes; i += static_cast<int>(blockDim.x)) out[i] = smem[offset + i];
}

// Offset, from a box's start, of byte `byte` in 128-byte row `row` under the 128-byte swizzle. The box starts at row
// `first` of the swizzle's pattern of eight rows.
int swizzled(int first, int row, int byte) { return row * 128 + ((byte / 16) ^ ((first + row) % 8)) * 16 + byte % 16; }

template <class T>
void check_boxes() {
  constexpr int kC = 128 / sizeof(T);
  constexpr std::uint64_t kDims[4] = {2 * kC - 8, 9, 7, 3};
  constexpr std::uint32_t kBox[4] = {kC, 5, 4, 2};
  std::vector<T> values(kDims[0] * kDims[1] * kDims[2] * kDims[3]);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = from_float<T>(static_cast<float>(i % 251 + 1));
  const Device<T> tensor(values);
  const auto map = ptx::make_tensor_map(kDtype<T>, tensor.data(), {kDims[0], kDims[1], kDims[2], kDims[3]},
                                        {kBox[0], kBox[1], kBox[2], kBox[3]});
  constexpr int kRows = kBox[1] * kBox[2] * kBox[3];
  constexpr int kBytes = kRows * 128;
  const Corner corners[] = {{{0, 0, 0, 0}},        {{8, 3, 2, 1}},  {{-8, -1, -1, -1}}, {{kC, 6, 5, 2}},
                            {{-kC, 0, 0, 0}},      {{0, 0, 0, 3}},  {{0, -5, 0, 0}},    {{2 * kC - 16, 8, 6, 2}},
                            {{8 - kC, -4, -3, 0}}, {{8, 100, 0, 0}}};
  for (const std::string& schedule : schedules(1)) {
    const Scoped scoped(schedule);
    for (const Corner& corner : corners) {
      for (const int first : {0, 3}) {
        std::vector<unsigned char> out(kBytes);
        launch(fetch_kernel<4>, {1, 64, kBytes + 1024}, nullptr, map, corner, first * 128, kBytes, out.data());
        for (int row = 0; row < kRows; ++row) {
          const int y[3] = {corner.x[1] + row % 5, corner.x[2] + row / 5 % 4, corner.x[3] + row / 20};
          for (int c = 0; c < kC; ++c) {
            const int x = corner.x[0] + c;
            bool inside = x >= 0 && x < static_cast<int>(kDims[0]);
            for (int i = 0; i < 3; ++i) inside = inside && y[i] >= 0 && y[i] < static_cast<int>(kDims[i + 1]);
            T expected = from_float<T>(0);
            if (inside) expected = values[((y[2] * kDims[2] + y[1]) * kDims[1] + y[0]) * kDims[0] + x];
            ASSERT_EQ(std::memcmp(&out[swizzled(first, row, c * static_cast<int>(sizeof(T)))], &expected, sizeof(T)), 0)
                << schedule << " corner " << corner.x[0] << "," << corner.x[1] << "," << corner.x[2] << ","
                << corner.x[3] << " start row " << first << " row " << row << " element " << c;
          }
        }
      }
    }
  }
}

TEST(Tma, boxes_at_every_edge_are_swizzled_and_zero_filled) {
  check_boxes<__nv_bfloat16>();
  check_boxes<__half>();
  check_boxes<float>();
}

TEST(Tma, three_dimensions) {
  const std::vector<float> values = integers<float>(32 * 4 * 3, 1);
  const Device<float> tensor(values);
  const auto map = ptx::make_tensor_map(Dtype::f32, tensor.data(), {32, 4, 3}, {32, 2, 2});
  std::vector<unsigned char> out(32 * 4 * 4);
  launch(fetch_kernel<3>, {1, 32, 1024}, nullptr, map, Corner{{0, 3, 1, 0}}, 0, 512, out.data());
  for (int row = 0; row < 4; ++row) {
    const int y = 3 + row % 2;
    const int z = 1 + row / 2;
    for (int c = 0; c < 32; ++c) {
      float fetched;
      std::memcpy(&fetched, &out[swizzled(0, row, c * 4)], 4);
      ASSERT_EQ(fetched, y < 4 ? values[(z * 4 + y) * 32 + c] : 0.0f) << row << " " << c;
    }
  }
}

// An H200 refuses such coordinates too, with an illegal instruction.
TEST(Tma, innermost_coordinates_off_16_bytes_are_refused) {
  const Device<__nv_bfloat16> tensor(std::vector<__nv_bfloat16>(64 * 4));
  const auto map = ptx::make_tensor_map(Dtype::bf16, tensor.data(), {64, 4, 1}, {64, 2, 1});
  std::vector<unsigned char> out(256);
  for (const int x : {-4, -1, 1, 4, 12}) {
    try {
      launch(fetch_kernel<3>, {1, 32, 1024}, nullptr, map, Corner{{x, 0, 0, 0}}, 0, 256, out.data());
      FAIL() << x << " was accepted";
    } catch (const simt::Fault& fault) {
      EXPECT_TRUE(contains(fault.what(), "multiple of 16 bytes")) << fault.what();
    }
  }
}

std::string refusal(std::initializer_list<std::uint64_t> dims, std::initializer_list<std::uint32_t> box,
                    int offset = 0) {
  alignas(16) static char memory[64];
  try {
    ptx::make_tensor_map(Dtype::bf16, memory + offset, dims, box);
  } catch (const Failure& failure) {
    return failure.what();
  }
  return "accepted";
}

TEST(Tma, maps_that_the_driver_refuses_are_refused) {
  EXPECT_EQ(refusal({64, 8}, {64, 8}), "accepted");
  EXPECT_EQ(refusal({3}, {8}), "accepted") << "one dimension has no stride to be wrong";
  EXPECT_TRUE(contains(refusal({64, 8}, {64, 8}, 8), "multiple of 16"));
  EXPECT_TRUE(contains(refusal({3, 8}, {8, 8}), "stride of 6 bytes"));
  EXPECT_TRUE(contains(refusal({64, 8}, {64, 257}), "257 elements"));
  EXPECT_TRUE(contains(refusal({64, 8}, {64, 0}), "0 elements"));
  EXPECT_TRUE(contains(refusal({128, 8}, {128, 8}), "256 bytes"));
  EXPECT_TRUE(contains(refusal({64, 8}, {4, 8}), "8 bytes"));
  EXPECT_TRUE(contains(refusal({64, 0}, {64, 1}), "dimension 1 has 0"));
  EXPECT_TRUE(contains(refusal({64, 8}, {64}), "a box of 1"));
  EXPECT_TRUE(contains(refusal({8, 8, 8, 8, 8, 8}, {8, 1, 1, 1, 1, 1}), "6 dimensions"));
}

enum class TmaMisuse { aligned, outside, rank, unannounced, twice_announced, unwaited, static_memory };

__global__ void tma_misuse_kernel(const __grid_constant__ ptx::TensorMap map, TmaMisuse misuse) {
  LADDER_DYN_SMEM(smem);
  LADDER_SHARED(alignas(128) unsigned char, elsewhere, [1024]);
  auto* full = reinterpret_cast<ptx::Mbarrier*>(smem + 2048);
  ptx::mbarrier_init(full, 1);
  const unsigned announced = misuse == TmaMisuse::unannounced       ? 512
                             : misuse == TmaMisuse::twice_announced ? 2048
                                                                    : 1024;
  ptx::mbarrier_arrive_expect_tx(full, announced);
  switch (misuse) {
    case TmaMisuse::aligned:
      return ptx::tma_load(smem + 64, map, full, 0, 0, 0);
    case TmaMisuse::outside:
      return ptx::tma_load(smem + 1280, map, full, 0, 0, 0);
    case TmaMisuse::rank:
      return ptx::tma_load(smem, map, full, 0, 0, 0, 0);
    case TmaMisuse::static_memory:
      return ptx::tma_load(elsewhere, map, full, 0, 0, 0);
    default:
      break;
  }
  line = __LINE__ + 1;
  ptx::tma_load(smem, map, full, 0, 0, 0);
  if (misuse != TmaMisuse::unwaited) ptx::mbarrier_wait(full, 0);
}

TEST(Tma, misuse_is_reported) {
  const Device<float> tensor(std::vector<float>(32 * 8));
  const auto map = ptx::make_tensor_map(Dtype::f32, tensor.data(), {32, 8, 1}, {32, 8, 1});
  auto report = [&](TmaMisuse misuse) {
    return fault_of([&] { launch(tma_misuse_kernel, {1, 1, 2048 + 8}, nullptr, map, misuse); });
  };
  for (const std::string& schedule : schedules(2)) {
    const Scoped scoped(schedule);
    EXPECT_TRUE(contains(report(TmaMisuse::aligned), "not aligned to 128"));
    EXPECT_TRUE(contains(report(TmaMisuse::outside), "not within the block's dynamic"));
    EXPECT_TRUE(contains(report(TmaMisuse::static_memory), "not within the block's dynamic"));
    EXPECT_TRUE(contains(report(TmaMisuse::rank), "4 coordinates for a tensor map of 3"));
    const std::string more = report(TmaMisuse::unannounced);
    EXPECT_TRUE(contains(more, "512 bytes more have landed than were announced")) << more;
    EXPECT_TRUE(contains(more, "test_simt_hopper.cpp:" + std::to_string(line))) << more;
    const std::string fewer = report(TmaMisuse::twice_announced);
    EXPECT_TRUE(contains(fewer, "1024 bytes outstanding")) << fewer;
  }
  const Scoped scoped("desc");
  EXPECT_TRUE(contains(report(TmaMisuse::unwaited), "ended while the copy was in flight"));
}

// Read a copy's destination before and after the wait.
__global__ void in_flight_kernel(const __grid_constant__ ptx::TensorMap map, float* before, float* after) {
  LADDER_DYN_SMEM(smem);
  LADDER_SHARED(ptx::Mbarrier, full, );
  auto* values = reinterpret_cast<float*>(smem);
  ptx::mbarrier_init(&full, 1);
  values[5] = 7;
  ptx::wgmma_fence_stores();
  ptx::mbarrier_arrive_expect_tx(&full, 1024);
  ptx::tma_load(smem, map, &full, 0, 0, 0);
  *before = values[5];
  ptx::mbarrier_wait(&full, 0);
  *after = values[5];
}

TEST(Tma, destination_is_nan_until_the_copy_lands) {
  const Device<float> tensor(std::vector<float>(32 * 8, 3.0f));
  const auto map = ptx::make_tensor_map(Dtype::f32, tensor.data(), {32, 8, 1}, {32, 8, 1});
  for (const std::string& schedule : schedules(2)) {
    const Scoped scoped(schedule);
    float before = 0;
    float after = 0;
    const auto run = [&] { launch(in_flight_kernel, {1, 1, 1024}, nullptr, map, &before, &after); };
    if (ladder::test::kChecksOrder) {
      EXPECT_TRUE(contains(fault_of(run), "no wait for the mbarrier phase that this copy completes"));
      continue;
    }
    run();
    if (schedule == "asc") {
      EXPECT_EQ(before, 3.0f);
    }
    if (schedule == "desc") {
      EXPECT_TRUE(std::isnan(before));
    }
    EXPECT_EQ(after, 3.0f);
  }
}

// --- wgmma

// K-major operand in an image of 128-byte rows: its first row, and the distance in rows of its groups of eight.
struct Operand {
  int first_row;
  int group_rows;

  int row(int i) const { return first_row + i / 8 * group_rows + i % 8; }
};

// d = a b (+ c if not null), in `steps` K steps of 32 bytes, the last half of them in a second wgmma group. Plain
// stores lay out the operands' image in shared memory.
template <class T, int kN>
__global__ void multiply_kernel(const T* image, int num_rows, Operand a, Operand b, int steps, const float* c,
                                float* out) {
  constexpr int kRowElements = 128 / sizeof(T);
  LADDER_DYN_SMEM(smem);
  for (int i = static_cast<int>(threadIdx.x); i < num_rows * kRowElements; i += static_cast<int>(blockDim.x)) {
    const int byte = i % kRowElements * static_cast<int>(sizeof(T));
    *reinterpret_cast<T*>(smem + swizzled(0, i / kRowElements, byte)) = image[i];
  }
  ptx::wgmma_fence_stores();
  __syncthreads();
  const int row = static_cast<int>(threadIdx.x) / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
  const int column = static_cast<int>(threadIdx.x) % 4 * 2;
  auto for_each = [&](auto f) {
    for (int i = 0; i < kN / 2; ++i) f(i, (row + i / 2 % 2 * 8) * kN + column + i / 4 * 8 + i % 2);
  };
  float d[kN / 2];
  if (c) for_each([&](int i, int at) { d[i] = c[at]; });
  std::uint64_t desc_a = ptx::wgmma_descriptor(smem + a.first_row * 128, a.group_rows * 128);
  std::uint64_t desc_b = ptx::wgmma_descriptor(smem + b.first_row * 128, b.group_rows * 128);
  ptx::wgmma_fence();
  for (int step = 0; step < steps; ++step) {
    ptx::wgmma_m64<T, kN>(d, desc_a, desc_b, c != nullptr || step > 0);
    desc_a += 2;
    desc_b += 2;
    if (step == steps / 2) ptx::wgmma_commit();
  }
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  ptx::warpgroup_fence_operand(d);
  for_each([&](int i, int at) { out[at] = d[i]; });
}

template <class T, int kN>
void check_multiply(Operand a, Operand b, bool accumulate) {
  constexpr int kRowElements = 128 / sizeof(T);
  const int num_rows = std::max(a.row(63), b.row(kN - 1)) + 1;
  const std::vector<T> image = integers<T>(static_cast<std::size_t>(num_rows) * kRowElements, kN);
  std::vector<float> c(64 * kN);
  for (int i = 0; i < 64 * kN; ++i) c[i] = static_cast<float>(i % 1000);
  auto element = [&](int row, int k) {
    if constexpr (std::is_same_v<T, float>)
      return image[row * kRowElements + k];
    else
      return detail::to_float(image[row * kRowElements + k]);
  };
  for (const std::string& schedule : schedules(2)) {
    const Scoped scoped(schedule);
    std::vector<float> out(64 * kN, -1);
    launch(multiply_kernel<T, kN>, {1, 128, static_cast<std::size_t>(num_rows) * 128}, nullptr, image.data(), num_rows,
           a, b, 4, accumulate ? c.data() : nullptr, out.data());
    for (int i = 0; i < 64; ++i) {
      for (int j = 0; j < kN; ++j) {
        float expected = accumulate ? c[i * kN + j] : 0;
        for (int k = 0; k < kRowElements; ++k) expected += element(a.row(i), k) * element(b.row(j), k);
        ASSERT_EQ(out[i * kN + j], expected) << schedule << " n" << kN << " row " << i << " column " << j;
      }
    }
  }
}

template <class T, int kN>
void check_operands() {
  constexpr int kDense = 8;
  constexpr int kHalo = 10;  // 1280 bytes
  check_multiply<T, kN>({0, kDense}, {64, kDense}, false);
  check_multiply<T, kN>({0, kDense}, {64, kDense}, true);
  check_multiply<T, kN>({3, kDense}, {80 + 5, kDense}, true);
  check_multiply<T, kN>({11, kHalo}, {96 + 2, kDense}, false);
  check_multiply<T, kN>({kN > 64 ? 400 : 128, kDense}, {21, kHalo}, false);
}

TEST(Wgmma, every_format_width_stride_and_start) {
  check_operands<__nv_bfloat16, 8>();
  check_operands<__nv_bfloat16, 64>();
  check_operands<__nv_bfloat16, 96>();
  check_operands<__nv_bfloat16, 128>();
  check_operands<__nv_bfloat16, 192>();
  check_operands<__nv_bfloat16, 256>();
  check_operands<__half, 64>();
  check_operands<__half, 256>();
  check_operands<float, 64>();
  check_operands<float, 96>();
  check_operands<float, 256>();
}

// MN-major operand in an image of 128-byte rows. A row holds 64 elements of M or N at one k.
struct MnOperand {
  int first_row;
  int group_rows;  // rows from a group of eight k to the next
  int chunk_rows;  // rows from 64 elements of M or N to the next

  int row(int mn, int k) const { return first_row + k / 8 * group_rows + k % 8 + mn / 64 * chunk_rows; }
};

// d = a b with MN-major operands, in two K steps of 16, each in its own wgmma group.
template <class T, int kN>
__global__ void multiply_mn_kernel(const T* image, int num_rows, MnOperand a, MnOperand b, float* out) {
  LADDER_DYN_SMEM(smem);
  for (int i = static_cast<int>(threadIdx.x); i < num_rows * 64; i += static_cast<int>(blockDim.x)) {
    *reinterpret_cast<T*>(smem + swizzled(0, i / 64, i % 64 * 2)) = image[i];
  }
  ptx::wgmma_fence_stores();
  __syncthreads();
  float d[kN / 2];
  ptx::wgmma_fence();
  for (int step = 0; step < 2; ++step) {
    const auto desc_a =
        ptx::wgmma_descriptor_mn(smem + a.row(0, 16 * step) * 128, a.group_rows * 128, a.chunk_rows * 128);
    const auto desc_b =
        ptx::wgmma_descriptor_mn(smem + b.row(0, 16 * step) * 128, b.group_rows * 128, b.chunk_rows * 128);
    ptx::wgmma_m64_mn<T, kN>(d, desc_a, desc_b, step > 0);
    ptx::wgmma_commit();
  }
  ptx::wgmma_wait<0>();
  ptx::warpgroup_fence_operand(d);
  const int row = static_cast<int>(threadIdx.x) / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
  const int column = static_cast<int>(threadIdx.x) % 4 * 2;
  for (int i = 0; i < kN / 2; ++i) out[(row + i / 2 % 2 * 8) * kN + column + i / 4 * 8 + i % 2] = d[i];
}

template <class T, int kN>
void check_mn_operands(MnOperand a, MnOperand b) {
  const int num_rows = std::max(a.row(63, 31), b.row(kN - 1, 31)) + 1;
  const std::vector<T> image = integers<T>(static_cast<std::size_t>(num_rows) * 64, kN);
  for (const std::string& schedule : schedules(2)) {
    const Scoped scoped(schedule);
    std::vector<float> out(64 * kN, -1);
    launch(multiply_mn_kernel<T, kN>, {1, 128, static_cast<std::size_t>(num_rows) * 128}, nullptr, image.data(),
           num_rows, a, b, out.data());
    for (int i = 0; i < 64; ++i) {
      for (int j = 0; j < kN; ++j) {
        float expected = 0;
        for (int k = 0; k < 32; ++k) {
          expected +=
              detail::to_float(image[a.row(i, k) * 64 + i]) * detail::to_float(image[b.row(j, k) * 64 + j % 64]);
        }
        ASSERT_EQ(out[i * kN + j], expected) << schedule << " n" << kN << " row " << i << " column " << j;
      }
    }
  }
}

TEST(Wgmma, mn_major_operands) {
  check_mn_operands<__nv_bfloat16, 64>({0, 8, 1}, {32, 8, 1});
  check_mn_operands<__half, 128>({3, 10, 1}, {40, 8, 32});
  check_mn_operands<__nv_bfloat16, 192>({0, 8, 1}, {37, 10, 1});  // three horizontal taps of a halo tile
  check_mn_operands<__nv_bfloat16, 192>({5, 8, 1}, {37, 8, 66});  // three vertical taps
}

// d = a b with K-major a and MN-major b, in four K steps of 16.
template <class T, int kN>
__global__ void multiply_b_mn_kernel(const T* image, int num_rows, Operand a, MnOperand b, float* out) {
  LADDER_DYN_SMEM(smem);
  for (int i = static_cast<int>(threadIdx.x); i < num_rows * 64; i += static_cast<int>(blockDim.x)) {
    *reinterpret_cast<T*>(smem + swizzled(0, i / 64, i % 64 * 2)) = image[i];
  }
  ptx::wgmma_fence_stores();
  __syncthreads();
  float d[kN / 2];
  ptx::wgmma_fence();
  for (int step = 0; step < 4; ++step) {
    const auto desc_a = ptx::wgmma_descriptor(smem + a.first_row * 128 + step * 32, a.group_rows * 128);
    const auto desc_b =
        ptx::wgmma_descriptor_mn(smem + b.row(0, 16 * step) * 128, b.group_rows * 128, b.chunk_rows * 128);
    ptx::wgmma_m64_b_mn<T, kN>(d, desc_a, desc_b, step > 0);
  }
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  ptx::warpgroup_fence_operand(d);
  const int row = static_cast<int>(threadIdx.x) / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
  const int column = static_cast<int>(threadIdx.x) % 4 * 2;
  for (int i = 0; i < kN / 2; ++i) out[(row + i / 2 % 2 * 8) * kN + column + i / 4 * 8 + i % 2] = d[i];
}

template <class T, int kN>
void check_b_mn_operands(Operand a, MnOperand b) {
  const int num_rows = std::max(a.row(63), b.row(kN - 1, 63)) + 1;
  const std::vector<T> image = integers<T>(static_cast<std::size_t>(num_rows) * 64, kN);
  for (const std::string& schedule : schedules(2)) {
    const Scoped scoped(schedule);
    std::vector<float> out(64 * kN, -1);
    launch(multiply_b_mn_kernel<T, kN>, {1, 128, static_cast<std::size_t>(num_rows) * 128}, nullptr, image.data(),
           num_rows, a, b, out.data());
    for (int i = 0; i < 64; ++i) {
      for (int j = 0; j < kN; ++j) {
        float expected = 0;
        for (int k = 0; k < 64; ++k) {
          expected += detail::to_float(image[a.row(i) * 64 + k]) * detail::to_float(image[b.row(j, k) * 64 + j % 64]);
        }
        ASSERT_EQ(out[i * kN + j], expected) << schedule << " n" << kN << " row " << i << " column " << j;
      }
    }
  }
}

TEST(Wgmma, only_b_mn_major) {
  check_b_mn_operands<__nv_bfloat16, 64>({0, 8}, {64, 8, 64});
  check_b_mn_operands<__half, 96>({11, 10}, {96, 8, 64});
  check_b_mn_operands<__nv_bfloat16, 128>({3, 8}, {80, 8, 64});
}

// d = a b with a in registers, which are reloaded after each step's wait.
template <class T, int kN>
__global__ void multiply_a_registers_kernel(const T* image, int num_rows, Operand a, Operand b, float* out) {
  constexpr int kRowElements = 128 / sizeof(T);
  LADDER_DYN_SMEM(smem);
  for (int i = static_cast<int>(threadIdx.x); i < num_rows * kRowElements; i += static_cast<int>(blockDim.x)) {
    const int byte = i % kRowElements * static_cast<int>(sizeof(T));
    *reinterpret_cast<T*>(smem + swizzled(0, i / kRowElements, byte)) = image[i];
  }
  ptx::wgmma_fence_stores();
  __syncthreads();
  const int row = static_cast<int>(threadIdx.x) / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
  const int column = static_cast<int>(threadIdx.x) % 4;
  float d[kN / 2];
  std::uint32_t fragments[4];
  for (int step = 0; step < 4; ++step) {
    for (int i = 0; i < 4; ++i) {
      const int byte = 32 * step + 4 * column + i / 2 * 16;
      std::memcpy(fragments + i, smem + swizzled(0, a.row(row + i % 2 * 8), byte), 4);
    }
    ptx::wgmma_fence();
    const auto desc_b = ptx::wgmma_descriptor(smem + b.first_row * 128 + 32 * step, b.group_rows * 128);
    ptx::wgmma_m64_a_registers<T, kN>(d, fragments, desc_b, step > 0);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    ptx::warpgroup_fence_operand(d);
  }
  for (int i = 0; i < kN / 2; ++i) out[(row + i / 2 % 2 * 8) * kN + 2 * column + i / 4 * 8 + i % 2] = d[i];
}

template <class T, int kN>
void check_a_registers(Operand a, Operand b) {
  constexpr int kRowElements = 128 / sizeof(T);
  const int num_rows = std::max(a.row(63), b.row(kN - 1)) + 1;
  const std::vector<T> image = integers<T>(static_cast<std::size_t>(num_rows) * kRowElements, kN);
  auto element = [&](int row, int k) {
    if constexpr (std::is_same_v<T, float>)
      return image[row * kRowElements + k];
    else
      return detail::to_float(image[row * kRowElements + k]);
  };
  for (const std::string& schedule : schedules(2)) {
    const Scoped scoped(schedule);
    std::vector<float> out(64 * kN, -1);
    launch(multiply_a_registers_kernel<T, kN>, {1, 128, static_cast<std::size_t>(num_rows) * 128}, nullptr,
           image.data(), num_rows, a, b, out.data());
    for (int i = 0; i < 64; ++i) {
      for (int j = 0; j < kN; ++j) {
        float expected = 0;
        for (int k = 0; k < kRowElements; ++k) expected += element(a.row(i), k) * element(b.row(j), k);
        ASSERT_EQ(out[i * kN + j], expected) << schedule << " n" << kN << " row " << i << " column " << j;
      }
    }
  }
}

TEST(Wgmma, a_in_registers) {
  check_a_registers<float, 64>({0, 8}, {64, 8});
  check_a_registers<float, 64>({3, 10}, {90, 8});
  check_a_registers<__nv_bfloat16, 64>({11, 8}, {80, 10});
  check_a_registers<__half, 96>({0, 8}, {64, 8});
  check_a_registers<__nv_bfloat16, 48>({0, 8}, {64, 8});
}

// All elements are 1, so each sum of eight products is 8 if A's registers stay unchanged until the wait.
__global__ void change_a_kernel(bool fence_again, int changed_before, float* out) {
  LADDER_DYN_SMEM(smem);
  for (unsigned i = threadIdx.x; i < 64 * 32; i += blockDim.x) reinterpret_cast<float*>(smem)[i] = 1;
  ptx::wgmma_fence_stores();
  __syncthreads();
  const std::uint64_t b = ptx::wgmma_descriptor(smem, 1024);
  const std::uint32_t one = std::bit_cast<std::uint32_t>(1.0f);
  std::uint32_t a[4] = {one, one, one, one};
  float d[32] = {};
  ptx::wgmma_fence();
  ptx::wgmma_m64_a_registers<float, 64>(d, a, b, true);
  ptx::wgmma_commit();
  if (changed_before == 0) a[2] = 0;
  ptx::wgmma_wait<0>();
  if (changed_before == 1) a[2] = 0;
  if (fence_again) ptx::wgmma_fence();
  ptx::wgmma_m64_a_registers<float, 64>(d, a, b, true);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  out[threadIdx.x] = d[1];
}

TEST(Wgmma, registers_of_a_are_read_until_the_wait) {
  const Scoped scoped("desc");
  std::vector<float> out(128);
  auto sum = [&](int changed_before) {
    launch(change_a_kernel, {1, 128, 64 * 128}, nullptr, true, changed_before, out.data());
    return out[77];
  };
  EXPECT_EQ(sum(2), 16);
  EXPECT_EQ(sum(1), 12);
  EXPECT_EQ(sum(0), 8);
  const std::string report = fault_of([&] {
    launch(change_a_kernel, {1, 128, 64 * 128}, nullptr, false, 1, out.data());
  });
  EXPECT_TRUE(contains(report, "A is in registers, and no wgmma_fence since the last wait"));
}

// Operands in rows of 64 bytes; the first 64 rows are A, the rest B. d[0] = a b with both K-major. d[1] = a b with both
// MN-major, in chunks of 32 rows of memory. d[2] = a b with d[0]'s A in registers and d[1]'s B. Two K steps each.
template <class T, int kN>
__global__ void multiply_rows_of_64_bytes_kernel(const T* image, float* out) {
  LADDER_DYN_SMEM(smem);
  for (int i = static_cast<int>(threadIdx.x); i < (64 + kN) * 32; i += static_cast<int>(blockDim.x)) {
    const int row = i / 32;
    const int run = i % 32 / 8 ^ row / 2 % 4;
    *reinterpret_cast<T*>(smem + row * 64 + run * 16 + i % 8 * 2) = image[i];
  }
  ptx::wgmma_fence_stores();
  __syncthreads();
  const int row = static_cast<int>(threadIdx.x) / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
  const int column = static_cast<int>(threadIdx.x) % 4 * 2;
  const std::uint64_t a_k = ptx::wgmma_descriptor<64>(smem, 512);
  const std::uint64_t b_k = ptx::wgmma_descriptor<64>(smem + 64 * 64, 512);
  const std::uint64_t a_mn = ptx::wgmma_descriptor_mn<64>(smem, 512, 32 * 64);
  const std::uint64_t b_mn = ptx::wgmma_descriptor_mn<64>(smem + 64 * 64, 512, 32 * 64);
  float d[3][kN / 2];
  std::uint32_t a[2][4];
  for (int i = 0; i < 8; ++i)
    std::memcpy(a[i / 4] + i % 4, image + (row + i % 2 * 8) * 32 + i / 4 * 16 + column + i / 2 % 2 * 8, 4);
  ptx::wgmma_fence();
  for (int step = 0; step < 2; ++step) {
    ptx::wgmma_m64<T, kN>(d[0], ptx::wgmma_ahead(a_k, step * 32), ptx::wgmma_ahead(b_k, step * 32), step > 0);
    ptx::wgmma_m64_mn<T, kN>(d[1], ptx::wgmma_ahead(a_mn, step * 1024), ptx::wgmma_ahead(b_mn, step * 1024), step > 0);
    ptx::wgmma_m64_a_registers_b_mn<T, kN>(d[2], a[step], ptx::wgmma_ahead(b_mn, step * 1024), step > 0);
  }
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  for (int product = 0; product < 3; ++product) {
    for (int i = 0; i < kN / 2; ++i)
      out[(product * 64 + row + i / 2 % 2 * 8) * kN + column + i / 4 * 8 + i % 2] = d[product][i];
  }
}

template <class T, int kN>
void check_rows_of_64_bytes() {
  const std::vector<T> image = integers<T>((64 + kN) * 32, kN);
  auto at = [&](int row, int column) { return detail::to_float(image[row * 32 + column]); };
  auto k_major = [&](int first, int mn, int k) { return at(first + mn, k); };
  auto mn_major = [&](int first, int mn, int k) { return at(first + mn / 32 * 32 + k, mn % 32); };
  for (const std::string& schedule : schedules(2)) {
    const Scoped scoped(schedule);
    std::vector<float> out(3 * 64 * kN, -1);
    launch(multiply_rows_of_64_bytes_kernel<T, kN>, {1, 128, (64 + kN) * 64}, nullptr, image.data(), out.data());
    for (int i = 0; i < 64; ++i) {
      for (int j = 0; j < kN; ++j) {
        float expected[3] = {};
        for (int k = 0; k < 32; ++k) {
          expected[0] += k_major(0, i, k) * k_major(64, j, k);
          expected[1] += mn_major(0, i, k) * mn_major(64, j, k);
          expected[2] += k_major(0, i, k) * mn_major(64, j, k);
        }
        for (int product = 0; product < 3; ++product) {
          ASSERT_EQ(out[(product * 64 + i) * kN + j], expected[product])
              << schedule << " n" << kN << " product " << product << " row " << i << " column " << j;
        }
      }
    }
  }
}

TEST(Wgmma, rows_of_64_bytes_and_a_in_registers) {
  check_rows_of_64_bytes<__nv_bfloat16, 32>();
  check_rows_of_64_bytes<__half, 64>();
}

// MN-major operands that reach outside shared memory or start inside a row.
__global__ void mn_misuse_kernel(int a_offset, int b_group_stride) {
  LADDER_DYN_SMEM(smem);
  float d[32] = {};
  ptx::wgmma_fence();
  ptx::wgmma_m64_mn<__half, 64>(d, ptx::wgmma_descriptor_mn(smem + a_offset, 1024, 128),
                                ptx::wgmma_descriptor_mn(smem + 16 * 128, b_group_stride, 128), true);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
}

TEST(Wgmma, mn_major_misuse_is_reported) {
  auto report = [](int a_offset, int b_group_stride) {
    return fault_of([&] { launch(mn_misuse_kernel, {1, 128, 32 * 128}, nullptr, a_offset, b_group_stride); });
  };
  EXPECT_EQ(report(0, 1024), "no fault");
  EXPECT_TRUE(contains(report(32, 1024), "MN-major operand A starts 32 bytes into"));
  EXPECT_TRUE(contains(report(0, 1152), "operand B is not within the block's dynamic shared memory"));
  EXPECT_TRUE(contains(report(0, 1000), "a stride of 1000 bytes"));
}

TEST(Wgmma, tf32_ignores_the_13_low_bits) {
  std::vector<float> image(72 * 32, 0.0f);
  image[0] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(1.0f) | 0x1fffu);
  image[64 * 32] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(3.0f) | 0x3fffu);
  std::vector<float> out(64 * 8);
  launch(multiply_kernel<float, 8>, {1, 128, 72 * 128}, nullptr, static_cast<const float*>(image.data()), 72,
         Operand{0, 8}, Operand{64, 8}, 1, static_cast<const float*>(nullptr), out.data());
  EXPECT_EQ(out[0], std::bit_cast<float>(std::bit_cast<std::uint32_t>(3.0f) | 0x2000u));
}

// Record accumulators d and e at each step of overlapping wgmma groups.
__global__ void accumulator_steps_kernel(float* seen) {
  LADDER_DYN_SMEM(smem);
  for (unsigned i = threadIdx.x; i < 72 * 64; i += blockDim.x) {
    reinterpret_cast<__nv_bfloat16*>(smem)[i] = __float2bfloat16_rn(1.0f);
  }
  ptx::wgmma_fence_stores();
  __syncthreads();
  const std::uint64_t a = ptx::wgmma_descriptor(smem, 1024);
  const std::uint64_t b = ptx::wgmma_descriptor(smem + 64 * 128, 1024);
  float d[4];
  float e[4];
  int step = 0;
  auto look = [&] {
    if (threadIdx.x == 77) {
      seen[step] = d[2];
      seen[step + 1] = e[3];
    }
    step += 2;
  };
  for (int i = 0; i < 4; ++i) d[i] = e[i] = 5;
  ptx::wgmma_fence();
  ptx::wgmma_m64<__nv_bfloat16, 8>(d, a, b, true);
  look();  // d in flight
  ptx::wgmma_commit();
  ptx::wgmma_m64<__nv_bfloat16, 8>(e, a, b, false);
  ptx::wgmma_commit();
  look();
  ptx::wgmma_wait<1>();
  ptx::warpgroup_fence_operand(d);
  look();  // d is complete
  ptx::wgmma_fence();
  ptx::wgmma_m64<__nv_bfloat16, 8>(d, a, b, true);
  ptx::wgmma_m64<__nv_bfloat16, 8>(e, a, b, true);
  ptx::wgmma_commit();
  ptx::wgmma_wait<1>();
  look();  // e's first group is done, its second is not
  ptx::wgmma_wait<0>();
  ptx::warpgroup_fence_operand(d);
  ptx::warpgroup_fence_operand(e);
  look();
}

TEST(Wgmma, accumulators_are_nan_while_in_flight) {
  for (const std::string& schedule : schedules(2)) {
    const Scoped scoped(schedule);
    float seen[10];
    launch(accumulator_steps_kernel, {1, 128, 72 * 128}, nullptr, static_cast<float*>(seen));
    EXPECT_TRUE(std::isnan(seen[0]));
    EXPECT_EQ(seen[1], 5);
    EXPECT_TRUE(std::isnan(seen[2]));
    EXPECT_TRUE(std::isnan(seen[3]));
    EXPECT_EQ(seen[4], 5 + 16);
    EXPECT_TRUE(std::isnan(seen[5]));
    EXPECT_TRUE(std::isnan(seen[6]));
    EXPECT_TRUE(std::isnan(seen[7]));
    EXPECT_EQ(seen[8], 5 + 32);
    EXPECT_EQ(seen[9], 32);
  }
}

enum class WgmmaMisuse {
  none,
  no_fence,
  no_second_fence,
  written,
  lanes_differ,
  warps_differ,
  groups_differ,
  warp_missing,
  warp_missing_at_wait,
  lane_missing,
  start,
  outside,
  no_descriptor,
};

__global__ void wgmma_misuse_kernel(WgmmaMisuse misuse) {
  LADDER_DYN_SMEM(smem);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const bool odd_one = threadIdx.x == 37;
  std::uint64_t a = ptx::wgmma_descriptor(smem + (misuse == WgmmaMisuse::start ? 16 : 0), 1024);
  std::uint64_t b = ptx::wgmma_descriptor(smem + (misuse == WgmmaMisuse::outside ? 66 : 64) * 128, 1024);
  if (misuse == WgmmaMisuse::no_descriptor) b &= ~(std::uint64_t{1} << 62);
  if (misuse == WgmmaMisuse::lanes_differ && odd_one) b += 2;
  if (misuse == WgmmaMisuse::warps_differ && warp == 2) b += 2;
  float d[4] = {};
  if (misuse != WgmmaMisuse::no_fence) ptx::wgmma_fence();
  if (misuse == WgmmaMisuse::groups_differ && warp == 1) ptx::wgmma_commit();
  if (misuse == WgmmaMisuse::lane_missing && odd_one) return;
  const bool missing = misuse == WgmmaMisuse::warp_missing || misuse == WgmmaMisuse::warp_missing_at_wait;
  if (missing && warp == 3) return;
  ptx::wgmma_m64<__nv_bfloat16, 8>(d, a, b, true);
  if (misuse == WgmmaMisuse::written) d[1] = 0;
  ptx::wgmma_commit();
  if (misuse == WgmmaMisuse::warp_missing) return;
  ptx::wgmma_wait<0>();
  if (misuse == WgmmaMisuse::no_second_fence) d[0] = 1;
  ptx::wgmma_m64<__nv_bfloat16, 8>(d, a, b, true);  // no fence needed: d is untouched
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
}

TEST(Wgmma, misuse_is_reported) {
  auto report = [](WgmmaMisuse misuse, unsigned threads = 128) {
    return fault_of([&] { launch(wgmma_misuse_kernel, {1, threads, 72 * 128}, nullptr, misuse); });
  };
  for (const std::string& schedule : schedules(2)) {
    const Scoped scoped(schedule);
    EXPECT_EQ(report(WgmmaMisuse::none), "no fault");
    EXPECT_TRUE(contains(report(WgmmaMisuse::none, 96), "needs a warpgroup"));
    EXPECT_TRUE(contains(report(WgmmaMisuse::none, 224), "needs a warpgroup"));
    EXPECT_TRUE(contains(report(WgmmaMisuse::none, 112), "warp"));
    EXPECT_TRUE(contains(report(WgmmaMisuse::no_fence), "no wgmma_fence"));
    EXPECT_TRUE(contains(report(WgmmaMisuse::no_second_fence), "no wgmma_fence"));
    EXPECT_TRUE(contains(report(WgmmaMisuse::written), "written while in flight"));
    EXPECT_TRUE(contains(report(WgmmaMisuse::lanes_differ), "lanes gave different operands"));
    EXPECT_TRUE(contains(report(WgmmaMisuse::warps_differ), "different multiplication"));
    EXPECT_TRUE(contains(report(WgmmaMisuse::groups_differ), "different multiplication"));
    EXPECT_TRUE(contains(report(WgmmaMisuse::warp_missing), "only 3 of warpgroup 0's four warps"));
    const std::string missing = report(WgmmaMisuse::warp_missing_at_wait);
    EXPECT_TRUE(contains(missing, "deadlock") && contains(missing, "wgmma_wait")) << missing;
    const std::string lane = report(WgmmaMisuse::lane_missing);
    EXPECT_TRUE(contains(lane, "have ended") || contains(lane, "deadlock")) << lane;
    EXPECT_TRUE(contains(report(WgmmaMisuse::start), "starts 16 bytes into"));
    EXPECT_TRUE(contains(report(WgmmaMisuse::outside), "not within the block's dynamic shared memory"));
    EXPECT_TRUE(contains(report(WgmmaMisuse::no_descriptor), "no descriptor"));
  }
}

// --- All units together: a 3x3 convolution of one image, 64 to 64 channels, with one halo tile for each output tile.
// One warp copies, two warpgroups multiply. A tile is 16 rows of 8 pixels; a warpgroup's 8x8 pixels are the rows of A,
// shifted for each tap.

enum class Break {
  none,
  no_full_wait,
  no_empty_wait,
  half_bytes,
  no_wgmma_wait,
  wrong_parity,
  over_arrival,
  early_release,
  no_weights_wait,
};

constexpr int kChannels = 64;
constexpr int kStages = 2;
constexpr int kHaloWidth = 10;
constexpr int kHaloBytes = kHaloWidth * 18 * 128;
constexpr int kStageBytes = (kHaloBytes + 1023) / 1024 * 1024;
constexpr int kWeightBytes = 9 * kChannels * 128;
constexpr int kConvSmem = kStages * kStageBytes + kWeightBytes;

__global__ void conv_kernel(const __grid_constant__ ptx::TensorMap x_map, const __grid_constant__ ptx::TensorMap w_map,
                            float* y, int h, int w, int num_tiles, Break broken) {
  LADDER_DYN_SMEM(smem);
  LADDER_SHARED(ptx::Mbarrier, full, [kStages]);
  LADDER_SHARED(ptx::Mbarrier, empty, [kStages]);
  LADDER_SHARED(ptx::Mbarrier, weights_full, );
  unsigned char* const weights = smem + kStages * kStageBytes;
  const int tiles_w = ceil_div(w, 8);
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      ptx::mbarrier_init(&full[s], 1);
      ptx::mbarrier_init(&empty[s], 2);
    }
    ptx::mbarrier_init(&weights_full, 1);
    ptx::mbarrier_fence_init();
  }
  __syncthreads();

  if (threadIdx.x >= 256) {
    ptx::warpgroup_reg_dealloc<40>();
    if (threadIdx.x != 256) return;
    ptx::mbarrier_arrive_expect_tx(&weights_full, kWeightBytes);
    for (int tap = 0; tap < 9; ++tap) ptx::tma_load(weights + tap * 8192, w_map, &weights_full, 0, 0, tap);
    for (int t = 0; t < num_tiles; ++t) {
      const int s = t % kStages;
      if (broken != Break::no_empty_wait) ptx::mbarrier_wait(&empty[s], (t / kStages + 1) % 2);
      ptx::mbarrier_arrive_expect_tx(&full[s], broken == Break::half_bytes ? kHaloBytes / 2 : kHaloBytes);
      ptx::tma_load(smem + s * kStageBytes, x_map, &full[s], 0, t % tiles_w * 8 - 1, t / tiles_w * 16 - 1, 0);
    }
    return;
  }

  ptx::warpgroup_reg_alloc<232>();
  const int group = static_cast<int>(threadIdx.x) / 128;
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const std::uint64_t desc_w = ptx::wgmma_descriptor(weights, 1024);
  if (broken != Break::no_weights_wait) ptx::mbarrier_wait(&weights_full, 0);
  for (int t = 0; t < num_tiles; ++t) {
    const int s = t % kStages;
    const int parity = (t / kStages + (broken == Break::wrong_parity)) % 2;
    if (broken != Break::no_full_wait) ptx::mbarrier_wait(&full[s], parity);
    float d[kChannels / 2];
    ptx::wgmma_fence();
    for (int tap = 0; tap < 9; ++tap) {
      const int row = (8 * group + tap / 3) * kHaloWidth + tap % 3;
      const std::uint64_t desc_x = ptx::wgmma_descriptor(smem + s * kStageBytes + row * 128, kHaloWidth * 128);
      for (int k = 0; k < 4; ++k) {
        ptx::wgmma_m64<__nv_bfloat16, kChannels>(d, desc_x + 2 * k, desc_w + tap * (8192 >> 4) + 2 * k, tap + k > 0);
      }
    }
    ptx::wgmma_commit();
    if (broken == Break::early_release && thread == 0) ptx::mbarrier_arrive(&empty[s]);
    if (broken != Break::no_wgmma_wait) ptx::wgmma_wait<0>();
    ptx::warpgroup_fence_operand(d);
    if (broken != Break::early_release && (thread == 0 || broken == Break::over_arrival))
      ptx::mbarrier_arrive(&empty[s]);
    for (int i = 0; i < kChannels / 2; ++i) {
      const int pixel = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
      const int py = t / tiles_w * 16 + group * 8 + pixel / 8;
      const int px = t % tiles_w * 8 + pixel % 8;
      if (py < h && px < w) y[(py * w + px) * kChannels + thread % 4 * 2 + i / 4 * 8 + i % 2] = d[i];
    }
  }
}

struct Convolution {
  static constexpr int kH = 19;
  static constexpr int kW = 13;
  std::vector<__nv_bfloat16> x = integers<__nv_bfloat16>(kH * kW * kChannels, 1);
  std::vector<__nv_bfloat16> w = integers<__nv_bfloat16>(9 * kChannels * kChannels, 2);  // [tap][k][c]
  Device<__nv_bfloat16> device_x{x};
  Device<__nv_bfloat16> device_w{w};
  std::vector<float> expected = reference();

  std::vector<float> reference() const {
    std::vector<float> y(kH * kW * kChannels);
    for (int py = 0; py < kH; ++py) {
      for (int px = 0; px < kW; ++px) {
        for (int tap = 0; tap < 9; ++tap) {
          const int iy = py + tap / 3 - 1;
          const int ix = px + tap % 3 - 1;
          if (iy < 0 || iy >= kH || ix < 0 || ix >= kW) continue;
          for (int k = 0; k < kChannels; ++k) {
            for (int c = 0; c < kChannels; ++c) {
              y[(py * kW + px) * kChannels + k] += detail::to_float(x[(iy * kW + ix) * kChannels + c]) *
                                                   detail::to_float(w[(tap * kChannels + k) * kChannels + c]);
            }
          }
        }
      }
    }
    return y;
  }

  // Returns "right", "wrong", or the fault's message.
  std::string run(Break broken) const {
    const auto x_map =
        ptx::make_tensor_map(Dtype::bf16, device_x.data(), {kChannels, kW, kH, 1}, {kChannels, 10, 18, 1});
    const auto w_map =
        ptx::make_tensor_map(Dtype::bf16, device_w.data(), {kChannels, kChannels, 9}, {kChannels, kChannels, 1});
    std::vector<float> y(expected.size(), NAN);
    try {
      launch(conv_kernel, {1, 288, kConvSmem}, nullptr, x_map, w_map, y.data(), kH, kW, 4, broken);
    } catch (const Fault& fault) {
      return fault.what();
    }
    return y == expected ? "right" : "wrong";
  }
};

TEST(HopperPipeline, convolves_under_every_schedule) {
  const Convolution convolution;
  for (const std::string& schedule : schedules(8)) {
    const Scoped scoped(schedule);
    EXPECT_EQ(convolution.run(Break::none), "right") << schedule;
  }
}

// Run the broken kernel under asc, desc and four seeds each of random and greedy. At least `at_least` of these
// schedules must catch it: by a fault whose message contains one of `signs`, or by a wrong result for the sign "wrong".
void expect_caught(Break broken, const std::vector<std::string>& signs, int at_least) {
  static const Convolution convolution;
  const std::vector<std::string> all = schedules(4);
  int caught = 0;
  for (const std::string& schedule : all) {
    const Scoped scoped(schedule);
    const std::string outcome = convolution.run(broken);
    if (outcome == "right") continue;
    ++caught;
    EXPECT_TRUE(contains(outcome, ": a race: ") ||  // in preset order
                std::any_of(signs.begin(), signs.end(), [&](const auto& sign) { return contains(outcome, sign); }))
        << schedule << ": " << outcome;
    if (outcome != "wrong") {
      EXPECT_TRUE(contains(outcome, "test_simt_hopper.cpp:")) << outcome;
    }
    std::cout << "  " << schedule << ": " << outcome.substr(0, outcome.find(';')) << "\n";
  }
  EXPECT_GE(caught, at_least) << "of " << all.size() << " schedules";
}

constexpr const char* kMissedPhase = "and the next one too";
constexpr const char* kDeadlock = "deadlock";
constexpr const char* kLeftInFlight = "ended while the copy was in flight";

TEST(HopperFault, no_wait_for_the_data) {
  expect_caught(Break::no_full_wait, {"wrong", kMissedPhase, kLeftInFlight}, 10);
}
TEST(HopperFault, no_wait_for_the_stage_to_be_empty) {
  expect_caught(Break::no_empty_wait, {"one arrival more than the 1 of this phase", kDeadlock}, 10);
}
TEST(HopperFault, half_the_bytes_announced) {
  expect_caught(Break::half_bytes, {"11520 bytes more have landed than were announced"}, 10);
}
TEST(HopperFault, no_wgmma_wait) { expect_caught(Break::no_wgmma_wait, {"wrong", kDeadlock}, 10); }
TEST(HopperFault, wrong_parity) { expect_caught(Break::wrong_parity, {"wrong", kDeadlock}, 10); }
TEST(HopperFault, over_arrival) { expect_caught(Break::over_arrival, {"wrong", kDeadlock, kMissedPhase}, 10); }
TEST(HopperFault, stage_released_before_it_was_read) {
  expect_caught(Break::early_release, {"wrong", kDeadlock, kMissedPhase}, 1);
}
TEST(HopperFault, no_wait_for_the_weights) { expect_caught(Break::no_weights_wait, {"wrong", kLeftInFlight}, 1); }

}  // namespace
}  // namespace ladder::simt::test

#endif
