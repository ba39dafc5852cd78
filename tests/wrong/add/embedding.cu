#include "dev/add/add.h"
#include "tests/wrong/wrong.h"

namespace ladder::add {
namespace {

// Another element of e in y: that at Index{}(problem, element, its image, its channel).
template <class Index>
struct Each {
  __device__ void operator()(const auto& v, long long i) const {
    const auto image = static_cast<int>(i / v.p.c / (v.p.h * v.p.w));
    v.store(v.t.y, i, v.load(v.t.x, i) + v.t.e[Index{}(v.p, i, image, static_cast<int>(i % v.p.c))]);
  }
};

template <class Index>
constexpr auto on_output = wrong::spoiled_output<Embedding, &Problem::elements, Each<Index>>;

// One embedding for the whole batch.
struct FirstImage {
  __device__ long long operator()(const Problem&, long long, int, int c) const { return c; }
};

// The neighbour's.
struct NextImage {
  __device__ long long operator()(const Problem& p, long long, int n, int c) const { return (n + 1) % p.n * p.c + c; }
};

// As if it went with the pixels: right where the image has one.
struct ByPixel {
  __device__ long long operator()(const Problem& p, long long i, int, int) const { return i % (p.n * p.c); }
};

// Shifted by a channel.
struct NextChannel {
  __device__ long long operator()(const Problem& p, long long, int n, int c) const { return n * p.c + (c + 1) % p.c; }
};

// A factor, as of models that scale and shift.
struct Scales {
  __device__ void operator()(const auto& v, long long i) const {
    const long long image = i / v.p.c / (v.p.h * v.p.w);
    v.store(v.t.y, i, v.load(v.t.x, i) * (1.0f + v.t.e[image * v.p.c + i % v.p.c]));
  }
};

// The first columns of the matrix, whichever are asked for.
void first_columns(Problem& p) { p.first = 0; }

}  // namespace

LADDER_CHEATS(Embedding, (std::vector<std::string>{"n3 h4 w4 c8", "n2 h3 w5 c7", "n2 h3 w5 c7 pitch12 first3"}),
              {
                  wrong::honest<Embedding>(),
                  on_output<FirstImage>("first_image"),
                  on_output<NextImage>("next_image"),
                  on_output<ByPixel>("by_pixel"),
                  on_output<NextChannel>("next_channel"),
                  wrong::spoiled_output<Embedding, &Problem::elements, Scales>("scales"),
                  wrong::spoiled_problem<Embedding, first_columns>("first_columns"),
              })

}  // namespace ladder::add
