// Idea:   values travel with a tag, eight bytes at a time, and nobody waits at a barrier of the grid. Few blocks own the
//         same channels of every stage; each value is normalised once, by its owner.
// Parent: v03.
// Why:    v03 spends a third of a stage on fence, counter and barrier, and another third because each of 132 blocks
//         normalises all 4096 values. Here a block stores its 64 activated values of a stage, rounded, in words with the
//         launch's number; all blocks read the words until they have it. Sums and statistics are of a block's own
//         channels, so that one warp finishes a stage out of registers: residuals and the values of two stages ago never
//         leave it. Bulk copies bring the next weights meanwhile. Limiter: three trips through the L2 a stage: values,
//         statistics of a group that several blocks share, and whoever reads them too early once more.
// Needs:  bf16 or fp16, one sample, at most 16 positions; all blocks resident (a cooperative launch); 2 to 16 channels a
//         block and 64 of its values, in all stages; channels in multiples of 32. A residual that is not widened is
//         neither the sample nor joined.
//
// Shared memory, with the published sizes: 6 slots of weights of 33 KB, the stage's input [position][channel], a row of
// zeros, the warps' sums [value][warp] of the stage and of the residual convolution.
//
// A stage, in a block:
//     workers        load their weights; read the stage's input until it has come; multiply: rows are the block's channels,
//                    columns positions, and a tap is a shifted row of the input, or the row of zeros
//     warp 0         adds the warps' sums, exchanges mean and squares with the group's other blocks, stores the values
//     warp 1         starts to copy weights of later stages into the slots that are free now

#include <algorithm>
#include <bit>

#include "core/occupancy.h"
#include "dev/common/activation.h"
#include "dev/common/quads.h"
#include "dev/common/ready_flag.h"
#include "dev/policy/next_x.h"
#include "dev/policy/stage_input.h"
#include "dev/ptx/bulk_copy.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/ldmatrix.h"
#include "dev/ptx/maximum.h"
#include "dev/ptx/mbarrier.h"
#include "dev/ptx/mma.h"
#include "dev/ptx/prefetch_l2.h"
#include "dev/ptx/tagged_words.h"

namespace ladder::policy {
namespace {

constexpr int kWarps = 16;  // workers, which multiply; one more warp in front of them finishes stages
constexpr int kWorkers = 32 * kWarps;
constexpr int kThreads = 32 + kWorkers;
constexpr int kEarlyUnits = 3;  // of which a warp loads the weights before the input is there
constexpr int kUnit = 32;       // channels that a warp multiplies at a time
constexpr int kUnitBytes = kUnit * 2;
constexpr int kPadding = 16;  // bytes after a row, for ldmatrix without bank conflicts
constexpr int kSlots = 6;
constexpr int kSlotBytes = 33024;
constexpr int kMaxChannels = 16;  // of a block
constexpr int kMaxValues = 64;    // of a block in a stage
constexpr int kMaxPositions = 16;
constexpr int kTiles = kMaxPositions / 8;
constexpr int kSumsPitch = kWarps + 4;  // floats
constexpr int kSumsBytes = kMaxValues * kSumsPitch * static_cast<int>(sizeof(float));
constexpr int kFirstWeights = 512;  // of the first stage in a block, at most
constexpr int kMaxSample = 128;     // numbers of x

// A block's weights of a stage, in units of kUnit channels of all its rows: those of the stage's taps, then those of the
// residual convolution that the next stage adds.
struct StageUnits {
  std::uint16_t of_tap;  // of one tap
  std::uint16_t count;   // of all taps; 0: the stage has no weights in slots
  std::uint8_t log_of_tap;
  std::uint8_t log_chunk;  // a slot holds 1 << log_chunk units
  std::uint8_t chunks;
  std::uint8_t residual_chunks;
  std::uint8_t l2_prefetch_end;  // stages whose weights the L2 has been asked for at the start of this one
  std::uint8_t log_channels;     // of a block
  std::uint8_t log_sharers;      // blocks that share a group
  std::uint8_t log_groups;       // groups of a block
  std::int8_t clear;             // the stages whose values all blocks have read once this one's input is complete;
  std::int8_t clear_joined;      // kNone: none
};

struct TagPlan {
  int blocks = 0;  // a power of two, as are the channels of all stages
  int log_blocks = 0;
  int x_bytes = 0;      // of shared memory
  int zeros_bytes = 0;  // the same
  StageUnits units[kMaxStages] = {};
};

__host__ __device__ constexpr int padded_row(int channels) { return channels * 2 + kPadding; }

// Arguments that all parts of the kernel share.
template <class T>
struct Block {
  const Network& network;
  const TagPlan& plan;
  const Step::Tensors& t;
  ptx::TaggedWord* words;       // [values / 2]: values of all stages, two adjacent channels a word
  ptx::TaggedWord* statistics;  // [stages][blocks][2]: mean, and squares about it, of a block's channels
  unsigned char* slots;
  unsigned char* x;      // [position][padded_row(c)]
  unsigned char* zeros;  // a row
  float* sums;           // [value][kSumsPitch]
  ptx::Mbarrier* full;   // [kSlots]: a slot's weights have come
  float* residual_sums;
  int step;

