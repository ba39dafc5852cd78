#include "tests/wrong/chunks.h"
#include "tests/wrong/conv3x3/problems.h"

namespace ladder::conv3x3 {
namespace {

using Tensors = Wgrad::Tensors;
using Dw = wrong::Output<&Tensors::dw, size_w>;
using Dbias = wrong::Output<&Tensors::dbias, &Problem::k>;

struct Terms {
  static constexpr auto kInput = &Tensors::dy;
  static long long elements(const Problem& p) { return size_y(p); }
  __device__ static int count(const Problem& p) { return p.n * p.h * p.w; }
  __device__ static int of(const Problem& p, long long i) { return static_cast<int>(i / p.k); }
};

// Rounds the chunks of pixels down: the last few pixels belong to none.
struct TailOfPixels {
  __device__ float operator()(const auto& v, long long i) const {
    const int covered = Terms::count(v.p) / wrong::kChunks * wrong::kChunks;
    return Terms::of(v.p, i) < covered ? v.load(v.t.dy, i) : 0.0f;
  }
};

// The mean over the batch instead of the sum, which a batch of one hides.
struct MeanOfBatch {
  __device__ float operator()(const auto& v, long long i) const {
    return v.load(v.t.dy, i) / static_cast<float>(v.p.n);
  }
};

// Adds up dbias in its own 16 bits.
struct NarrowDbias {
  __device__ void operator()(const auto& v, long long k) const {
    if (!v.t.dbias || !v.p.params16) return;
    void* const dbias = v.t.dbias;
    v.store(dbias, k, 0.0f);
    for (int i = 0; i < Terms::count(v.p); ++i) v.store(dbias, k, v.load(dbias, k) + v.load(v.t.dy, i * v.p.k + k));
  }
};

struct Rotated {
  int first;

  __device__ float operator()(const float* of) const {
    float sum = 0;
    for (int i = 0; i < wrong::kChunks; ++i) sum += of[(first + i) % wrong::kChunks];
    return sum;
  }
};

// Begins with another partial sum at every call, so that rounding makes of equal inputs outputs that are not.
void order_of_the_day(const Problem& p, const Tensors& t, void* workspace, Stream stream) {
  static bool turned = false;
  wrong::launch_totals<Wgrad, Terms, Dw, Dbias>(p, t, workspace, stream, Rotated{turned ? wrong::kChunks / 2 : 0});
  turned = !turned;
}

}  // namespace

// partial_twice is a loop with `<=`, and an index that is held within its range.
LADDER_CHEATS(Wgrad, wrong_problems(),
              {
                  wrong::honest<Wgrad>(),
                  wrong::spoiled_input<Wgrad, &Tensors::dy, size_y, TailOfPixels>("tail_of_pixels"),
                  wrong::last_chunk<Wgrad, Terms, 0>("partial_missing"),
                  wrong::last_chunk<Wgrad, Terms, 2>("partial_twice"),
                  wrong::moved_output<Wgrad, &Tensors::dw, size_w, Transposed>("transposed_dw"),
                  wrong::moved_output<Wgrad, &Tensors::dw, size_w, FlippedTaps>("flipped_taps"),
                  wrong::spoiled_input<Wgrad, &Tensors::dy, size_y, MeanOfBatch>("mean_of_batch"),
                  wrong::only({Dtype::bf16, Dtype::f16},
                              wrong::spoiled_output<Wgrad, &Problem::k, NarrowDbias>("narrow_dbias")),
                  wrong::bf16_partials<Wgrad, Terms, Dw, Dbias>(),
                  wrong::float_atomics<Wgrad, Terms, Dw, Dbias>(),
                  {.name = "order_of_the_day", .launch = order_of_the_day, .dtypes = {Dtype::f32}},
              })

}  // namespace ladder::conv3x3
