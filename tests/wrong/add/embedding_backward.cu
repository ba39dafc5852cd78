#include "dev/add/add.h"
#include "tests/wrong/wrong.h"

namespace ladder::add {
namespace {

template <class T>
struct View {
  Problem p;
  const T* dy;
  float* de;

  View(const Problem& problem, const EmbeddingBackward::Tensors& t, void*)
      : p(problem), dy(static_cast<const T*>(t.dy)), de(t.de) {}

  __host__ __device__ long long count() const { return static_cast<long long>(p.n) * p.c; }

  __device__ int row() const { return p.pitch == 0 ? p.c : p.pitch; }
  __device__ int pixels() const { return p.h * p.w; }
  __device__ float dy_at(long long image, int pixel, int c) const {
    return to_float(dy[(image * pixels() + pixel) * p.c + c]);
  }
};

struct Honest {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const long long n = i / v.p.c;
    const int c = static_cast<int>(i % v.p.c);
    float sum = 0;
    for (int pixel = 0; pixel < v.pixels(); ++pixel) sum += v.dy_at(n, pixel, c);
    v.de[n * v.row() + v.p.first + c] = sum;
  }
};

template <class Cheat>
void launch_cheat(const Problem& p, const EmbeddingBackward::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_cheat<EmbeddingBackward, View, Cheat>(p, t, workspace, stream);
}

// What can be wrong with it.

// The mean over pixels.
struct Mean {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const long long n = i / v.p.c;
    const int c = static_cast<int>(i % v.p.c);
    float sum = 0;
    for (int pixel = 0; pixel < v.pixels(); ++pixel) sum += v.dy_at(n, pixel, c);
    v.de[i] = sum / static_cast<float>(v.pixels());
  }
};

// All but the last one.
struct LastPixel {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const long long n = i / v.p.c;
    const int c = static_cast<int>(i % v.p.c);
    float sum = 0;
    for (int pixel = 0; pixel < v.pixels() - 1; ++pixel) sum += v.dy_at(n, pixel, c);
    v.de[i] = sum;
  }
};

// Whole groups of four pixels, and drops the rest.
struct WholeVectorsOfPixels {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const long long n = i / v.p.c;
    const int c = static_cast<int>(i % v.p.c);
    float sum = 0;
    for (int pixel = 0; pixel < v.pixels() / 4 * 4 - (v.pixels() % 4 == 0 ? 4 : 0); ++pixel)
      sum += v.dy_at(n, pixel, c);
    v.de[i] = sum;
  }
};

// The neighbour's.
struct NextImage {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const long long n = (i / v.p.c + 1) % v.p.n;
    const int c = static_cast<int>(i % v.p.c);
    float sum = 0;
    for (int pixel = 0; pixel < v.pixels(); ++pixel) sum += v.dy_at(n, pixel, c);
    v.de[i] = sum;
  }
};

// Rounds behind every addition.
struct Bf16Sums {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const long long n = i / v.p.c;
    const int c = static_cast<int>(i % v.p.c);
    float sum = 0;
    for (int pixel = 0; pixel < v.pixels(); ++pixel)
      sum = to_float(from_float<__nv_bfloat16>(sum + v.dy_at(n, pixel, c)));
    v.de[i] = sum;
  }
};

// Rounds the sum, as a gradient in the type of dy would be.
struct Bf16Result {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const long long n = i / v.p.c;
    const int c = static_cast<int>(i % v.p.c);
    float sum = 0;
    for (int pixel = 0; pixel < v.pixels(); ++pixel) sum += v.dy_at(n, pixel, c);
    v.de[i] = to_float(from_float<__nv_bfloat16>(sum));
  }
};

// One sum for the batch, as of a bias.
struct AllImages {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const int c = static_cast<int>(i % v.p.c);
    float sum = 0;
    for (int pixel = 0; pixel < v.pixels() * v.p.n; ++pixel) sum += v.dy_at(0, pixel, c);
    v.de[i] = sum;
  }
};

// Zeroes the columns next to those it has to write.
struct ClearsNeighbours {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    Honest{}(v, i);
    const long long n = i / v.p.c;
    for (int column = v.p.first + v.p.c; column < v.row(); ++column) v.de[n * v.row() + column] = 0;
  }
};

}  // namespace

LADDER_CHEATS(EmbeddingBackward, (std::vector<std::string>{"n3 h4 w4 c8", "n2 h3 w5 c7", "n2 h3 w5 c7 pitch12 first3"}),
              {
                  {.name = "honest", .launch = launch_cheat<Honest>},
                  {.name = "mean", .launch = launch_cheat<Mean>},
                  {.name = "last_pixel", .launch = launch_cheat<LastPixel>},
                  {.name = "whole_vectors_of_pixels", .launch = launch_cheat<WholeVectorsOfPixels>},
                  {.name = "next_image", .launch = launch_cheat<NextImage>},
                  {.name = "bf16_sums", .launch = launch_cheat<Bf16Sums>},
                  {.name = "bf16_result", .launch = launch_cheat<Bf16Result>},
                  {.name = "all_images", .launch = launch_cheat<AllImages>},
                  {.name = "clears_neighbours", .launch = launch_cheat<ClearsNeighbours>},
              })

}  // namespace ladder::add
