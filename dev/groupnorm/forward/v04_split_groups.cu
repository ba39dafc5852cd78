// Idea:   an image's pixels are split over blocks, each of which leaves the moments of its part; the blocks that write the
//         output merge the parts of their groups themselves.
// Parent: v03.
// Why:    v03 has 32 blocks for 64 channels and 32 images; here four blocks an SM have work in both passes, whatever the
//         number of images, and there are two kernels instead of three. Limiter: x is read twice, the second time from L2
//         where it fits there.
// Needs:  nothing; single elements where c is no multiple of a vector; a workspace of two floats a channel of every part.

#include <algorithm>

#include "core/backend.h"
#include "dev/groupnorm/columns/normalise_columns.h"

namespace ladder::groupnorm {
namespace {

template <class T, int kWidth>
__global__ void __launch_bounds__(kColumnThreads, 3)
    groupnorm_forward_v04_moments_kernel(Problem p, const void* x, PixelSplit split, float2* rows) {
  const TileOffset<T, kWidth> tile(p, split);
  float pivots[kWidth] = {};
  load_pivots<T>(p, tile, x, pivots);

  float2 sums[kWidth] = {};
  for_each_pixel(p, split, tile, x, [&](const float(&values)[kWidth]) { add_pixel(values, pivots, sums); });
  store_moments<T>(p, split, tile, sum_rows<T>(sums), rows);
}

template <class T, int kWidth, class Act>
__global__ void __launch_bounds__(kColumnThreads, 3)
    groupnorm_forward_v04_output_kernel(Problem p, Forward::Tensors t, PixelSplit split, const float2* rows) {
  using Extent = ChannelTile<T, kWidth>;
  LADDER_SHARED(Normaliser, normalisers, [Extent::kChannels]);  // of the tile's groups, at most one a channel
  const TileOffset<T, kWidth> tile(p, split);
  const int channels_per_group = p.c / p.g;

  // Merge a group per warp. A group that lies in two tiles is merged by the blocks of both; the first tile's block of
  // part 0 writes its mean and rstd.
  const int first_group = tile.first_channel / channels_per_group;
  const int last_group = (min(tile.first_channel + Extent::kChannels, p.c) - 1) / channels_per_group;
  for (int group = first_group + static_cast<int>(threadIdx.x) / 32; group <= last_group;
       group += kColumnThreads / 32) {
    const Normaliser merged = merge_group<T>(p, t.x, split, rows, tile.image, group);
    if (threadIdx.x % 32 > 0) continue;
    normalisers[group - first_group] = merged;
    if (tile.part > 0 || group * channels_per_group < tile.first_channel) continue;
    t.mean[tile.image * p.g + group] = merged.pivot + merged.delta;
    t.rstd[tile.image * p.g + group] = merged.rstd;
  }
  __syncthreads();
  write_columns<T, kWidth, Act>(p, t, split, [&](int group) { return normalisers[group - first_group]; });
}

// Returns a split with as many parts as give an SM four blocks, as long as a thread keeps two pixels.
PixelSplit split_of(const Problem& p) {
  constexpr int kBlocksPerSm = 4;
  const bool vectors = whole_vectors(p);
  const int rows = vectors ? ChannelTile<float, 4>::kRows : ChannelTile<float, 1>::kRows;
  const int channels =
      vectors ? ChannelTile<float, 4>::kColumns * 16 / size_of(p.dtype) : ChannelTile<float, 1>::kChannels;
  const int full_images = p.n * ceil_div(p.c, channels);
  const int parts =
      std::clamp(kBlocksPerSm * backend::device().num_sms / full_images, 1, ceil_div(p.pixels(), 2 * rows));
  const int pixels_per_part = ceil_div(p.pixels(), parts);
  return {.parts = ceil_div(p.pixels(), pixels_per_part), .pixels_per_part = pixels_per_part};
}

std::size_t workspace_bytes(const Problem& p) { return sizeof(float2) * p.n * split_of(p).parts * p.c; }

void launch(const Problem& p, const Forward::Tensors& t, void* workspace, Stream stream) {
  auto* const rows = static_cast<float2*>(workspace);
  const PixelSplit split = split_of(p);
  dispatch_columns(p, [&](auto element, auto width, auto act) {
    using T = decltype(element);
    constexpr int kWidth = decltype(width)::value;
    const LaunchConfig config{.grid = column_blocks<T, kWidth>(p, split), .block = kColumnThreads};
    ladder::launch(groupnorm_forward_v04_moments_kernel<T, kWidth>, config, stream, p, t.x, split, rows);
    ladder::launch(groupnorm_forward_v04_output_kernel<T, kWidth, decltype(act)>, config, stream, p, t, split, rows);
  });
}

}  // namespace
}  // namespace ladder::groupnorm

LADDER_VERSION(ladder::groupnorm::Forward, {.launch = ladder::groupnorm::launch,
                                            .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                            .supports = ladder::groupnorm::plain_inputs_only,
                                            .workspace_bytes = ladder::groupnorm::workspace_bytes,
                                            .error_growth = 2})  // where a channel begins far from its mean
