#include "dev/diffusion/diffusion.h"
#include "tests/wrong/wrong.h"

namespace ladder::diffusion {
namespace {

template <class Cheat>
constexpr auto on_index = wrong::spoiled_input<Batch, &Batch::Tensors::index, &Problem::n, Cheat>;

__device__ int set_size(const Problem& p) { return p.images == 0 ? p.n : p.images; }

// Never mirrors.
struct Straight {
  __device__ int operator()(const auto& v, long long n) const {
    const int image = v.t.index[n];
    return image < 0 ? -1 - image : image;
  }
};

// The image after the one asked for, where it is mirrored.
struct OffByOne {
  __device__ int operator()(const auto& v, long long n) const {
    const int image = v.t.index[n];
    return image < 0 ? -1 - -image % set_size(v.p) : image;
  }
};

// The first images of the set.
struct InOrder {
  __device__ int operator()(const auto& v, long long n) const { return static_cast<int>(n) % set_size(v.p); }
};

// From 0 to 1.
struct UnitRange {
  __device__ void operator()(const auto& v, long long i) const {
    v.store(v.t.x0, i, 0.5f * (v.load(v.t.x0, i) + 1.0f));
  }
};

}  // namespace

LADDER_CHEATS(Batch, (std::vector<std::string>{"n5 h4 w6 c3 images7", "n3 h5 w5 c3"}),
              {
                  wrong::honest<Batch>(),
                  on_index<Straight>("straight"),
                  on_index<OffByOne>("off_by_one"),
                  on_index<InOrder>("in_order"),
                  wrong::spoiled_output<Batch, &Problem::elements, UnitRange>("unit_range"),
              })

}  // namespace ladder::diffusion
