#include "dev/diffusion/gaussian.h"
#include "tests/wrong/wrong.h"

namespace ladder::diffusion {
namespace {

template <class T>
struct View {
  Problem p;
  long long total;  // elements
  const std::int64_t* philox;
  float* noise;

  View(const Problem& problem, const Noise::Tensors& t, void*)
      : p(problem), total(problem.elements()), philox(t.philox), noise(t.noise) {}

  __host__ __device__ long long count() const { return total; }
  __device__ long long image() const { return static_cast<long long>(p.h) * p.w * p.c; }
};

struct Honest {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.noise[i] = component(normals(v.philox, static_cast<unsigned>(i / 4)), static_cast<unsigned>(i % 4));
  }
};

template <class Cheat>
void launch_cheat(const Problem& p, const Noise::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_cheat<Noise, View, Cheat>(p, t, workspace, stream);
}

// What can be wrong with it.

// The same numbers whatever the offset.
struct RepeatsBetweenSteps {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const std::int64_t philox[2] = {v.philox[0], 0};
    v.noise[i] = component(normals(philox, static_cast<unsigned>(i / 4)), static_cast<unsigned>(i % 4));
  }
};

// The same numbers whatever the seed.
struct OneSeed {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const std::int64_t philox[2] = {0, v.philox[1]};
    v.noise[i] = component(normals(philox, static_cast<unsigned>(i / 4)), static_cast<unsigned>(i % 4));
  }
};

// Counts elements of an image, so that all images have the same noise.
struct EqualImages {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const long long j = i % v.image();
    v.noise[i] = component(normals(v.philox, static_cast<unsigned>(j / 4)), static_cast<unsigned>(j % 4));
  }
};

// Adds the offset to the element: a step's numbers are the last one's, moved.
struct ShiftedByAStep {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const long long j = i + 4 * v.philox[1];
    const std::int64_t philox[2] = {v.philox[0], 0};
    v.noise[i] = component(normals(philox, static_cast<unsigned>(j / 4)), static_cast<unsigned>(j % 4));
  }
};

// One number for four elements.
struct EqualQuads {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.noise[i] = component(normals(v.philox, static_cast<unsigned>(i / 4)), 0);
  }
};

// Throws the sine away, and counts on.
struct CosinesAlone {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const PhiloxWords r = philox4x32_10(i, v.philox[1], v.philox[0]);
    v.noise[i] = box_muller(r.word[0], r.word[1]).x;
  }
};

// Uniform, of the same variance.
struct Uniform {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    const PhiloxWords r = philox4x32_10(i / 4, v.philox[1], v.philox[0]);
    v.noise[i] = (__uint2float_rn(r.word[i % 4]) * 0x1p-32f - 0.5f) * 3.4641016f;
  }
};

}  // namespace

LADDER_CHEATS(Noise, (std::vector<std::string>{"n2 h4 w4 c3", "n3 h3 w5 c1"}),
              {
                  {.name = "honest", .launch = launch_cheat<Honest>},
                  {.name = "repeats_between_steps", .launch = launch_cheat<RepeatsBetweenSteps>},
                  {.name = "one_seed", .launch = launch_cheat<OneSeed>},
                  {.name = "equal_images", .launch = launch_cheat<EqualImages>},
                  {.name = "shifted_by_a_step", .launch = launch_cheat<ShiftedByAStep>},
                  {.name = "equal_quads", .launch = launch_cheat<EqualQuads>},
                  {.name = "cosines_alone", .launch = launch_cheat<CosinesAlone>},
                  {.name = "uniform", .launch = launch_cheat<Uniform>},
              })

}  // namespace ladder::diffusion
