#include "dev/add/add.h"
#include "tests/wrong/wrong.h"

namespace ladder::add {
namespace {

template <class T>
struct View {
  Problem p;
  long long total;  // elements
  const T* x;
  const float* e;
  T* y;

  View(const Problem& problem, const Embedding::Tensors& t, void*)
      : p(problem), total(problem.elements()), x(static_cast<const T*>(t.x)), e(t.e), y(static_cast<T*>(t.y)) {}

  __host__ __device__ long long count() const { return total; }

  __device__ int row() const { return p.pitch == 0 ? p.c : p.pitch; }
  __device__ int image(long long i) const { return static_cast<int>(i / p.c / (p.h * p.w)); }
  __device__ int channel(long long i) const { return static_cast<int>(i % p.c); }
};

struct Honest {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.y[i] = from_float<T>(to_float(v.x[i]) + v.e[v.image(i) * v.row() + v.p.first + v.channel(i)]);
  }
};

template <class Cheat>
void launch_cheat(const Problem& p, const Embedding::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_cheat<Embedding, View, Cheat>(p, t, workspace, stream);
}

// What can be wrong with it.

// One embedding for the whole batch.
struct FirstImage {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.y[i] = from_float<T>(to_float(v.x[i]) + v.e[v.channel(i)]);
  }
};

// The neighbour's.
struct NextImage {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.y[i] = from_float<T>(to_float(v.x[i]) + v.e[(v.image(i) + 1) % v.p.n * v.p.c + v.channel(i)]);
  }
};

// As if it went with the pixels: right where the image has one.
struct ByPixel {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.y[i] = from_float<T>(to_float(v.x[i]) + v.e[i % (v.p.n * v.p.c)]);
  }
};

// Shifted by a channel.
struct NextChannel {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.y[i] = from_float<T>(to_float(v.x[i]) + v.e[v.image(i) * v.p.c + (v.channel(i) + 1) % v.p.c]);
  }
};

// A factor, as of models that scale and shift.
struct Scales {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.y[i] = from_float<T>(to_float(v.x[i]) * (1.0f + v.e[v.image(i) * v.p.c + v.channel(i)]));
  }
};

// The first columns of the matrix, whichever are asked for.
struct FirstColumns {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.y[i] = from_float<T>(to_float(v.x[i]) + v.e[v.image(i) * v.row() + v.channel(i)]);
  }
};

}  // namespace

LADDER_CHEATS(Embedding, (std::vector<std::string>{"n3 h4 w4 c8", "n2 h3 w5 c7", "n2 h3 w5 c7 pitch12 first3"}),
              {
                  {.name = "honest", .launch = launch_cheat<Honest>},
                  {.name = "first_image", .launch = launch_cheat<FirstImage>},
                  {.name = "next_image", .launch = launch_cheat<NextImage>},
                  {.name = "by_pixel", .launch = launch_cheat<ByPixel>},
                  {.name = "next_channel", .launch = launch_cheat<NextChannel>},
                  {.name = "scales", .launch = launch_cheat<Scales>},
                  {.name = "first_columns", .launch = launch_cheat<FirstColumns>},
              })

}  // namespace ladder::add