  // Channels of a block in stage `stage_idx`.
  __device__ __forceinline__ int channels(int stage_idx) const { return 1 << plan.units[stage_idx].log_channels; }
  __device__ __forceinline__ int first_channel(int stage_idx) const {
    return static_cast<int>(blockIdx.x) << plan.units[stage_idx].log_channels;
  }
  __device__ __forceinline__ ptx::TaggedWord* statistics_of(int stage_idx) const {
    return statistics + (2 * stage_idx << plan.log_blocks);
  }
  // Offset in `words` of a value [position][channel] of this block.
  __device__ __forceinline__ int word_of(int stage_idx, int value) const {
    const int log_channels = plan.units[stage_idx].log_channels;
    const int position = value >> log_channels;
    const int row = value & ((1 << log_channels) - 1);
    const int in_stage = (position << (log_channels + plan.log_blocks)) + first_channel(stage_idx) + row;
    return (network.stages[stage_idx].value + in_stage) / 2;
  }
};

// The weights that come next in the slots, copied by one warp: a lane copies a row.
template <class T>
class WeightStream {
 public:
  __device__ __forceinline__ explicit WeightStream(const Block<T>& block) : block_(block) { skip_empty(); }

  // Starts as many copies as there is room for, once `consumed` chunks have been used.
  __device__ __forceinline__ void fill(int consumed) {
#pragma unroll 1
    while (stage_idx_ < block_.network.count && started_ - consumed < kSlots) {
      copy_chunk();
      ++started_;
      slot_ = slot_ + 1 == kSlots ? 0 : slot_ + 1;
      const StageUnits& units = block_.plan.units[stage_idx_];
      if (++chunk_ < units.chunks + units.residual_chunks) continue;
      chunk_ = 0;
      ++stage_idx_;
      skip_empty();
    }
  }

 private:
  __device__ __forceinline__ void skip_empty() {
    while (stage_idx_ < block_.network.count && block_.plan.units[stage_idx_].count == 0) ++stage_idx_;
  }

  __device__ __forceinline__ void copy_chunk() const {
    const Stage& stage = block_.network.stages[stage_idx_];
    const StageUnits& units = block_.plan.units[stage_idx_];
    const bool is_residual = chunk_ >= units.chunks;
    const int first = (is_residual ? chunk_ - units.chunks : chunk_) << units.log_chunk;
    const int count = min((is_residual ? units.of_tap : units.count) - first, 1 << units.log_chunk);
    const int row_elements = is_residual ? stage.c : stage.taps * stage.c;
    const int offset = is_residual ? block_.network.stages[stage_idx_ + 1].residual_weights : stage.weights;
    const int row = static_cast<int>(threadIdx.x) % 32;
    const int rows = block_.channels(stage_idx_);
    const T* const from = static_cast<const T*>(block_.t.weights) + offset +
                          (block_.first_channel(stage_idx_) + row) * row_elements + first * kUnit;
    const int pitch = (kUnitBytes << units.log_chunk) + kPadding;
    if (row == 0) ptx::mbarrier_arrive_expect_tx(block_.full + slot_, rows * count * kUnitBytes);
    __syncwarp();
    if (row < rows) {
      ptx::bulk_copy(block_.slots + slot_ * kSlotBytes + row * pitch, from, count * kUnitBytes, block_.full + slot_);
    }
  }

  const Block<T>& block_;
  int stage_idx_ = 0;
  int chunk_ = 0;
  int slot_ = 0;
  int started_ = 0;  // chunks
};

// Prefetches the block's weights of stages first .. end-1 into the L2, by one thread.
template <class T>
__device__ __forceinline__ void prefetch_weights(const Block<T>& block, int first, int end) {
#pragma unroll 1
  for (int i = first; i < end; ++i) {
    const Stage& stage = block.network.stages[i];
    if (block.plan.units[i].count == 0) continue;
    const auto prefetch = [&](int offset, int row_elements) {
      const int elements = block.channels(i) * row_elements;
      ptx::prefetch_l2(static_cast<const T*>(block.t.weights) + offset + static_cast<int>(blockIdx.x) * elements,
                       elements * static_cast<unsigned>(sizeof(T)));
    };
    prefetch(stage.weights, stage.taps * stage.c);
    if (block.plan.units[i].residual_chunks > 0) {
      prefetch(block.network.stages[i + 1].residual_weights, stage.c);
    }
  }
}

// Reads the values of stage `source` until all have come, into channels first, first + 1, ... of the input, by thread
// `worker` of kWorkers.
template <class T>
__device__ __forceinline__ void read_values(const Block<T>& block, int source, int first, int pitch, int worker) {
  const Stage& stage = block.network.stages[source];
  const int log_pairs = block.plan.units[source].log_channels + block.plan.log_blocks - 2;  // of a row
  const int all = stage.out_l() << log_pairs;
  const ptx::TaggedWord* const words = block.words + stage.value / 2;
  constexpr int kAtOnce = 2;
#pragma unroll 1
  for (int begin = worker; begin < all; begin += kAtOnce * kWorkers) {
    ptx::TaggedPair pairs[kAtOnce];
    bool complete = false;
    while (true) {
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int i = begin + j * kWorkers;
        if (i < all) pairs[j] = ptx::load_tagged(words + 2 * i);
      }
      complete = true;
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        if (begin + j * kWorkers < all) complete &= ptx::has_tag(pairs[j], kReady);
      }
      if (complete) break;
      ptx::before_next_read();
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int i = begin + j * kWorkers;
      if (i >= all) break;
      const int position = i >> log_pairs;
      const int channel = first + (i - (position << log_pairs)) * kQuad;
      *reinterpret_cast<uint2*>(block.x + position * pitch + channel * 2) = {ptx::data_of(pairs[j].first),
                                                                             ptx::data_of(pairs[j].second)};
    }
  }
}

