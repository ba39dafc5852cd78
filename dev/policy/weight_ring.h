// Ring of a lane's weights in shared memory: the lane copies the weights that it will multiply, in that order, entry
// after entry. No other lane reads them, so that no barrier stands between a copy and its use. Weights depend on
// nothing, so that the copies go on while blocks wait for each other.
//
// An entry has the weights that a warp multiplies with 32 channels of a stage's input: a set for each tap, and one for
// the residual convolution that the next stage adds. A set has 8 output channels: lane (g, t) has output channel g and
// input channels 8t .. 8t+7.
#pragma once

#include "dev/conv1d/mma_tile.h"
#include "dev/policy/layout.h"
#include "dev/ptx/prefetch_l2.h"

namespace ladder::policy {

inline constexpr int kRows = 16;    // positions of the input that an instruction multiplies
inline constexpr int kColumns = 8;  // output channels
inline constexpr int kEntries = 3;  // of a ring

// A block's share of a stage: output channels begin .. end-1. Kept in shared memory, as the ring always asks for it.
struct alignas(16) Share {
  int begin;
  int end;
  int weights;           // offset of the weights of channel `begin`
  int residual_weights;  // the same in the residual convolution that the next stage adds; kNone without one
  int c;
  std::uint16_t l;
  std::uint16_t units;
  std::uint8_t taps;
  bool whole;  // all units have 32 channels, in vectors of sixteen bytes
};

__host__ __device__ inline int units_of(const Stage& stage) { return ceil_div(stage.c, conv1d::kStepChannels); }

// Returns true if stage `at` + 1 adds a convolution of stage `at`'s input, with as many output channels as stage `at`.
__host__ __device__ inline bool widens(const Network& network, int at) {
  return at + 1 < network.count && network.stages[at + 1].residual == Residual::convolution;
}

__host__ __device__ inline int sets_of(const Network& network, int at) {
  return network.stages[at].taps + (widens(network, at) ? 1 : 0);
}

__device__ __forceinline__ Share share_of(const Network& network, int at, bool whole) {
  const Stage& stage = network.stages[at];
  const int begin = static_cast<int>(blockIdx.x) * stage.k / static_cast<int>(gridDim.x);
  return {.begin = begin,
          .end = (static_cast<int>(blockIdx.x) + 1) * stage.k / static_cast<int>(gridDim.x),
          .weights = stage.weights + begin * stage.taps * stage.c,
          .residual_weights = widens(network, at) ? network.stages[at + 1].residual_weights + begin * stage.c : kNone,
          .c = stage.c,
          .l = static_cast<std::uint16_t>(stage.l),
          .units = static_cast<std::uint16_t>(units_of(stage)),
          .taps = static_cast<std::uint8_t>(stage.taps),
          .whole = whole};
}

// Prefetch a block's weights of stages first .. end-1 into the L2, by one thread.
template <class T>
__device__ __forceinline__ void prefetch_weights(const T* weights, const Share* shares, int first, int end) {
#pragma unroll 1
  for (int at = first; at < end; ++at) {
    const Share& share = shares[at];
    const auto ask = [&](int offset, int row) {
      const T* const begin = weights + offset;
      const unsigned bytes = (share.end - share.begin) * row * static_cast<unsigned>(sizeof(T));
      if (bytes > 0 && bytes % 16 == 0 && reinterpret_cast<std::uintptr_t>(begin) % 16 == 0) {
        ptx::prefetch_l2(begin, bytes);
      }
    };
    ask(share.weights, share.taps * share.c);
    if (share.residual_weights != kNone) ask(share.residual_weights, share.c);
  }
}

// kWarps warps share the units of a stage: warp w has units w, w + kWarps, ... An entry has room for kSets sets.
template <class T, int kWarps, int kSets>
class WeightRing {
 public:
  static constexpr int kSetBytes = 32 * kRunBytes;
  static constexpr int kEntryBytes = kSets * kSetBytes;  // of a warp
  static constexpr int kBytes = kWarps * kEntries * kEntryBytes;

