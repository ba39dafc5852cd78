// The emulator's Hopper units, each against plain loops, and the faults that they must find.
#include <gtest/gtest.h>

#include "core/backend.h"

#if !defined(__CUDACC__)

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>

#include "dev/ptx/tma.h"
#include "dev/ptx/wgmma.h"
#include "tests/simt/support.h"

namespace ladder::simt::test {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

template <class T>
T from_float(float x) {
  if constexpr (std::is_same_v<T, float>) return x;
  else return detail::from_float<T>(x);
}

template <class T>
constexpr Dtype kDtype = std::is_same_v<T, __nv_bfloat16> ? Dtype::bf16 : std::is_same_v<T, __half> ? Dtype::f16 : Dtype::tf32;

// Small integers, exact in every format, so that sums are exact in any order.
template <class T>
std::vector<T> integers(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<T> values(count);
  for (T& value : values) value = from_float<T>(static_cast<float>(static_cast<int>(random() % 9) - 4));
  return values;
}

// 256-byte aligned, as device memory is.
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

// Threads 1.. arrive after storing; thread 0 waits and sums. `turns` phases.
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

enum class Misuse { uninitialised, misaligned, global, twice, no_arrivals, parity, never, too_many_bytes, missed_phase };
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
    case Misuse::uninitialised: line = __LINE__; return ptx::mbarrier_arrive(barrier);
    case Misuse::misaligned:
      return ptx::mbarrier_init(reinterpret_cast<ptx::Mbarrier*>(reinterpret_cast<char*>(barrier) + 4), 1);
    case Misuse::global: return ptx::mbarrier_init(global, 1);
    case Misuse::twice: ptx::mbarrier_init(barrier, 1); return ptx::mbarrier_init(barrier, 1);
    case Misuse::no_arrivals: return ptx::mbarrier_init(barrier, 0);
    case Misuse::parity: ptx::mbarrier_init(barrier, 1); return ptx::mbarrier_wait(barrier, 2);
    case Misuse::never:
      ptx::mbarrier_init(barrier, 2);
      ptx::mbarrier_arrive(barrier);
      line = __LINE__ + 1;
      ptx::mbarrier_wait(barrier, 0);
      return;
    case Misuse::too_many_bytes: ptx::mbarrier_init(barrier, 1); return ptx::mbarrier_arrive_expect_tx(barrier, 1 << 20);
    case Misuse::missed_phase: return;
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

// Copies one box into shared memory and that to `out`, byte for byte.
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

// Where byte `byte` of 128-byte row `row` of a box lies behind the box's start, which is row `first` of the swizzle's
// pattern of eight.
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
  const Corner corners[] = {{{0, 0, 0, 0}},         {{8, 3, 2, 1}},   {{-3, -1, -1, -1}}, {{kC, 6, 5, 2}},
                            {{-kC, 0, 0, 0}},       {{0, 0, 0, 3}},   {{0, -5, 0, 0}},    {{2 * kC - 9, 8, 6, 2}},
                            {{-(kC - 1), -4, -3, 0}}, {{5, 100, 0, 0}}};
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
                << schedule << " corner " << corner.x[0] << "," << corner.x[1] << "," << corner.x[2] << "," << corner.x[3]
                << " start row " << first << " row " << row << " element " << c;
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
      float held;
      std::memcpy(&held, &out[swizzled(0, row, c * 4)], 4);
      ASSERT_EQ(held, y < 4 ? values[(z * 4 + y) * 32 + c] : 0.0f) << row << " " << c;
    }
  }
}

std::string refusal(std::initializer_list<std::uint64_t> dims, std::initializer_list<std::uint32_t> box, int offset = 0) {
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
  const unsigned announced = misuse == TmaMisuse::unannounced ? 512 : misuse == TmaMisuse::twice_announced ? 2048 : 1024;
  ptx::mbarrier_arrive_expect_tx(full, announced);
  switch (misuse) {
    case TmaMisuse::aligned: return ptx::tma_load(smem + 64, map, full, 0, 0, 0);
    case TmaMisuse::outside: return ptx::tma_load(smem + 1280, map, full, 0, 0, 0);
    case TmaMisuse::rank: return ptx::tma_load(smem, map, full, 0, 0, 0, 0);
    case TmaMisuse::static_memory: return ptx::tma_load(elsewhere, map, full, 0, 0, 0);
    default: break;
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

// What a thread sees of a copy in flight.
__global__ void in_flight_kernel(const __grid_constant__ ptx::TensorMap map, float* before, float* after) {
  LADDER_DYN_SMEM(smem);
  LADDER_SHARED(ptx::Mbarrier, full, );
  auto* values = reinterpret_cast<float*>(smem);
  ptx::mbarrier_init(&full, 1);
  values[5] = 7;
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
    launch(in_flight_kernel, {1, 1, 1024}, nullptr, map, &before, &after);
    if (schedule == "asc") {
      EXPECT_EQ(before, 3.0f);
    }
    if (schedule == "desc") {
      EXPECT_TRUE(std::isnan(before));
    }
    EXPECT_EQ(after, 3.0f);
  }
}

}  // namespace
}  // namespace ladder::simt::test

#endif