// The slots in the order in which they are used, from one stage to the next.
struct SlotIndex {
  int slot = 0;
  unsigned parity = 0;

  __device__ __forceinline__ void advance(int chunks) {
    slot += chunks;
    if (slot < kSlots) return;
    slot -= kSlots;
    parity ^= 1;
  }
};

// The position of the input that a tap multiplies for an output: (first + stride output + sign tap) >> halves. Of a
// transposed convolution the taps of the wrong parity have none.
struct Taps {
  int first;
  int stride;
  int sign;
  int halves;
  int count;

  __device__ __forceinline__ static Taps of(const Stage& stage) {
    if (stage.transposed) return {.first = 1, .stride = 1, .sign = -1, .halves = 1, .count = stage.taps};
    return {.first = stage.stride2 ? -1 : -(stage.taps / 2),
            .stride = stage.stride2 ? 2 : 1,
            .sign = 1,
            .halves = 0,
            .count = stage.taps};
  }
};

// A worker's part of a stage's products, in two halves: what needs no input, and the rest. Warp w has units w, w + kWarps, ...
template <class T>
class Multiplier {
 public:
  // `count` units of the slots from `at` on.
  __device__ __forceinline__ Multiplier(const Block<T>& block, int stage_idx, Taps taps, int count, int outputs,
                                        SlotIndex at, int worker)
      : block_(block),
        taps_(taps),
        at_(at),
        count_(count),
        outputs_(outputs),
        warp_(worker / 32),
        log_chunk_(block.plan.units[stage_idx].log_chunk),
        log_of_tap_(block.plan.units[stage_idx].log_of_tap),
        log_channels_(block.plan.units[stage_idx].log_channels),
        x_pitch_(padded_row(block.network.stages[stage_idx].c)) {
    const int lane = worker % 32;
    const int length = block.network.stages[stage_idx].l;
    // Matrices of ldmatrix: rows 0 to 7, 8 to 15, and the same of the next 8 channels. Rows past the block's channels
    // are copies of others; their sums are not used.
    const int row = lane % 16 & ((1 << log_channels_) - 1);
    a_lane_ = block.slots + row * ((kUnitBytes << log_chunk_) + kPadding) + lane / 16 * 16;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int output = tile * 8 + lane % 8;
      starts_[tile] = taps.first + taps.stride * output;
      for (int tap = 0; tap < taps.count; ++tap) {
        const int halves = starts_[tile] + taps.sign * tap;
        const auto position = static_cast<unsigned>(halves >> taps.halves);
        const bool is_inside =
            output < outputs && (halves & taps.halves) == 0 && position < static_cast<unsigned>(length);
        inside_[tile] |= (is_inside ? 1u : 0u) << tap;
      }
    }
#pragma unroll
    for (int i = 0; i < kEarlyUnits; ++i) {
      const int unit = warp_ + i * kWarps;
      if (unit < count_) load_weights(unit, early_[i]);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) early_rows_[i][tile] = unit < count_ ? row_of(unit, tile) : block.zeros;
    }
  }

  // Multiplies, and stores the warp's sums [value][kSumsPitch].
  __device__ __forceinline__ void multiply(float* sums) {
    float acc[kTiles][4] = {};
    std::uint32_t x[kEarlyUnits][kTiles][4];
#pragma unroll
    for (int i = 0; i < kEarlyUnits; ++i) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) ptx::ldmatrix_x4(x[i][tile], early_rows_[i][tile]);
    }
#pragma unroll
    for (int i = 0; i < kEarlyUnits; ++i) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) multiply_tile(acc[tile], early_[i], x[i][tile]);
    }
