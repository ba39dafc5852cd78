#include "dev/diffusion/diffusion.h"
#include "tests/wrong/wrong.h"

namespace ladder::diffusion {
namespace {

template <class T>
struct View {
  Problem p;
  const std::uint8_t* pixels;
  const std::int32_t* index;
  T* x0;

  View(const Problem& problem, const Batch::Tensors& t, void*)
      : p(problem), pixels(t.pixels), index(t.index), x0(static_cast<T*>(t.x0)) {}

  __host__ __device__ long long count() const { return static_cast<long long>(p.n) * p.h * p.w * p.c; }

  __device__ long long image_of(long long i) const { return index[i / (static_cast<long long>(p.h) * p.w * p.c)]; }
  __device__ float pixel(long long image, long long i, bool mirrored) const {
    const long long column = i / p.c % p.w;
    const long long from = mirrored ? p.w - 1 - column : column;
    const long long row = i / (p.c * p.w) % p.h;
    return static_cast<float>(pixels[((image * p.h + row) * p.w + from) * p.c + i % p.c]);
  }
};

struct Honest {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const long long image = v.image_of(i);
    const bool mirrored = image < 0;
    v.x0[i] = from_float<T>(v.pixel(mirrored ? -1 - image : image, i, mirrored) / 127.5f - 1.0f);
  }
};

template <class Cheat>
void launch_cheat(const Problem& p, const Batch::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_cheat<Batch, View, Cheat>(p, t, workspace, stream);
}

// What can be wrong with it.

// Never mirrors.
struct Straight {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const long long image = v.image_of(i);
    v.x0[i] = from_float<T>(v.pixel(image < 0 ? -1 - image : image, i, false) / 127.5f - 1.0f);
  }
};

// The image before the one asked for, where it is mirrored.
struct OffByOne {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const long long image = v.image_of(i);
    const bool mirrored = image < 0;
    const long long from = mirrored ? (-image) % (v.p.images == 0 ? v.p.n : v.p.images) : image;
    v.x0[i] = from_float<T>(v.pixel(from, i, mirrored) / 127.5f - 1.0f);
  }
};

// The first images of the set.
struct InOrder {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const long long n = i / (static_cast<long long>(v.p.h) * v.p.w * v.p.c) % (v.p.images == 0 ? v.p.n : v.p.images);
    v.x0[i] = from_float<T>(v.pixel(n, i, false) / 127.5f - 1.0f);
  }
};

// From 0 to 1.
struct UnitRange {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const long long image = v.image_of(i);
    const bool mirrored = image < 0;
    v.x0[i] = from_float<T>(v.pixel(mirrored ? -1 - image : image, i, mirrored) / 255.0f);
  }
};

}  // namespace

LADDER_CHEATS(Batch, (std::vector<std::string>{"n5 h4 w6 c3 images7", "n3 h5 w5 c3"}),
              {
                  {.name = "honest", .launch = launch_cheat<Honest>},
                  {.name = "straight", .launch = launch_cheat<Straight>},
                  {.name = "off_by_one", .launch = launch_cheat<OffByOne>},
                  {.name = "in_order", .launch = launch_cheat<InOrder>},
                  {.name = "unit_range", .launch = launch_cheat<UnitRange>},
              })

}  // namespace ladder::diffusion
