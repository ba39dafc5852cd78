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

// A block's output channels of a stage, begin .. end-1. Kept in shared memory, as the ring reads it at every entry.
struct alignas(16) ChannelRange {
  int begin;
  int end;
  int weights;           // offset of the weights of channel `begin`
  int residual_weights;  // the same in the residual convolution that the next stage adds; kNone without one
  int c;
  std::uint16_t l;
  std::uint16_t k_blocks;
  std::uint8_t taps;
  bool full;  // all K blocks have 32 channels, in vectors of sixteen bytes
};

__host__ __device__ inline int k_blocks_of(const Stage& stage) { return ceil_div(stage.c, conv1d::kStepChannels); }

// Returns true if the stage after `stage_idx` adds a convolution of this one's input, with as many output channels.
__host__ __device__ inline bool widens(const Network& network, int stage_idx) {
  return stage_idx + 1 < network.count && network.stages[stage_idx + 1].residual == Residual::convolution;
}

__host__ __device__ inline int sets_of(const Network& network, int stage_idx) {
  return network.stages[stage_idx].taps + (widens(network, stage_idx) ? 1 : 0);
}

__device__ __forceinline__ ChannelRange channel_range_of(const Network& network, int stage_idx, bool full) {
  const Stage& stage = network.stages[stage_idx];
  const int begin = static_cast<int>(blockIdx.x) * stage.k / static_cast<int>(gridDim.x);
  return {.begin = begin,
          .end = (static_cast<int>(blockIdx.x) + 1) * stage.k / static_cast<int>(gridDim.x),
          .weights = stage.weights + begin * stage.taps * stage.c,
          .residual_weights =
              widens(network, stage_idx) ? network.stages[stage_idx + 1].residual_weights + begin * stage.c : kNone,
          .c = stage.c,
          .l = static_cast<std::uint16_t>(stage.l),
          .k_blocks = static_cast<std::uint16_t>(k_blocks_of(stage)),
          .taps = static_cast<std::uint8_t>(stage.taps),
          .full = full};
}

// Prefetch a block's weights of stages first .. end-1 into the L2, by one thread.
template <class T>
__device__ __forceinline__ void prefetch_weights(const T* weights, const ChannelRange* ranges, int first, int end) {
#pragma unroll 1
  for (int stage_idx = first; stage_idx < end; ++stage_idx) {
    const ChannelRange& range = ranges[stage_idx];
    const auto prefetch = [&](int offset, int row) {
      const T* const begin = weights + offset;
      const unsigned bytes = (range.end - range.begin) * row * static_cast<unsigned>(sizeof(T));
      if (bytes > 0 && bytes % 16 == 0 && reinterpret_cast<std::uintptr_t>(begin) % 16 == 0) {
        ptx::prefetch_l2(begin, bytes);
      }
    };
    prefetch(range.weights, range.taps * range.c);
    if (range.residual_weights != kNone) prefetch(range.residual_weights, range.c);
  }
}

// kWarps warps split the K blocks of a stage: warp w has K blocks w, w + kWarps, ... An entry has room for kSets sets.
template <class T, int kWarps, int kSets>
class WeightRing {
 public:
  static constexpr int kSetBytes = 32 * kRunBytes;
  static constexpr int kEntryBytes = kSets * kSetBytes;  // of a warp
  static constexpr int kBytes = kWarps * kEntries * kEntryBytes;

  // `ranges` has `count` stages, `room` kBytes. Every sample reads a stage's weights again. A `warp` that is not below
  // a stage's number of K blocks copies none of its weights; from kWarps on it has no room.
  __device__ __forceinline__ WeightRing(const T* weights, const ChannelRange* ranges, int count, int samples,
                                        unsigned char* room, int warp)
      : weights_(weights),
        ranges_(ranges),
        count_(count),
        samples_(samples),
        warp_(warp),
        entries_(room + min(warp, kWarps - 1) * kEntries * kEntryBytes + threadIdx.x % 32 * kRunBytes),
        k_block_(warp) {
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

  // Start to copy the next entry over the one that was taken, if any. take() does so first, but between
  // stages there is more time.
  __device__ __forceinline__ void refill() {
    if (taken_) fetch();
    taken_ = false;
  }

 private:
  __device__ __forceinline__ void fetch() {
    if (stage_idx_ < count_) {
      copy_entry(entries_ + entry_ * kEntryBytes);
      advance();
    }
    ptx::cp_async_commit();
    entry_ = entry_ + 1 == kEntries ? 0 : entry_ + 1;
  }

  // Copy the next entry, without the output channels past the block's last: their products are not used.
  __device__ __forceinline__ void copy_entry(unsigned char* to) const {
    const ChannelRange range = ranges_[stage_idx_];
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int channel = channel_ + lane / 4;
    const int c = k_block_ * conv1d::kStepChannels + lane % 4 * kRun<T>;
    if (channel >= range.end - range.begin) return;
    const T* from = weights_ + (range.weights + channel * range.taps * range.c + c);
    const T* const residual = weights_ + (range.residual_weights + channel * range.c + c);
    const bool widens = range.residual_weights != kNone;
    if (range.full) {
#pragma unroll
      for (int set = 0; set < kSets; ++set) {
        if (set < range.taps) ptx::cp_async<kRunBytes>(to + set * kSetBytes, from, true);
        from += range.c;
      }
      if (widens) ptx::cp_async<kRunBytes>(to + range.taps * kSetBytes, residual, true);
    } else {
#pragma unroll 1
      for (int set = 0; set < range.taps + (widens ? 1 : 0); ++set) {
        copy_run<false>(to + set * kSetBytes, set < range.taps ? from : residual, weights_, range.c - c);
        from += range.c;
      }
    }
  }

  // Advance to the warp's next K block: of this tile of rows and output channels, of the next tile, or of a later stage.
  __device__ __forceinline__ void advance() {
    const ChannelRange range = ranges_[stage_idx_];
    k_block_ += kWarps;
    if (k_block_ < range.k_blocks) return;
    k_block_ = warp_;
    first_row_ += kRows;
    if (first_row_ < range.l) return;
    first_row_ = 0;
    channel_ += kColumns;
    if (channel_ < range.end - range.begin) return;
    channel_ = 0;
    if (++sample_ < samples_) return;
    sample_ = 0;
    ++stage_idx_;
    begin_stage();
  }

  // Advance to the first stage from at_ on of which the warp has weights.
  __device__ __forceinline__ void begin_stage() {
#pragma unroll 1
    while (stage_idx_ < count_ &&
           (warp_ >= ranges_[stage_idx_].k_blocks || ranges_[stage_idx_].begin == ranges_[stage_idx_].end))
      ++stage_idx_;
  }

  const T* weights_;
  const ChannelRange* ranges_;
  int count_;
  int samples_;
  int warp_;
  unsigned char* entries_;  // the lane's 16 bytes of the first set
  int entry_ = 0;           // the oldest
  bool taken_ = false;

  // The next entry to copy.
  int stage_idx_ = 0;
  int sample_ = 0;
  int channel_ = 0;  // the tile's first, counted from `begin`
  int first_row_ = 0;
  int k_block_;
};

}  // namespace ladder::policy
