// Idea:   weights stream on through the barriers. Each lane copies the weights that it will multiply into a ring of its
//         own in shared memory, stages ahead; a prefetch into the L2 runs further ahead still. Tensor cores multiply,
//         with the taps of a convolution as columns beside its output channels.
// Parent: v02.
// Why:    v02 has 8 KB of weights on their way in an SM, none while blocks wait for each other, and after each barrier
//         a chain of loads and of divisions an element. Here up to 144 KB are on their way at any time. A row of the
//         input is loaded once for all taps: tap t of position i is a product of its own, which the sum over warps adds
//         where it belongs, so that strides, padding and the transposed convolution are index arithmetic of that sum
//         alone. All that the input needs besides the previous sums is loaded before the wait. Limiter: the barrier and
//         the latency of the L2, 30 times.
// Needs:  bf16 or fp16; all blocks resident (a cooperative launch); the ring, a stage's input and a block's sums in an
//         SM's shared memory. Samples come one after the other and read the weights again.

#include <algorithm>

#include "core/graph.h"
#include "core/occupancy.h"
#include "dev/policy/next_x.h"
#include "dev/policy/normed_input.h"
#include "dev/policy/weight_ring.h"
#include "dev/ptx/grid_barrier.h"
#include "dev/ptx/grid_dependency.h"
#include "dev/ptx/prefetch_l2.h"

namespace ladder::policy {
namespace {

constexpr int kWarps = 16;  // warps that multiply; one more in front of them waits for the grid
constexpr int kWorkers = kWarps * 32;
constexpr int kThreads = 32 + kWorkers;
constexpr int kOutputLanes = 16;  // lanes that add the warps' sums of an output
constexpr int kFewSets = 6;       // sets of weights in an entry of the ring: up to 5 taps, and a residual convolution
constexpr int kMoreSets = 8;
constexpr int kNoKBlock = 1 << 20;  // no K block has this number
constexpr std::size_t kCounterBytes = 256;
static_assert(kOutputLanes == kWarps);

struct RingPlan {
  WorkSplit work_split[kMaxStages] = {};
  // Number of stages whose weights the L2 has been asked for at the start of a stage.
  std::uint8_t l2_prefetch_end[kMaxStages] = {};
  std::uint64_t full = 0;  // a bit for each stage: ChannelRange::full
  int input_bytes = 0;     // of shared memory, after the ring
  int sums_bytes = 0;      // of shared memory, after the input
};

// Layout of a warp's partial sums of one stage in shared memory: [set][position of the input][column].
struct PartialSumsLayout {
  int length;
  int column_bits;
  int columns;  // 2, 4 or 8: the output channels of a tile
  int of_warp;  // floats of a warp; the sixteen warps' sums of an output lie two banks apart