#pragma unroll 2
    for (int unit = warp_ + kEarlyUnits * kWarps; unit < count_; unit += kWarps) {
      std::uint32_t weights[2][4];
      load_weights(unit, weights);
      std::uint32_t its_x[kTiles][4];
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) ptx::ldmatrix_x4(its_x[tile], row_of(unit, tile));
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) multiply_tile(acc[tile], weights, its_x[tile]);
    }
    const int lane = static_cast<int>(threadIdx.x) % 32;
    float* const to = sums + (((lane % 4 * 2) << log_channels_) + lane / 4) * kSumsPitch + warp_;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + i / 2 * 8;
        const int output = tile * 8 + lane % 4 * 2 + i % 2;
        if (row >> log_channels_ == 0 && output < outputs_) {
          to[(((tile * 8 + i % 2) << log_channels_) + i / 2 * 8) * kSumsPitch] = acc[tile][i];
        }
      }
    }
  }

 private:
  __device__ __forceinline__ void load_weights(int unit, std::uint32_t (&weights)[2][4]) {
    const int chunk = unit >> log_chunk_;
    const bool wraps = at_.slot + chunk >= kSlots;
    const int slot = at_.slot + chunk - (wraps ? kSlots : 0);
    if (chunk != waited_) {
      ptx::mbarrier_wait(block_.full + slot, at_.parity ^ (wraps ? 1 : 0));
      waited_ = chunk;
    }
    const unsigned char* const from = a_lane_ + slot * kSlotBytes + (unit - (chunk << log_chunk_)) * kUnitBytes;
    ptx::ldmatrix_x4(weights[0], from);
    ptx::ldmatrix_x4(weights[1], from + 32);
  }

  // The lane's 16 bytes of a unit's input: of the row of zeros if the tap has no part in the output.
  __device__ __forceinline__ const unsigned char* row_of(int unit, int tile) const {
    const int tap = unit >> log_of_tap_;
    const int offset = (unit - (tap << log_of_tap_)) * kUnitBytes + static_cast<int>(threadIdx.x) % 32 / 8 * 16;
    const int position = (starts_[tile] + taps_.sign * tap) >> taps_.halves;
    return ((inside_[tile] >> tap & 1) != 0 ? block_.x + position * x_pitch_ : block_.zeros) + offset;
  }

  static __device__ __forceinline__ void multiply_tile(float (&acc)[4], const std::uint32_t (&weights)[2][4],
                                                       const std::uint32_t (&x)[4]) {
    ptx::mma_m16n8k16<T>(acc, weights[0], {x[0], x[1]});
    ptx::mma_m16n8k16<T>(acc, weights[1], {x[2], x[3]});
  }

  const Block<T>& block_;
  Taps taps_;
  SlotIndex at_;
  int count_;
  int outputs_;
  int warp_;
  int log_chunk_;
  int log_of_tap_;
  int log_channels_;
  int x_pitch_;
  int waited_ = kNone;
  const unsigned char* a_lane_;
  int starts_[kTiles];
  unsigned inside_[kTiles] = {};  // a bit for each tap
  std::uint32_t early_[kEarlyUnits][2][4] = {};
  const unsigned char* early_rows_[kEarlyUnits][kTiles];
};

// Clears, by one warp, the words that no block will read again once the input of stage `stage_idx` is complete: each launch
// must find none with its tag.
template <class T>
__device__ __forceinline__ void clear_words(const Block<T>& block, int stage_idx) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto clear_values = [&](int read) {
    if (read == kNone || 2 * lane >= block.network.stages[read].out_l() << block.plan.units[read].log_channels) return;
    ptx::store_tagged(block.words + block.word_of(read, 2 * lane), 0);
  };
  clear_values(block.plan.units[stage_idx].clear);
  clear_values(block.plan.units[stage_idx].clear_joined);
  if (lane < 2 && block.plan.units[stage_idx - 1].log_sharers > 0) {
    ptx::store_tagged(block.statistics_of(stage_idx - 1) + 2 * blockIdx.x + lane, 0);
  }
}

// Parameters of two adjacent channels.
struct Parameters {
  float2 bias = {}, gamma = {}, beta = {}, scale = {1.0f, 1.0f}, shift = {}, residual_bias = {};
};

template <class T>
__device__ __forceinline__ Parameters parameters_of(const Block<T>& block, int stage_idx, int channel) {
  const Stage& stage = block.network.stages[stage_idx];
  const auto two = [](const float* from) { return *reinterpret_cast<const float2*>(from); };
  Parameters p;
  const float* const vectors = block.t.vectors + channel;
  p.bias = two(vectors + stage.bias);
  if (stage.groups == 0) return p;
  p.gamma = two(vectors + stage.gamma());
  p.beta = two(vectors + stage.beta());
  if (stage.residual == Residual::convolution) p.residual_bias = two(vectors + stage.residual_bias);
  if (stage.film != kNone) {
    const float* const of_step =
        block.t.film_table + static_cast<std::int64_t>(block.step) * block.network.film_row + stage.film + channel;
    const float* const of_sample = block.t.film + stage.film + channel;
    const float2 scale = two(of_step), more_scale = two(of_sample);
    const float2 shift = two(of_step + stage.k), more_shift = two(of_sample + stage.k);
    p.scale = {scale.x + more_scale.x, scale.y + more_scale.y};
    p.shift = {shift.x + more_shift.x, shift.y + more_shift.y};
  }
  return p;
}

// Returns the sums over warps of two adjacent values.
__device__ __forceinline__ float2 add_warps(const float* sums, int value) {
  float2 total = {0.0f, 0.0f};
#pragma unroll
  for (int i = 0; i < kWarps; i += kQuad) {
    const float4 x = *reinterpret_cast<const float4*>(sums + value * kSumsPitch + i);
    const float4 y = *reinterpret_cast<const float4*>(sums + (value + 1) * kSumsPitch + i);
    total.x += (x.x + x.y) + (x.z + x.w);
    total.y += (y.x + y.y) + (y.z + y.w);
  }
  return total;
}

