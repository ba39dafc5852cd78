// Idea:   many blocks an image: each sums a part of its pixels over vectors of channels; a second kernel adds the parts in
//         order.
// Parent: v01.
// Why:    whole lines, four loads of a thread in flight and enough blocks for every SM. Limiter: memory, and where images
//         are small the second kernel, a launch for next to no work.
// Needs:  nothing; single elements where a pixel is no multiple of sixteen bytes; a workspace of an fp32 a channel, image
//         and part.

#include "dev/add/columns.h"

namespace ladder::add {
namespace {

constexpr int kMinPixels = 4;  // of a thread
constexpr int kMaxParts = 16;

template <class T, int kWidth>
__global__ void __launch_bounds__(kColumnThreads)
    add_embedding_backward_v02_parts_kernel(Problem p, ColumnSplit split, const T* dy, float* parts, unsigned row) {
  const auto part = static_cast<int>(blockIdx.x) % split.parts;
  const auto chunk = static_cast<int>(blockIdx.x) / split.parts;
  const auto n = static_cast<int>(blockIdx.y);
  float sums[kWidth];
  if (!sum_part<T, kWidth>(p, split, dy, n, part, chunk, sums)) return;
  const unsigned column = chunk * split.columns + threadIdx.x;
#pragma unroll
  for (int v = 0; v < kWidth; ++v) parts[(part * p.n + n) * row + column * kWidth + v] = sums[v];
}

__global__ void __launch_bounds__(kColumnThreads)
    add_embedding_backward_v02_sum_kernel(Problem p, int num_parts, const float* parts, float* de, unsigned row) {
  const unsigned index = blockIdx.x * kColumnThreads + threadIdx.x;
  const unsigned count = p.n * p.c;
  if (index >= count) return;
  float sum = 0;
  for (int part = 0; part < num_parts; ++part) sum += parts[part * count + index];
  de[index / p.c * row + index % p.c] = sum;
}

std::size_t workspace_bytes(const Problem& p) { return sizeof(float) * p.n * p.c * kMaxParts; }

void launch(const Problem& p, const EmbeddingBackward::Tensors& t, void* workspace, Stream stream) {
  dispatch_width(p.dtype, whole_vectors(p.c, p.dtype), [&](auto element, auto width) {
    using T = decltype(element);
    const ColumnSplit split = column_split<T, width>(p, kMinPixels, kMaxParts);
    const bool alone = split.parts == 1;
    float* const de = t.de + p.first;
    auto* const parts = alone ? de : static_cast<float*>(workspace);
    const dim3 grid(static_cast<unsigned>(split.parts * split.chunks), static_cast<unsigned>(p.n));
    ladder::launch(add_embedding_backward_v02_parts_kernel<T, width>, {.grid = grid, .block = kColumnThreads}, stream,
                   p, split, static_cast<const T*>(t.dy), parts, alone ? p.row() : p.c);
    if (alone) return;
    const int count = p.n * p.c;
    ladder::launch(add_embedding_backward_v02_sum_kernel,
                   {.grid = stream_blocks(count, kColumnThreads, 1), .block = kColumnThreads}, stream, p, split.parts,
                   parts, de, p.row());
  });
}

}  // namespace
}  // namespace ladder::add

LADDER_VERSION(ladder::add::EmbeddingBackward, {.launch = ladder::add::launch,
                                                .dtypes = {ladder::Dtype::f32, ladder::Dtype::bf16, ladder::Dtype::f16},
                                                .workspace_bytes = ladder::add::workspace_bytes})