  __host__ __device__ PartialSumsLayout(const Stage& stage, int sets, int channels)
      : length(stage.l),
        column_bits(channels > 4   ? 3
                    : channels > 2 ? 2
                                   : 1),
        columns(1 << column_bits),
        of_warp((sets * length << column_bits) + 2) {}
  __host__ __device__ int offset_of(int set, int position) const { return (set * length + position) << column_bits; }
};

// Prefetch the block's part of floats that all blocks will read into the L2, by one thread.
__device__ __forceinline__ void prefetch_floats(const float* from, int count) {
  const int floats_per_block = ceil_div(count, 4 * static_cast<int>(gridDim.x)) * 4;
  const int begin = min(static_cast<int>(blockIdx.x) * floats_per_block, count / 4 * 4);
  const int end = min(begin + floats_per_block, count / 4 * 4);
  if (begin < end && reinterpret_cast<std::uintptr_t>(from) % 16 == 0) {
    ptx::prefetch_l2(from + begin, static_cast<unsigned>(end - begin) * 4);
  }
}

template <class T, int kSets>
__global__ void __launch_bounds__(kThreads, 1)
    policy_step_v03_kernel(Problem p, const __grid_constant__ Network network, Step::Tensors t,
                           const __grid_constant__ RingPlan plan, unsigned* counter, Buffers<T> buffers) {
  using Ring = WeightRing<T, kWarps, kSets>;
  LADDER_SHARED(float2, warp_sums, [kWarps]);
  LADDER_SHARED(ChannelRange, ranges, [kMaxStages]);
  LADDER_DYN_SMEM(smem);
  unsigned char* const input = smem + Ring::kBytes;  // [position][channel] T
  auto* const sums = reinterpret_cast<float*>(input + plan.input_bytes);
  const int worker = static_cast<int>(threadIdx.x) - 32;  // negative in the warp that waits
  const int warp = worker >= 0 ? worker / 32 : kNoKBlock;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto* const weights = static_cast<const T*>(t.weights);
  ptx::GridBarrier barrier(counter);

  for (int i = static_cast<int>(threadIdx.x); i < network.count; i += kThreads) {
    ranges[i] = channel_range_of(network, i, (plan.full >> i & 1) != 0);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    prefetch_weights(weights, ranges, 0, plan.l2_prefetch_end[0]);
    prefetch_floats(t.vectors, network.vectors);
  }

  ptx::grid_dependency_wait();
  const Pass<T> pass{network, t, buffers, p.n, *t.step};
  if (threadIdx.x == 0) {
    prefetch_floats(t.film_table + pass.step * std::int64_t{network.film_row}, network.film_row);
    prefetch_floats(t.film, p.n * network.film_row);
  }
  Ring ring(weights, ranges, network.count, p.n, smem, warp);
#pragma unroll 1
  for (int stage_idx = 0; stage_idx < network.count; ++stage_idx) {
    const Stage& stage = network.stages[stage_idx];
    const bool is_last = stage_idx == network.count - 1;
    const int k_blocks = k_blocks_of(stage);
    const int pitch = conv1d::x_pitch(k_blocks);
#pragma unroll 1
    for (int sample = 0; sample < p.n; ++sample) {
      // Make the input. Data that does not depend on the previous stage is loaded before the wait.
      T* const rows = reinterpret_cast<T*>(input);
      const int row_elements = pitch / static_cast<int>(sizeof(T));
      load_skip_channels<kWorkers>(pass, plan.work_split[stage_idx].runs, stage_idx, sample, worker, rows, row_elements,
                                   k_blocks * conv1d::kStepChannels);
      const auto wait = [&] {
        if (sample == 0) barrier.wait();
      };
      const WorkSplit& work_split = plan.work_split[max(stage_idx - 1, 0)];
      if (stage_idx > 0 && work_split.quads && work_split.holds(kSmallThreadPositions)) {
        normalize_previous_stage<kWarps, kQuad, kSmallThreadPositions>(pass, work_split, stage_idx, sample, worker,
                                                                       rows, row_elements, warp_sums, wait);
      } else if (stage_idx > 0 && work_split.quads) {
        normalize_previous_stage<kWarps, kQuad, kMaxThreadPositions>(pass, work_split, stage_idx, sample, worker, rows,
                                                                     row_elements, warp_sums, wait);
      } else if (stage_idx > 0) {
        normalize_previous_stage<kWarps, 1, kMaxThreadPositions>(pass, work_split, stage_idx, sample, worker, rows,
                                                                 row_elements, warp_sums, wait);
      }
      __syncthreads();

      if (threadIdx.x == 0 && sample == 0 && !is_last) {
        prefetch_weights(weights, ranges, plan.l2_prefetch_end[stage_idx], plan.l2_prefetch_end[stage_idx + 1]);
      }
      const ChannelRange range = ranges[stage_idx];
      const int sets = range.taps + (range.residual_weights != kNone ? 1 : 0);
#pragma unroll 1
      for (int first = range.begin; first < range.end; first += kColumns) {
        const int channels = min(range.end - first, kColumns);
        const PartialSumsLayout layout(stage, sets, channels);

        // Multiply 16 positions with 8 channels of each tap. Positions past the last load the last row; their products
        // are not used.
#pragma unroll 1
        for (int position = 0; position < stage.l && warp < k_blocks; position += kRows) {
          const int row_lo = position + lane / 4;
          const bool two_halves = stage.l - position > kRows / 2;
          const unsigned char* const x = input + lane % 4 * kRunBytes;
          const unsigned char* const x_row_lo = x + min(row_lo, stage.l - 1) * pitch;
          const unsigned char* const x_row_hi = x + min(row_lo + kRows / 2, stage.l - 1) * pitch;
          float acc[kSets][4] = {};
#pragma unroll 1
          for (int k_block = warp; k_block < k_blocks; k_block += kWarps) {
            const auto x0 = *reinterpret_cast<const uint4*>(x_row_lo + k_block * conv1d::kStepRowBytes);
            uint4 x1 = {};
            if (two_halves) x1 = *reinterpret_cast<const uint4*>(x_row_hi + k_block * conv1d::kStepRowBytes);
            uint4 w[kSets];
            ring.take(w);
#pragma unroll
            for (int set = 0; set < kSets; ++set) conv1d::multiply_step<T>(acc[set], x0, x1, w[set]);
          }
          float* smem_sums = sums + warp * layout.of_warp + layout.offset_of(0, row_lo) + lane % 4 * 2;
          const bool has_row_lo = row_lo < stage.l && lane % 4 * 2 < channels;
          const bool has_row_hi = row_lo + kRows / 2 < stage.l && lane % 4 * 2 < channels;
#pragma unroll
          for (int set = 0; set < kSets; ++set) {
            if (set >= sets) break;
            if (has_row_lo) *reinterpret_cast<float2*>(smem_sums) = {acc[set][0], acc[set][1]};
            if (has_row_hi) {
              *reinterpret_cast<float2*>(smem_sums + layout.offset_of(0, kRows / 2)) = {acc[set][2], acc[set][3]};
            }
            smem_sums += layout.offset_of(1, 0);
          }
        }
        __syncthreads();

        // Add all warps' products for an output, each tap's at the position that it multiplies; then those of the
        // residual convolution.
        const conv1d::Problem conv = stage.convolution(1);
        const int outputs = stage.out_l() << layout.column_bits;
        const int all_outputs = outputs + (sets > stage.taps ? stage.l << layout.column_bits : 0);
        const int direction = stage.transposed ? -1 : 1;  // of positions, from term to term
        const int step = layout.offset_of(stage.transposed ? 2 : 1, direction);
#pragma unroll 1
        for (int i = worker / kOutputLanes; worker >= 0 && i - lane / kOutputLanes < all_outputs;
             i += kWorkers / kOutputLanes) {
          const int part = lane % kOutputLanes;
          const bool is_residual = i >= outputs;
          const int o = (is_residual ? i - outputs : i) >> layout.column_bits;
          const int column = i & (layout.columns - 1);
          const int terms = part >= k_blocks || i >= all_outputs || column >= channels ? 0
                            : is_residual                                              ? 1
                                                                                       : conv.terms();
          const auto length = static_cast<unsigned>(stage.l);
          const int position = is_residual ? o : conv.from(o, 0);
          const float* const from = sums + part * layout.of_warp + column +
                                    layout.offset_of(is_residual ? stage.taps : conv.tap(o, 0), position);
          float sum = 0;
#pragma unroll
          for (int j = 0; j < kSets; ++j) {
            const int term_position = position + j * direction;
            if (j < terms && static_cast<unsigned>(term_position) < length) sum += from[j * step];
          }
#pragma unroll
          for (int distance = kOutputLanes / 2; distance > 0; distance /= 2) {
            sum += __shfl_xor_sync(~0u, sum, distance);
          }
          if (part > 0 || i >= all_outputs || column >= channels) continue;
          const int offset = o * stage.k + first + column;
          if (is_residual) {
            *pass.of(buffers.residual, stage_idx + 1, sample, offset) = sum;
          } else if (!is_last) {
            *pass.of(buffers.h, stage_idx, sample, offset) = sum;
          } else {
            const int j = sample * stage.out_l() * stage.k + offset;
            t.x[j] = next_x(t.table[pass.step], t.x[j], sum + t.vectors[stage.bias + first + column], t.noise[j]);
          }
        }
        if (first + kColumns < range.end) __syncthreads();
      }
    }
    if (!is_last) barrier.arrive();
    ring.refill();
  }
  ptx::grid_dependency_launch();
  ptx::cp_async_wait<0>();
}

// Returns true if entries of kFewSets sets, which take less shared memory, suffice for the network's longest
// convolution.
bool has_few_sets(const Problem& p) { return p.taps < kFewSets; }

RingPlan plan_of(const Problem& p, const Network& network, std::size_t prefetch_bytes) {
  RingPlan plan;
  const auto elements = [&](int stage_idx) {
    return static_cast<std::size_t>(network.stages[stage_idx].k) * network.stages[stage_idx].c *
           sets_of(network, stage_idx);
  };
  std::size_t ahead = 0;
  for (int i = 0, l2_prefetch_end = 0; i < network.count; ++i) {
    for (; l2_prefetch_end < network.count && ahead < prefetch_bytes; ++l2_prefetch_end)
      ahead += elements(l2_prefetch_end) * size_of(p.dtype);
    plan.l2_prefetch_end[i] = static_cast<std::uint8_t>(l2_prefetch_end);
    if (l2_prefetch_end > i) ahead -= elements(i) * size_of(p.dtype);

    const Stage& stage = network.stages[i];
    const int channels = std::min(ceil_div(stage.k, backend::device().num_sms), kColumns);
    const PartialSumsLayout layout(stage, sets_of(network, i), channels);
    plan.input_bytes = std::max(plan.input_bytes, stage.l * conv1d::x_pitch(k_blocks_of(stage)));
    const int warps = std::min(k_blocks_of(stage), kWarps);
    plan.sums_bytes = std::max(plan.sums_bytes, warps * layout.of_warp * static_cast<int>(sizeof(float)));
  }

  // Find the loads and stores that are whole vectors.
  const auto divides = [](int of, std::int64_t a, std::int64_t b) { return a % of == 0 && b % of == 0; };
  const auto values_of = [&](int stage_idx) { return std::int64_t{p.n} * network.stages[stage_idx].value; };
  const auto keep = [&](int stage_idx) {
    if (stage_idx >= 0) plan.work_split[stage_idx].kept = true;
    return stage_idx < 0 || values_of(stage_idx) % kQuad == 0;
  };
  for (int i = 0; i < network.count; ++i) {
    const Stage& stage = network.stages[i];
    constexpr int kRun = kVector<__half>;
    const int residual_weights = widens(network, i) ? network.stages[i + 1].residual_weights : 0;
    if (stage.c % conv1d::kStepChannels == 0 && divides(kRun, stage.weights, residual_weights))
      plan.full |= std::uint64_t{1} << i;

    bool quads = divides(kQuad, stage.k / std::max(stage.groups, 1), values_of(i)) && stage.bias % kQuad == 0;
    if (stage.film != kNone) quads &= divides(kQuad, stage.film, network.film_row);
    if (stage.residual == Residual::convolution) quads &= stage.residual_bias % kQuad == 0;
    if (stage.residual == Residual::identity) {
      const Stage& from = network.stages[i - 1];
      quads &= divides(kQuad, from.c, from.joined);
      quads &= keep(from.source);
      if (from.joined > 0) quads &= keep(from.joined_stage);
    }
    plan.work_split[i] = WorkSplit::of(stage, kWarps, quads);
    if (stage.joined > 0) {
      keep(stage.joined_stage);
      plan.work_split[i].runs = divides(kRun, stage.c, stage.joined) && values_of(stage.joined_stage) % kRun == 0;
    }
  }
  return plan;
}

std::size_t smem_bytes(const Problem& p, const RingPlan& plan) {
  const int ring =
      has_few_sets(p) ? WeightRing<__half, kWarps, kFewSets>::kBytes : WeightRing<__half, kWarps, kMoreSets>::kBytes;
  return static_cast<std::size_t>(ring) + plan.input_bytes + plan.sums_bytes;
}

KernelPlan<Step> plan_named(const char* name, const Problem& p, std::size_t prefetch_bytes) {
  const Network network = network_of(p);
  const RingPlan plan = plan_of(p, network, prefetch_bytes);
  const std::size_t values = static_cast<std::size_t>(p.n) * ceil_div(network.values, 64) * 64;
  const auto bind = [=](const Step::Tensors& t, void* workspace) {
    auto* const counter = static_cast<unsigned*>(workspace);
    auto* const h = reinterpret_cast<float*>(static_cast<char*>(workspace) + kCounterBytes);
    const auto bind_type = [&]<class T>(T) {
      const Buffers<T> buffers{.h = h, .residual = h + values, .values = reinterpret_cast<T*>(h + 2 * values)};
      return bind_launch(has_few_sets(p) ? policy_step_v03_kernel<T, kFewSets> : policy_step_v03_kernel<T, kMoreSets>,
                         {.grid = static_cast<unsigned>(backend::device().num_sms),
                          .block = kThreads,
                          .dynamic_smem = smem_bytes(p, plan),
                          .overlaps_previous = true,
                          .cooperative = true},
                         p, network, t, plan, counter, buffers);
    };
    const BoundLaunch kernel = p.dtype == Dtype::bf16 ? bind_type(__nv_bfloat16{}) : bind_type(__half{});
    return in_order({[=](Stream stream) { set_bytes_async(counter, 0, sizeof(unsigned), stream); }, kernel});
  };
  return {
      .name = name, .workspace_bytes = kCounterBytes + values * (2 * sizeof(float) + size_of(p.dtype)), .bind = bind};
}

std::vector<KernelPlan<Step>> plans(const Problem& p) {
  return {plan_named("prefetch", p, backend::device().l2_bytes / 2), plan_named("ring alone", p, 0)};
}

const char* supports(const Problem& p) {
  constexpr std::size_t kStatic = 2048;
  const Network network = network_of(p);
  const RingPlan plan = plan_of(p, network, 0);
  for (int i = 0; i + 1 < network.count; ++i) {
    if (!plan.work_split[i].holds(kMaxThreadPositions))
      return "a thread's part of a stage's values must fit its registers";
  }
  return smem_bytes(p, plan) + kStatic <= static_cast<std::size_t>(most_smem_bytes())
             ? nullptr
             : "the ring, a stage's input and its sums must fit an SM's shared memory";
}

}  // namespace
}  // namespace ladder::policy

LADDER_VERSION(ladder::policy::Step, {.plans = ladder::policy::plans,
                                      .plan_names = {"prefetch", "ring alone"},
                                      .dtypes = {ladder::Dtype::bf16, ladder::Dtype::f16},
                                      .supports = ladder::policy::supports,
                                      .min_arch = 90})
