// Idea:   32 lanes share the sum of an output channel: each reads runs of 16 bytes of its weights, one run after the other, and
//         multiplies them by all positions. x lies in shared memory, and each row of it feeds every tap that meets it.
// Parent: v01.
// Why:    v01's loads touch 32 cache lines each, and its threads add one after the other. Here a warp's loads are 512 bytes of
//         one row of w, read once, and a sum is 32 times as short. Limiter: few loads of a lane at a time, and the next few;
//         multiply-adds on the CUDA cores, which 16 bits must be unpacked for; every sample reads the weights again.
// Needs:  up to 5 taps.

#include "core/occupancy.h"
#include "dev/common/lane_sums.h"
#include "dev/conv1d/x_rows.h"
#include "dev/ptx/grid_dependency.h"

namespace ladder::conv1d {
namespace {

constexpr int kChannels = 4;  // of a block: a warp each
constexpr int kThreads = kChannels * 32;
constexpr int kMostTaps = 5;
constexpr int kMostPositions = 16;

// Rows of x in shared memory, of which `first` is from() of the block's first position, and the position that row and tap
// belong to, both counted from the first; -1 if there is none.
template <int kPositions>
struct Same {
  static constexpr int kTaps = kMostTaps;
  static constexpr int kRows = kPositions + kTaps - 1;
  static __device__ __forceinline__ int first(const Problem& p, int o) { return o - p.taps / 2; }
  static __device__ constexpr int position(int row, int tap) { return row - tap; }
};
template <int kPositions>
struct Stride2 {
  static constexpr int kTaps = 3;
  static constexpr int kRows = 2 * kPositions + 1;
  static __device__ __forceinline__ int first(const Problem&, int o) { return 2 * o - 1; }
  static __device__ constexpr int position(int row, int tap) { return (row - tap) % 2 == 0 ? (row - tap) / 2 : -1; }
};
template <int kPositions>
struct Transposed {
  static constexpr int kTaps = kTransposedTaps;
  static constexpr int kRows = kPositions / 2 + 2;
  static __device__ __forceinline__ int first(const Problem&, int o) { return o / 2 - 1; }
  static __device__ constexpr int position(int row, int tap) { return 2 * row - 3 + tap; }
};

template <class T, bool kVectors, int kPositions, template <int> class Kind>
__global__ void __launch_bounds__(kThreads, 4)  // room for 128 registers, which no instance needs all of
    conv1d_fprop_v02_kernel(Problem p, XParts<T> parts, const T* w, const float* bias, const T* residual, T* y) {
  using Geometry = Kind<kPositions>;
  LADDER_DYN_SMEM(x_rows);  // [Geometry::kRows][c] T
  const int pitch = pitch_of<T>(p);
  const int runs = pitch / kRunBytes;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int channel = static_cast<int>(blockIdx.x) * kChannels + warp;
  const int tiles = ceil_div(p.out_l(), kPositions);
  const int n = static_cast<int>(blockIdx.y) / tiles;
  const int first_position = static_cast<int>(blockIdx.y) % tiles * kPositions;
  w += min(channel, p.k - 1) * p.taps * p.c;

  ptx::grid_dependency_wait();
  uint4 next[Geometry::kTaps];
  const auto load_taps = [&](int run) {
#pragma unroll
    for (int tap = 0; tap < Geometry::kTaps; ++tap) {
      next[tap] = tap < p.taps ? load_w_run<kVectors>(p, w + tap * p.c, run * kRun<T>) : uint4{};
    }
  };
  load_taps(lane);
  for (int i = threadIdx.x; i < Geometry::kRows * runs; i += kThreads) {
    copy_x_run<kVectors>(x_rows + i / runs * pitch + i % runs * kRunBytes, p, parts, n,
                         Geometry::first(p, first_position) + i / runs, i % runs * kRun<T>);
  }
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
  __syncthreads();

  float sum[kPositions] = {};
  for (int run = lane; run < runs; run += 32) {
    float weights[Geometry::kTaps][kRun<T>];
#pragma unroll
    for (int tap = 0; tap < Geometry::kTaps; ++tap) unpack<T>(next[tap], weights[tap]);
    load_taps(min(run + 32, runs - 1));
#pragma unroll
    for (int row = 0; row < Geometry::kRows; ++row) {
      float x[kRun<T>];
      unpack<T>(*reinterpret_cast<const uint4*>(x_rows + row * pitch + run * kRunBytes), x);
#pragma unroll
      for (int tap = 0; tap < Geometry::kTaps; ++tap) {
        const int position = Geometry::position(row, tap);
        if (position < 0 || position >= kPositions) continue;
#pragma unroll
        for (int i = 0; i < kRun<T>; ++i) sum[position] = fmaf(weights[tap][i], x[i], sum[position]);
      }
    }
  }
  ptx::grid_dependency_launch();

  // Each lane gets a position's sum: 32 / kPositions of them the same.
  float value = sum_over_lanes<kPositions>(sum, lane);
  const int position = first_position + lane / (32 / kPositions);
  if (channel >= p.k || position >= p.out_l() || lane % (32 / kPositions) != 0) return;
  const int to = (n * p.out_l() + position) * p.k + channel;
  if (bias) value += bias[channel];
  if (residual) value += to_float(residual[to]);
  y[to] = from_float<T>(value);
}

template <class T, int kPositions, template <int> class Kind>
std::size_t smem_bytes(const Problem& p) {
  return std::size_t{1} * pitch_of<T>(p) * Kind<kPositions>::kRows;
}

template <class T, bool kVectors, int kPositions, template <int> class Kind>
void launch_kind(const Problem& p, const Fprop::Tensors& t, Stream stream) {
  const dim3 grid(static_cast<unsigned>(ceil_div(p.k, kChannels)),
                  static_cast<unsigned>(p.n * ceil_div(p.out_l(), kPositions)));
  ladder::launch(
      conv1d_fprop_v02_kernel<T, kVectors, kPositions, Kind>,
      {.grid = grid, .block = kThreads, .dynamic_smem = smem_bytes<T, kPositions, Kind>(p), .overlaps_previous = true},
      stream, p, XParts<T>(p, t.x, nullptr), static_cast<const T*>(t.w), t.bias, static_cast<const T*>(t.residual),
      static_cast<T*>(t.y));
}

template <class T, bool kVectors, int kPositions>
void launch_positions(const Problem& p, const Fprop::Tensors& t, Stream stream) {
  if (p.transposed) return launch_kind<T, kVectors, kPositions, Transposed>(p, t, stream);
  if (p.stride2) return launch_kind<T, kVectors, kPositions, Stride2>(p, t, stream);
  launch_kind<T, kVectors, kPositions, Same>(p, t, stream);
}

void launch(const Problem& p, const Fprop::Tensors& t, void*, Stream stream) {
  with_storage_type(p.dtype, [&]<class T>(T) {
    if (!whole_rows(p, false)) return launch_positions<T, false, kMostPositions>(p, t, stream);
    if (p.out_l() <= 4) return launch_positions<T, true, 4>(p, t, stream);
    if (p.out_l() <= 8) return launch_positions<T, true, 8>(p, t, stream);
    launch_positions<T, true, kMostPositions>(p, t, stream);
  });
}

const char* supports(const Problem& p) {
  if (p.taps > kMostTaps) return "more than 5 taps";
  const auto bytes = with_storage_type(p.dtype, [&]<class T>(T) { return smem_bytes<T, kMostPositions, Stride2>(p); });
  return bytes <= std::size_t(most_smem_bytes()) ? nullptr : "33 rows of x do not fit a block's shared memory";
}

}  // namespace
}  // namespace ladder::conv1d

LADDER_VERSION(ladder::conv1d::Fprop, {.launch = ladder::conv1d::launch,
                                       .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                       .supports = ladder::conv1d::supports,
                                       .min_arch = 80})
