#include "dev/add/add.h"
#include "tests/wrong/wrong.h"

namespace ladder::add {
namespace {

constexpr int embeddings(const Problem& p) { return p.n * p.c; }

__device__ long long row(const Problem& p) { return p.pitch == 0 ? p.c : p.pitch; }

// Where the sum of image and channel i belongs in de.
__device__ float& at(const auto& v, long long i) { return v.t.de[i / v.p.c * row(v.p) + v.p.first + i % v.p.c]; }

// The sum, with each step open to a spoiled one.
struct Honest {
  __device__ long long image(const Problem&, long long n) const { return n; }
  __device__ int pixels(const Problem& p) const { return p.h * p.w; }
  __device__ float add(float sum, float term) const { return sum + term; }
};

template <class Steps>
struct Sum {
  __device__ void operator()(const auto& v, long long i) const {
    const Steps steps{};
    const long long first = steps.image(v.p, i / v.p.c) * v.p.h * v.p.w;
    float sum = 0;
    for (int pixel = 0; pixel < steps.pixels(v.p); ++pixel) {
      sum = steps.add(sum, v.load(v.t.dy, (first + pixel) * v.p.c + i % v.p.c));
    }
    at(v, i) = sum;
  }
};

template <class Cheat>
constexpr auto on_output = wrong::spoiled_output<EmbeddingBackward, embeddings, Cheat>;

// The mean over pixels.
struct Mean {
  __device__ void operator()(const auto& v, long long i) const { at(v, i) /= static_cast<float>(v.p.h * v.p.w); }
};

// All but the last one.
struct LastPixel : Honest {
  __device__ int pixels(const Problem& p) const { return p.h * p.w - 1; }
};

// Whole groups of four pixels, and drops the rest.
struct WholeVectorsOfPixels : Honest {
  __device__ int pixels(const Problem& p) const { return (p.h * p.w - 1) / 4 * 4; }
};

// The neighbour's.
struct NextImage : Honest {
  __device__ long long image(const Problem& p, long long n) const { return (n + 1) % p.n; }
};

// Rounds after every addition.
struct Bf16Sums : Honest {
  __device__ float add(float sum, float term) const { return to_float(from_float<__nv_bfloat16>(sum + term)); }
};

// Rounds the sum, as a gradient in the type of dy would be.
struct Bf16Result {
  __device__ void operator()(const auto& v, long long i) const {
    at(v, i) = to_float(from_float<__nv_bfloat16>(at(v, i)));
  }
};

// One sum for the batch, as of a bias.
struct AllImages : Honest {
  __device__ long long image(const Problem&, long long) const { return 0; }
  __device__ int pixels(const Problem& p) const { return p.h * p.w * p.n; }
};

// Zeroes the columns next to those it has to write.
struct ClearsNeighbours {
  __device__ void operator()(const auto& v, long long i) const {
    if (i % v.p.c != 0) return;
    for (long long j = v.p.c; v.p.first + j < row(v.p); ++j) (&at(v, i))[j] = 0;
  }
};

}  // namespace

LADDER_CHEATS(EmbeddingBackward, (std::vector<std::string>{"n3 h4 w4 c8", "n2 h3 w5 c7", "n2 h3 w5 c7 pitch12 first3"}),
              {
                  wrong::honest<EmbeddingBackward>(),
                  on_output<Mean>("mean"),
                  on_output<Sum<LastPixel>>("last_pixel"),
                  on_output<Sum<WholeVectorsOfPixels>>("whole_vectors_of_pixels"),
                  on_output<Sum<NextImage>>("next_image"),
                  on_output<Sum<Bf16Sums>>("bf16_sums"),
                  on_output<Bf16Result>("bf16_result"),
                  on_output<Sum<AllImages>>("all_images"),
                  on_output<ClearsNeighbours>("clears_neighbours"),
              })

}  // namespace ladder::add
