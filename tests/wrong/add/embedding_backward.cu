#include "dev/add/add.h"
#include "tests/wrong/wrong.h"

namespace ladder::add {
namespace {

constexpr int embeddings(const Problem& p) { return p.n * p.c; }

__device__ long long row(const Problem& p) { return p.pitch == 0 ? p.c : p.pitch; }

// Element of de for embedding i (image i / c, channel i % c).
__device__ float& at(const auto& v, long long i) { return v.t.de[i / v.p.c * row(v.p) + v.p.first + i % v.p.c]; }

enum class Fault {
  none,
  last_pixel,               // sums all pixels but the last
  whole_vectors_of_pixels,  // sums whole groups of four pixels and drops the rest
  next_image,               // sums the neighbouring image
  bf16_sums,                // rounds to bf16 after every addition
  all_images,               // one sum over the batch, like a bias gradient
};

template <Fault kFault>
struct Sum {
  __device__ void operator()(const auto& v, long long i) const {
    const long long image = kFault == Fault::next_image ? (i / v.p.c + 1) % v.p.n : i / v.p.c;
    long long pixels = v.p.h * v.p.w;
    long long first = kFault == Fault::all_images ? 0 : image * pixels;
    if (kFault == Fault::last_pixel) --pixels;
    if (kFault == Fault::whole_vectors_of_pixels) pixels = (pixels - 1) / 4 * 4;
    if (kFault == Fault::all_images) pixels *= v.p.n;
    float sum = 0;
    for (const long long end = first + pixels; first < end; ++first) {
      sum += v.load(v.t.dy, first * v.p.c + i % v.p.c);
      if (kFault == Fault::bf16_sums) sum = to_float(from_float<__nv_bfloat16>(sum));
    }
    at(v, i) = sum;
  }
};

template <class Cheat>
constexpr auto on_output = wrong::spoiled_output<EmbeddingBackward, embeddings, Cheat>;

// Divide the sum by the number of pixels.
struct Mean {
  __device__ void operator()(const auto& v, long long i) const { at(v, i) /= static_cast<float>(v.p.h * v.p.w); }
};

// Round the sum to bf16, like a gradient in dy's type.
struct Bf16Result {
  __device__ void operator()(const auto& v, long long i) const {
    at(v, i) = to_float(from_float<__nv_bfloat16>(at(v, i)));
  }
};

// Zero the columns after those of the output.
struct ClearsNeighbours {
  __device__ void operator()(const auto& v, long long i) const {
    if (i % v.p.c != 0) return;
    for (long long j = v.p.c; v.p.first + j < row(v.p); ++j) (&at(v, i))[j] = 0;
  }
};

}  // namespace

LADDER_CHEATS(EmbeddingBackward, (std::vector<std::string>{"n3 h4 w4 c8", "n2 h3 w5 c7", "n2 h3 w5 c7 pitch12 first3"}),
              {
                  on_output<Sum<Fault::none>>("honest"),
                  on_output<Mean>("mean"),
                  on_output<Sum<Fault::last_pixel>>("last_pixel"),
                  on_output<Sum<Fault::whole_vectors_of_pixels>>("whole_vectors_of_pixels"),
                  on_output<Sum<Fault::next_image>>("next_image"),
                  on_output<Sum<Fault::bf16_sums>>("bf16_sums"),
                  on_output<Bf16Result>("bf16_result"),
                  on_output<Sum<Fault::all_images>>("all_images"),
                  on_output<ClearsNeighbours>("clears_neighbours"),
              })

}  // namespace ladder::add
