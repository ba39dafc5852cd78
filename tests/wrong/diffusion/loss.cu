#include "dev/diffusion/diffusion.h"
#include "tests/wrong/wrong.h"

#include <cmath>

namespace ladder::diffusion {
namespace {

template <class T>
struct View {
  Problem p;
  long long total;  // elements
  const T* pred;
  const float* noise;
  T* dpred;
  float* losses;
  float* loss;

  View(const Problem& problem, const Loss::Tensors& t, void*)
      : p(problem),
        total(problem.elements()),
        pred(static_cast<const T*>(t.pred)),
        noise(t.noise),
        dpred(static_cast<T*>(t.dpred)),
        losses(t.losses),
        loss(t.loss) {}

  __host__ __device__ long long count() const { return total; }
  __device__ long long image() const { return static_cast<long long>(p.h) * p.w * p.c; }

  __device__ float difference(long long i) const { return to_float(pred[i]) - noise[i]; }
};

struct Honest {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.dpred[i] = from_float<T>(2.0f / static_cast<float>(v.count()) * v.difference(i));
    const long long image = v.image();
    if (i % image == 0) {
      float sum = 0;
      for (long long j = i; j < i + image; ++j) {
        const float d = v.difference(j);
        sum += d * d;
      }
      v.losses[i / image] = sum / static_cast<float>(image);
    }
    if (i == 0) {
      float sum = 0;
      for (long long j = 0; j < v.count(); ++j) {
        const float d = v.difference(j);
        sum += d * d;
      }
      *v.loss = sum / static_cast<float>(v.count());
    }
  }
};

template <class Cheat>
void launch_cheat(const Problem& p, const Loss::Tensors& t, void* workspace, Stream stream) {
  wrong::launch_cheat<Loss, View, Cheat>(p, t, workspace, stream);
}

// What can be wrong with it.

// The sum of squares.
struct Sum {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.dpred[i] = from_float<T>(2.0f / static_cast<float>(v.count()) * v.difference(i));
    const long long image = v.image();
    if (i % image == 0) {
      float sum = 0;
      for (long long j = i; j < i + image; ++j) {
        const float d = v.difference(j);
        sum += d * d;
      }
      v.losses[i / image] = sum / static_cast<float>(image);
    }
    if (i == 0) {
      float sum = 0;
      for (long long j = 0; j < v.count(); ++j) {
        const float d = v.difference(j);
        sum += d * d;
      }
      *v.loss = sum;
    }
  }
};

// Half the gradient, as of a loss with 1/2 in front.
struct GradientOfHalf {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.dpred[i] = from_float<T>(1.0f / static_cast<float>(v.count()) * v.difference(i));
    const long long image = v.image();
    if (i % image == 0) {
      float sum = 0;
      for (long long j = i; j < i + image; ++j) {
        const float d = v.difference(j);
        sum += d * d;
      }
      v.losses[i / image] = sum / static_cast<float>(image);
    }
    if (i == 0) {
      float sum = 0;
      for (long long j = 0; j < v.count(); ++j) {
        const float d = v.difference(j);
        sum += d * d;
      }
      *v.loss = sum / static_cast<float>(v.count());
    }
  }
};

// The gradient of an image's own mean.
struct GradientOfImages {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.dpred[i] = from_float<T>(2.0f / static_cast<float>(v.image()) * v.difference(i));
    const long long image = v.image();
    if (i % image == 0) {
      float sum = 0;
      for (long long j = i; j < i + image; ++j) {
        const float d = v.difference(j);
        sum += d * d;
      }
      v.losses[i / image] = sum / static_cast<float>(image);
    }
    if (i == 0) {
      float sum = 0;
      for (long long j = 0; j < v.count(); ++j) {
        const float d = v.difference(j);
        sum += d * d;
      }
      *v.loss = sum / static_cast<float>(v.count());
    }
  }
};

// noise - pred.
struct OtherSign {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.dpred[i] = from_float<T>(2.0f / static_cast<float>(v.count()) * -v.difference(i));
    const long long image = v.image();
    if (i % image == 0) {
      float sum = 0;
      for (long long j = i; j < i + image; ++j) {
        const float d = v.difference(j);
        sum += d * d;
      }
      v.losses[i / image] = sum / static_cast<float>(image);
    }
    if (i == 0) {
      float sum = 0;
      for (long long j = 0; j < v.count(); ++j) {
        const float d = v.difference(j);
        sum += d * d;
      }
      *v.loss = sum / static_cast<float>(v.count());
    }
  }
};

// The mean of absolute differences.
struct Absolute {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.dpred[i] = from_float<T>(2.0f / static_cast<float>(v.count()) * v.difference(i));
    const long long image = v.image();
    if (i % image == 0) {
      float sum = 0;
      for (long long j = i; j < i + image; ++j) {
        const float d = v.difference(j);
        sum += fabsf(d);
      }
      v.losses[i / image] = sum / static_cast<float>(image);
    }
    if (i == 0) {
      float sum = 0;
      for (long long j = 0; j < v.count(); ++j) {
        const float d = v.difference(j);
        sum += fabsf(d);
      }
      *v.loss = sum / static_cast<float>(v.count());
    }
  }
};

// An image's share of the loss for its own.
struct LossesOverAll {
  template <class T>
  __device__ void operator()(const View<T>& v, long long i) const {
    v.dpred[i] = from_float<T>(2.0f / static_cast<float>(v.count()) * v.difference(i));
    const long long image = v.image();
    if (i % image == 0) {
      float sum = 0;
      for (long long j = i; j < i + image; ++j) {
        const float d = v.difference(j);
        sum += d * d;
      }
      v.losses[i / image] = sum / static_cast<float>(v.count());
    }
    if (i == 0) {
      float sum = 0;
      for (long long j = 0; j < v.count(); ++j) {
        const float d = v.difference(j);
        sum += d * d;
      }
      *v.loss = sum / static_cast<float>(v.count());
    }
  }
};

}  // namespace

LADDER_CHEATS(Loss, (std::vector<std::string>{"n2 h4 w4 c3", "n3 h3 w5 c1"}),
              {
                  {.name = "honest", .launch = launch_cheat<Honest>},
                  {.name = "sum", .launch = launch_cheat<Sum>},
                  {.name = "gradient_of_half", .launch = launch_cheat<GradientOfHalf>},
                  {.name = "gradient_of_images", .launch = launch_cheat<GradientOfImages>},
                  {.name = "other_sign", .launch = launch_cheat<OtherSign>},
                  {.name = "absolute", .launch = launch_cheat<Absolute>},
                  {.name = "losses_over_all", .launch = launch_cheat<LossesOverAll>},
              })

}  // namespace ladder::diffusion