// Returns mean and reciprocal deviation of the group of which this lane has the values h, by all lanes of a warp.
// `is_active`: the lane has values.
template <class T>
__device__ __forceinline__ float2 normalisation(const Block<T>& block, int stage_idx, float2 h, int row,
                                                bool is_active) {
  const Stage& stage = block.network.stages[stage_idx];
  const StageUnits& units = block.plan.units[stage_idx];
  const int log_width = units.log_channels - units.log_groups;  // of a group's channels in this block
  const auto count = static_cast<float>(stage.out_l() << log_width);
  const float inverse_count = 1.0f / count;
  const int group = row >> log_width;
  const float pivot = __shfl_sync(~0u, h.x, 0);
  float2 result = {0.0f, 0.0f};
#pragma unroll 1
  for (int g = 0; g < 1 << units.log_groups; ++g) {
    const bool counts = is_active && group == g;
    const float x = counts ? h.x - pivot : 0.0f;
    const float y = counts ? h.y - pivot : 0.0f;
    float sum = x + y;
    float squares = fmaf(x, x, y * y);
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(~0u, sum, distance);
      squares += __shfl_xor_sync(~0u, squares, distance);
    }
    const float off = sum * inverse_count;
    float mean = pivot + off;
    squares = ptx::maximum(fmaf(-sum, off, squares), 0.0f);
    float inverse_all = inverse_count;
    if (units.log_sharers > 0) {
      // The group's other blocks have as many values each.
      const int blocks = 1 << units.log_sharers;
      ptx::TaggedWord* const of_stage = block.statistics_of(stage_idx);
      const int lane = static_cast<int>(threadIdx.x);
      if (lane < 2) {
        ptx::store_tagged(of_stage + 2 * blockIdx.x + lane,
                          ptx::tagged(__float_as_uint(lane == 0 ? mean : squares), kReady));
      }
      const ptx::TaggedWord* const of_group = of_stage + 2 * (blockIdx.x & ~(blocks - 1u));
      ptx::TaggedPair pair{};
      for (bool has_come = lane >= blocks; !has_come;) {
        pair = ptx::load_tagged(of_group + 2 * lane);
        has_come = ptx::has_tag(pair, kReady);
        if (!has_come) ptx::before_next_read();
      }
      __syncwarp();
      float means = lane < blocks ? __uint_as_float(ptx::data_of(pair.first)) - mean : 0.0f;
      float all_squares = lane < blocks ? __uint_as_float(ptx::data_of(pair.second)) : 0.0f;
      float mean_squares = means * means;
#pragma unroll
      for (int distance = 16; distance > 0; distance /= 2) {
        if (distance >= blocks) continue;
        means += __shfl_xor_sync(~0u, means, distance);
        all_squares += __shfl_xor_sync(~0u, all_squares, distance);
        mean_squares += __shfl_xor_sync(~0u, mean_squares, distance);
      }
      const float inverse_blocks = 1.0f / static_cast<float>(blocks);
      means = __shfl_sync(~0u, means, 0);
      all_squares = __shfl_sync(~0u, all_squares, 0);
      mean_squares = __shfl_sync(~0u, mean_squares, 0);
      const float from_own = means * inverse_blocks;
      squares = all_squares + count * ptx::maximum(fmaf(-means, from_own, mean_squares), 0.0f);
      mean += from_own;
      inverse_all = inverse_count * inverse_blocks;
    }
    if (group == g) result = {mean, rsqrtf(squares * inverse_all + conv1d::kEpsilon)};
  }
  return result;
}

// Values of warp 0's lanes that later stages add: those of the two stages before, and the residual convolution of this
// stage's input.
struct Kept {
  float2 before = {}, two_before = {}, residual = {};
};

// Finishes a stage by warp 0: from the sums, h, to the stored values.
template <class T>
__device__ __forceinline__ void finish_stage(const Block<T>& block, int stage_idx, float2 h, const Parameters& p,
                                             Kept& kept) {
  const Stage& stage = block.network.stages[stage_idx];
  const int channels = block.channels(stage_idx);
  const int value = static_cast<int>(threadIdx.x) * 2;  // of [position][channel]
  const bool is_active = value < stage.out_l() * channels;
  h = {h.x + p.bias.x, h.y + p.bias.y};
  float2 v = h;
  if (stage.groups > 0) {
    const float2 n = normalisation(block, stage_idx, h, value & (channels - 1), is_active);
    v = {Mish::value(fmaf(p.gamma.x * n.y, h.x - n.x, p.beta.x)),
         Mish::value(fmaf(p.gamma.y * n.y, h.y - n.x, p.beta.y))};
    v = {fmaf(p.scale.x, v.x, p.shift.x), fmaf(p.scale.y, v.y, p.shift.y)};
    if (stage.residual == Residual::identity) v = {v.x + kept.two_before.x, v.y + kept.two_before.y};
    if (stage.residual == Residual::convolution) {
      v = {v.x + kept.residual.x + p.residual_bias.x, v.y + kept.residual.y + p.residual_bias.y};
    }
  }
  const T rounded[2] = {from_float<T>(v.x), from_float<T>(v.y)};
  std::uint32_t bits;
  memcpy(&bits, rounded, sizeof(bits));
  if (is_active) ptx::store_tagged(block.words + block.word_of(stage_idx, value), ptx::tagged(bits, kReady));
  kept.two_before = kept.before;
  kept.before = {to_float(rounded[0]), to_float(rounded[1])};
}