  // `shares` has `count` stages, `room` kBytes. Every sample reads a stage's weights again. A `warp` that is not below
  // a stage's number of units copies none of its weights; from kWarps on it has no room of its own.
  __device__ __forceinline__ WeightRing(const T* weights, const Share* shares, int count, int samples,
                                        unsigned char* room, int warp)
      : weights_(weights),
        shares_(shares),
        count_(count),
        samples_(samples),
        warp_(warp),
        entries_(room + min(warp, kWarps - 1) * kEntries * kEntryBytes + threadIdx.x % 32 * kRunBytes),
        unit_(warp) {
    begin_stage();
#pragma unroll 1
    for (int i = 0; i < kEntries; ++i) fetch();
  }

  // Take the oldest entry, once it has arrived.
  __device__ __forceinline__ void take(uint4 (&sets)[kSets]) {
    refill();
    ptx::cp_async_wait<kEntries - 1>();
#pragma unroll
    for (int i = 0; i < kSets; ++i) {  // sets that the entry does not have hold anything: their products are not used
      sets[i] = *reinterpret_cast<const uint4*>(entries_ + entry_ * kEntryBytes + i * kSetBytes);
    }
    taken_ = true;
  }

  // Start to copy the next entry into the place of the one that was taken, if any. take() does so first, but between
  // stages there is more time.
  __device__ __forceinline__ void refill() {
    if (taken_) fetch();
    taken_ = false;
  }

 private:
  __device__ __forceinline__ void fetch() {
    if (at_ < count_) {
      copy_entry(entries_ + entry_ * kEntryBytes);
      advance();
    }
    ptx::cp_async_commit();
    entry_ = entry_ + 1 == kEntries ? 0 : entry_ + 1;
  }

  // Copy the next entry, without the output channels past the block's last: their products are not used.
  __device__ __forceinline__ void copy_entry(unsigned char* to) const {
    const Share share = shares_[at_];
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int channel = channel_ + lane / 4;
    const int c = unit_ * conv1d::kStepChannels + lane % 4 * kRun<T>;
    if (channel >= share.end - share.begin) return;
    const T* from = weights_ + (share.weights + channel * share.taps * share.c + c);
    const T* const residual = weights_ + (share.residual_weights + channel * share.c + c);
    const bool widens = share.residual_weights != kNone;
    if (share.whole) {
#pragma unroll
      for (int set = 0; set < kSets; ++set) {
        if (set < share.taps) ptx::cp_async<kRunBytes>(to + set * kSetBytes, from, true);
        from += share.c;
      }
      if (widens) ptx::cp_async<kRunBytes>(to + share.taps * kSetBytes, residual, true);
    } else {
#pragma unroll 1
      for (int set = 0; set < share.taps + (widens ? 1 : 0); ++set) {
        copy_run<false>(to + set * kSetBytes, set < share.taps ? from : residual, weights_, share.c - c);
        from += share.c;
      }
    }
  }

  // Advance to the warp's next unit: of this tile of rows and output channels, of the next tile, or of a later stage.
  __device__ __forceinline__ void advance() {
    const Share share = shares_[at_];
    unit_ += kWarps;
    if (unit_ < share.units) return;
    unit_ = warp_;
    first_row_ += kRows;
    if (first_row_ < share.l) return;
    first_row_ = 0;
    channel_ += kColumns;
    if (channel_ < share.end - share.begin) return;
    channel_ = 0;
    if (++sample_ < samples_) return;
    sample_ = 0;
    ++at_;
    begin_stage();
  }

  // Advance to the first stage from at_ on of which the warp has weights.
  __device__ __forceinline__ void begin_stage() {
#pragma unroll 1
    while (at_ < count_ && (warp_ >= shares_[at_].units || shares_[at_].begin == shares_[at_].end)) ++at_;
  }

  const T* weights_;
  const Share* shares_;
  int count_;
  int samples_;
  int warp_;
  unsigned char* entries_;  // the lane's own 16 bytes of the first set
  int entry_ = 0;           // the oldest
  bool taken_ = false;

  // The next entry to copy.
  int at_ = 0;
  int sample_ = 0;
  int channel_ = 0;  // the tile's first, counted from `begin`
  int first_row_ = 0;
  int unit_;
};

}  // namespace ladder::policy
