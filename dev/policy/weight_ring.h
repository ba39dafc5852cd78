// A lane's weights on their way into shared memory: those that it will multiply, in the order in which it will, entry after entry
// of a ring. Nobody else reads them, so that no barrier stands between a copy and its use; and as weights depend on nothing, the
// copies go on while blocks wait for each other.
//
// An entry is what a warp multiplies at a time: 32 channels of a stage's input, with all that reads them. That is a set of
// weights for each tap, and one for the residual convolution that the next stage adds: of 8 output channels each, of which lane
// (g, t) has channel g and, of the input's, 8t .. 8t+7.
#pragma once

#include "dev/conv1d/mma_tile.h"
#include "dev/policy/layout.h"
#include "dev/ptx/prefetch_l2.h"

namespace ladder::policy {

inline constexpr int kRows = 16;    // positions of the input that an instruction multiplies
inline constexpr int kColumns = 8;  // output channels
inline constexpr int kEntries = 3;  // of a ring

// The block's output channels of a stage.
struct Share {
  int begin;
  int end;
};

__host__ __device__ inline int units_of(const Stage& stage) { return ceil_div(stage.c, conv1d::kStepChannels); }

// Whether stage `at` + 1 adds a convolution of the input of stage `at`. It has as many output channels.
__host__ __device__ inline bool widens(const Network& network, int at) {
  return at + 1 < network.count && network.stages[at + 1].residual == Residual::convolution;
}

__host__ __device__ inline int sets_of(const Network& network, int at) {
  return network.stages[at].taps + (widens(network, at) ? 1 : 0);
}

// Asks the L2 for a block's weights of some stages. By one thread.
template <class T>
__device__ __forceinline__ void prefetch_weights(const Network& network, const T* weights, const Share* shares,
                                                 int first, int end) {
  for (int at = first; at < end; ++at) {
    const Stage& stage = network.stages[at];
    const auto ask = [&](int offset, int row) {
      const T* const begin = weights + offset + shares[at].begin * row;
      const unsigned bytes = (shares[at].end - shares[at].begin) * row * static_cast<unsigned>(sizeof(T));
      if (bytes > 0 && bytes % 16 == 0 && reinterpret_cast<std::uintptr_t>(begin) % 16 == 0) {
        ptx::prefetch_l2(begin, bytes);
      }
    };
    ask(stage.weights, stage.taps * stage.c);
    if (widens(network, at)) ask(network.stages[at + 1].residual_weights, stage.c);
  }
}

// kWarps share the units of a stage: warp w has w, w + kWarps, ... An entry has room for kSets sets.
template <class T, int kWarps, int kSets>
class WeightRing {
 public:
  static constexpr int kSetBytes = 32 * kRunBytes;
  static constexpr int kEntryBytes = kSets * kSetBytes;  // of a warp
  static constexpr int kBytes = kWarps * kEntries * kEntryBytes;

  // `room` has kBytes; `vectors` has a bit for each stage whose rows are whole vectors of sixteen bytes. Every sample reads a
  // stage's weights again.
  __device__ __forceinline__ WeightRing(const Network& network, const T* weights, const Share* shares,
                                        std::uint64_t vectors, int samples, unsigned char* room, int warp)
      : network_(network),
        weights_(weights),
        shares_(shares),
        vectors_(vectors),
        samples_(samples),
        warp_(warp),
        entries_(room + warp * kEntries * kEntryBytes + threadIdx.x % 32 * kRunBytes) {
    begin_stage();
    for (int i = 0; i < kEntries; ++i) fetch();
  }

  // The oldest entry, once it has come.
  __device__ __forceinline__ void take(uint4 (&sets)[kSets]) {
    refill();
    ptx::cp_async_wait<kEntries - 1>();
#pragma unroll
    for (int i = 0; i < kSets; ++i) {  // more than the entry has: what lies there counts for nothing
      sets[i] = *reinterpret_cast<const uint4*>(entries_ + entry_ * kEntryBytes + i * kSetBytes);
    }
    taken_ = true;
  }

  // Begins to copy the next entry into the place of the one that was taken, if any. take() does so first, but between stages
  // there is more time.
  __device__ __forceinline__ void refill() {
    if (taken_) fetch();
    taken_ = false;
  }

 private:
  __device__ __forceinline__ void fetch() {
    if (at_ < network_.count) {
      copy_entry(entries_ + entry_ * kEntryBytes);
      advance();
    }
    ptx::cp_async_commit();
    entry_ = entry_ + 1 == kEntries ? 0 : entry_ + 1;
  }

  __device__ __forceinline__ void copy_entry(unsigned char* to) const {
    if ((vectors_ >> at_ & 1) != 0) {
      copy_entry<true>(to);
    } else {
      copy_entry<false>(to);
    }
  }

  template <bool kVectors>
  __device__ __forceinline__ void copy_entry(unsigned char* to) const {
    const Stage& stage = network_.stages[at_];
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int channel = channel_ + lane / 4;
    const int c = unit_ * conv1d::kStepChannels + lane % 4 * kRun<T>;
    const int count = channel < shares_[at_].end ? stage.c - c : 0;
    const T* const from = weights_ + stage.weights + channel * stage.taps * stage.c + c;
#pragma unroll(kVectors ? kSets : 1)
    for (int set = 0; set < kSets; ++set) {
      if (set < stage.taps) copy_run<kVectors>(to + set * kSetBytes, from + set * stage.c, weights_, count);
    }
    if (!widens(network_, at_)) return;
    const T* const residual = weights_ + network_.stages[at_ + 1].residual_weights + channel * stage.c + c;
    copy_run<kVectors>(to + stage.taps * kSetBytes, residual, weights_, count);
  }

  // To the warp's next unit: of this tile of rows and output channels, of the next one, or of a later stage.
  __device__ __forceinline__ void advance() {
    const Stage& stage = network_.stages[at_];
    unit_ += kWarps;
    if (unit_ < units_of(stage)) return;
    unit_ = warp_;
    first_row_ += kRows;
    if (first_row_ < stage.l) return;
    first_row_ = 0;
    channel_ += kColumns;
    if (channel_ < shares_[at_].end) return;
    channel_ = shares_[at_].begin;
    if (++sample_ < samples_) return;
    ++at_;
    begin_stage();
  }

  // At the first stage from at_ on of which the warp has any weights.
  __device__ __forceinline__ void begin_stage() {
    for (; at_ < network_.count; ++at_) {
      if (warp_ < units_of(network_.stages[at_]) && shares_[at_].begin < shares_[at_].end) break;
    }
    if (at_ == network_.count) return;
    unit_ = warp_;
    channel_ = shares_[at_].begin;
    sample_ = 0;
  }

  const Network& network_;
  const T* weights_;
  const Share* shares_;
  std::uint64_t vectors_;
  int samples_;
  int warp_;
  unsigned char* entries_;  // the lane's own 16 bytes of the first set
  int entry_ = 0;           // the oldest
  bool taken_ = false;

  // The next entry to copy.
  int at_ = 0;
  int sample_ = 0;
  int channel_ = 0;  // the tile's first
  int first_row_ = 0;
  int unit_ = 0;
};

}  // namespace ladder::policy