// Returns the first stage's sums, and those of the residual convolution that the second one adds, of warp 0's lanes.
// `weights`: the block's of both convolutions; `x` [l, c], rounded.
template <class T>
__device__ __forceinline__ float2 first_sums(const Block<T>& block, const float* weights, const float* x,
                                             float2& residual) {
  const Stage& stage = block.network.stages[0];
  const int channels = block.channels(0);
  const int value = static_cast<int>(threadIdx.x) * 2;
  const int output = value >> block.plan.units[0].log_channels;
  const int row_elements = stage.taps * stage.c;
  const float* const of_row = weights + (value & (channels - 1)) * row_elements;
  const float* const of_residual = weights + channels * row_elements + (value & (channels - 1)) * stage.c;
  float2 sum = {0.0f, 0.0f};
  residual = {0.0f, 0.0f};
  if (output >= stage.out_l()) return sum;
  for (int i = 0; i < row_elements; ++i) {
    const int from = (output - stage.taps / 2) * stage.c + i;  // position and channel count on as tap and channel do
    if (from < 0 || from >= stage.l * stage.c) continue;
    sum = {fmaf(of_row[i], x[from], sum.x), fmaf(of_row[row_elements + i], x[from], sum.y)};
  }
  for (int c = 0; c < stage.c; ++c) {
    const float its_x = x[output * stage.c + c];
    residual = {fmaf(of_residual[c], its_x, residual.x), fmaf(of_residual[stage.c + c], its_x, residual.y)};
  }
  return sum;
}

// The last stage, a 1x1 convolution, and the scheduler's step, by block 0: a warp an output.
template <class T>
__device__ __forceinline__ void step_x(const Block<T>& block) {
  const int stage_idx = block.network.count - 1;
  const Stage& stage = block.network.stages[stage_idx];
  const int worker = static_cast<int>(threadIdx.x) - 32;
  if (worker >= 0) read_values(block, stage.source, 0, padded_row(stage.c), worker);
  __syncthreads();
  // All blocks have read the words of the two stages before this one, and the statistics of the last of them.
  for (int i = block.network.stages[stage_idx - 2].value / 2 + static_cast<int>(threadIdx.x); i < stage.value / 2;
       i += kThreads) {
    ptx::store_tagged(block.words + i, 0);
  }
  if (block.plan.units[stage_idx - 1].log_sharers > 0) {
    for (int i = static_cast<int>(threadIdx.x); i < 2 * block.plan.blocks; i += kThreads) {
      ptx::store_tagged(block.statistics_of(stage_idx - 1) + i, 0);
    }
  }
  const T* const weights = static_cast<const T*>(block.t.weights) + stage.weights;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int i = static_cast<int>(threadIdx.x) / 32; i < stage.l * stage.k; i += kThreads / 32) {
    const int k = i % stage.k;
    const T* const x = reinterpret_cast<const T*>(block.x + i / stage.k * padded_row(stage.c));
    float sum = 0;
    for (int c = lane; c < stage.c; c += 32) sum = fmaf(to_float(weights[k * stage.c + c]), to_float(x[c]), sum);
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
    if (lane == 0) {
      block.t.x[i] =
          next_x(block.t.table[block.step], block.t.x[i], sum + block.t.vectors[stage.bias + k], block.t.noise[i]);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    policy_step_v04_kernel(const __grid_constant__ Network network, Step::Tensors t,
                           const __grid_constant__ TagPlan plan, ptx::TaggedWord* words) {
  LADDER_SHARED(float, first_weights, [kFirstWeights]);
  LADDER_SHARED(float, sample, [kMaxSample]);
  LADDER_SHARED(ptx::Mbarrier, full, [kSlots]);
  LADDER_DYN_SMEM(smem);
  Block<T> block{.network = network, .plan = plan, .t = t, .words = words};
  block.statistics = words + network.values / 2;
  block.slots = smem;
  block.x = smem + kSlots * kSlotBytes;
  block.zeros = block.x + plan.x_bytes;
  block.sums = reinterpret_cast<float*>(block.zeros + plan.zeros_bytes);
  block.residual_sums = block.sums + kSumsBytes / sizeof(float);
  block.full = full;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int last = network.count - 1;

  if (threadIdx.x == 0) {
    for (int i = 0; i < kSlots; ++i) ptx::mbarrier_init(full + i, 1);
    ptx::mbarrier_fence_init();
  }
  __syncthreads();

  for (int i = static_cast<int>(threadIdx.x); i < plan.zeros_bytes / 4; i += kThreads) {
    reinterpret_cast<std::uint32_t*>(block.zeros)[i] = 0;
  }
  if (threadIdx.x == 32) prefetch_weights(block, 0, plan.units[0].l2_prefetch_end);

  ptx::grid_dependency_wait();
  ptx::grid_dependency_launch();
  block.step = *t.step;
  WeightStream<T> stream(block);
  if (warp == 1) stream.fill(0);
  {
    const Stage& stage = network.stages[0];
    const int row = stage.taps * stage.c;
    const int channels = block.channels(0);
    const auto* const weights = static_cast<const T*>(t.weights);
    const int first = block.first_channel(0);
    const int residual = network.stages[1].residual == Residual::convolution ? network.stages[1].residual_weights : 0;
    for (int i = static_cast<int>(threadIdx.x); i < channels * (row + stage.c); i += kThreads) {
      first_weights[i] = to_float(i < channels * row ? weights[stage.weights + first * row + i]
                                                     : weights[residual + first * stage.c + i - channels * row]);
    }
    for (int i = static_cast<int>(threadIdx.x); i < stage.l * stage.c; i += kThreads) {
      sample[i] = to_float(from_float<T>(t.x[i]));
    }
  }
  __syncthreads();

  Kept kept;
  int consumed = 0;  // chunks
  SlotIndex at;
  const int worker = static_cast<int>(threadIdx.x) - 32;
#pragma unroll 1
  for (int stage_idx = 0; stage_idx < last; ++stage_idx) {
    const Stage& stage = network.stages[stage_idx];
    const StageUnits& units = plan.units[stage_idx];
    const int value = static_cast<int>(threadIdx.x) * 2;  // of warp 0
    const int pitch = padded_row(stage.c);
    const bool multiplies = stage_idx > 0;
    Parameters parameters;
    Multiplier<T> multiplier(block, stage_idx, Taps::of(stage), worker >= 0 && multiplies ? units.count : 0,
                             stage.out_l(), at, max(worker, 0));
    if (worker >= 0 && stage.joined > 0) {
      read_values(block, stage.joined_stage, stage.c - stage.joined, pitch, worker);
    }
    __syncthreads();  // this block has stored the stage before: what the others still lack will be there soon
    if (worker >= 0 && multiplies) read_values(block, stage.source, 0, pitch, worker);
    __syncthreads();
    if (warp == 0) {
      parameters =
          parameters_of(block, stage_idx, block.first_channel(stage_idx) + (value & (block.channels(stage_idx) - 1)));
    } else if (multiplies) {
      multiplier.multiply(block.sums);
      at.advance(units.chunks);
      if (units.residual_chunks > 0) {
        const Taps one{.first = 0, .stride = 1, .sign = 1, .halves = 0, .count = 1};
        Multiplier<T>(block, stage_idx, one, units.of_tap, stage.l, at, worker).multiply(block.residual_sums);
        at.advance(units.residual_chunks);
      }
      consumed += units.chunks + units.residual_chunks;
    }
    __syncthreads();
    if (warp == 0) {
      float2 h = {};
      float2 residual = kept.residual;
      if (stage_idx == 0) {
        h = first_sums(block, first_weights, sample, residual);
      } else if (value < stage.out_l() * block.channels(stage_idx)) {
        h = add_warps(block.sums, value);
        if (units.residual_chunks > 0) residual = add_warps(block.residual_sums, value);
      }
      finish_stage(block, stage_idx, h, parameters, kept);
      kept.residual = residual;
    } else if (warp == 1) {
      stream.fill(consumed);
      if (threadIdx.x == 32) {
        prefetch_weights(block, units.l2_prefetch_end, plan.units[stage_idx + 1].l2_prefetch_end);
      }
      if (stage_idx > 0) clear_words(block, stage_idx);
    }
  }
  if (blockIdx.x != 0) return;
  step_x(block);
}

// The plan with `blocks` blocks, or the reason why there is none.
struct PlanOrReason {
  TagPlan plan;
  const char* reason = nullptr;
};

std::uint8_t log_of(int power_of_two) {
  return static_cast<std::uint8_t>(std::countr_zero(static_cast<unsigned>(power_of_two)));
}

PlanOrReason plan_of(const Problem& p, const Network& network, int blocks) {
  PlanOrReason made{.plan = {.blocks = blocks, .log_blocks = log_of(blocks)}};
  const auto refuse = [&](const char* reason) {
    made.reason = reason;
    return made;
  };
  if (p.n != 1) return refuse("one sample");
  TagPlan& plan = made.plan;
  const std::size_t prefetch_bytes = backend::device().l2_bytes / 2;
  std::size_t ahead = 0;
  const auto bytes_of = [&](int i) {
    const Stage& stage = network.stages[i];
    return std::size_t{2} * stage.k * stage.c * (stage.taps + (plan.units[i].residual_chunks > 0 ? 1 : 0));
  };
  for (int i = 0; i + 1 < network.count; ++i) {
    const Stage& stage = network.stages[i];
    const int channels = stage.k / blocks;
    const auto is_power = [](int x) { return std::has_single_bit(static_cast<unsigned>(x)); };
    if (stage.k % blocks != 0 || channels < 2 || channels > kMaxChannels || !is_power(channels)) {
      return refuse("2, 4, 8 or 16 channels a block");
    }
    if (stage.out_l() > kMaxPositions || channels * stage.out_l() > kMaxValues) {
      return refuse("at most 16 positions, and 64 values a block");
    }
    StageUnits& units = plan.units[i];
    units.log_channels = log_of(channels);
    if (stage.groups > 0) {
      if (!is_power(stage.groups) || stage.k / stage.groups % 2 != 0 || blocks / stage.groups > 32) {
        return refuse("1, 2, 4 or 8 groups of an even number of channels, of at most 32 blocks");
      }
      if (stage.groups < blocks) units.log_sharers = log_of(blocks / stage.groups);
      if (stage.groups > blocks) units.log_groups = log_of(stage.groups / blocks);
    }
    if (stage.residual == Residual::identity) {
      const Stage& from = network.stages[i - 1];
      if (from.source == kSample || from.joined > 0) return refuse("residuals of the stage before the last alone");
    }
    if (i == 0) {
      if (channels * (stage.taps + 1) * stage.c > kFirstWeights || stage.l * stage.c > kMaxSample) {
        return refuse("a smaller first convolution");
      }
      continue;
    }
    if (stage.c % kUnit != 0 || stage.weights % 8 != 0) return refuse("channels in multiples of 32");
    const bool widens = network.stages[i + 1].residual == Residual::convolution;
    if (widens && network.stages[i + 1].residual_weights % 8 != 0) return refuse("channels in multiples of 32");
    if (!is_power(stage.c)) return refuse("2, 4, 8 or 16 channels a block");
    units.of_tap = static_cast<std::uint16_t>(stage.c / kUnit);
    units.log_of_tap = log_of(stage.c / kUnit);
    units.count = static_cast<std::uint16_t>(units.of_tap * stage.taps);
    units.log_chunk = static_cast<std::uint8_t>(
        std::bit_width(static_cast<unsigned>((kSlotBytes / channels - kPadding) / kUnitBytes)) - 1);
    units.chunks = static_cast<std::uint8_t>(ceil_div(int{units.count}, 1 << units.log_chunk));
    if (widens) units.residual_chunks = static_cast<std::uint8_t>(ceil_div(int{units.of_tap}, 1 << units.log_chunk));
    if (units.chunks + units.residual_chunks > kSlots) return refuse("a stage's weights in the slots of a block");
    plan.x_bytes = std::max(plan.x_bytes, stage.l * padded_row(stage.c));
    plan.zeros_bytes = std::max(plan.zeros_bytes, padded_row(stage.c));
  }
  // A stage's last reader is the next stage, or the one that it is joined to.
  for (int i = 0; i < network.count; ++i) plan.units[i].clear = plan.units[i].clear_joined = kNone;
  for (int i = 0; i + 2 < network.count; ++i) {
    int reader = i + 1;
    for (int j = i + 2; j < network.count; ++j) {
      if (network.stages[j].joined_stage == i) reader = j;
    }
    if (reader + 1 >= network.count - 1) continue;  // cleared at the end
    (reader == i + 1 ? plan.units[reader + 1].clear : plan.units[reader + 1].clear_joined) =
        static_cast<std::int8_t>(i);
  }
  const Stage& out = network.stages[network.count - 1];
  plan.x_bytes = std::max(plan.x_bytes, out.l * padded_row(out.c));
  for (int i = 0, end = 0; i < network.count; ++i) {
    for (; end + 1 < network.count && ahead < prefetch_bytes; ++end) ahead += bytes_of(end);
    plan.units[i].l2_prefetch_end = static_cast<std::uint8_t>(end);
    if (end > i) ahead -= bytes_of(i);
  }
  return made;
}

std::size_t smem_bytes(const TagPlan& plan) {
  return std::size_t{kSlots} * kSlotBytes + plan.x_bytes + plan.zeros_bytes + 2 * kSumsBytes;
}

PlanOrReason fitting_plan(const Problem& p, const Network& network, int blocks) {
  PlanOrReason made = plan_of(p, network, blocks);
  constexpr std::size_t kStatic = sizeof(float) * (kFirstWeights + kMaxSample) + sizeof(ptx::Mbarrier) * kSlots;
  if (!made.reason && smem_bytes(made.plan) + kStatic > static_cast<std::size_t>(most_smem_bytes())) {
    made.reason = "slots and a stage's input in an SM's shared memory";
  }
  return made;
}

int most_blocks() { return static_cast<int>(std::bit_floor(static_cast<unsigned>(backend::device().num_sms))); }

KernelPlan<Step> kernel_plan(const char* name, const Problem& p, const Network& network, const TagPlan& plan) {
  const auto bind = [=](const Step::Tensors& t, void* workspace) {
    auto* const words = static_cast<ptx::TaggedWord*>(workspace);
    const auto bind_type = [&]<class T>(T) {
      return bind_launch(policy_step_v04_kernel<T>,
                         {.grid = static_cast<unsigned>(plan.blocks),
                          .block = kThreads,
                          .dynamic_smem = smem_bytes(plan),
                          .overlaps_previous = true,
                          .cooperative = true},
                         network, t, plan, words);
    };
    return p.dtype == Dtype::bf16 ? bind_type(__nv_bfloat16{}) : bind_type(__half{});
  };
  const std::size_t words = network.values / 2 + std::size_t{2} * network.count * plan.blocks;
  return {.name = name, .workspace_bytes = words * sizeof(ptx::TaggedWord), .bind = bind};
}

std::vector<KernelPlan<Step>> plans(const Problem& p) {
  const Network network = network_of(p);
  std::vector<KernelPlan<Step>> made;
  const auto add = [&](const char* name, int blocks) {
    const PlanOrReason plan = fitting_plan(p, network, blocks);
    if (!plan.reason) made.push_back(kernel_plan(name, p, network, plan.plan));
  };
  add("half of the blocks", most_blocks() / 2);
  add("all blocks", most_blocks());
  return made;
}

const char* supports(const Problem& p) {
  const Network network = network_of(p);
  const char* const reason = fitting_plan(p, network, most_blocks()).reason;
  return reason ? fitting_plan(p, network, most_blocks() / 2).reason : nullptr;
}

}  // namespace
}  // namespace ladder::policy

LADDER_VERSION(ladder::policy::Step, {.plans = ladder::policy::plans,
                                      .plan_names = {"half of the blocks", "all blocks"},
                                      .dtypes = {ladder::Dtype::bf16, ladder::Dtype::f16},
                                      .supports = ladder::policy::supports,
                                      .private_workspace = true,
                                      .min_arch = 90,
                                      .needs = "one sample; powers of two of channels, 2 to 16 of them a block"})
