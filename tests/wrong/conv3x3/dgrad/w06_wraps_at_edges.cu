// Takes what lies next to a pixel in memory for its neighbour: at an edge that is a pixel of the next row or image.
#include "tests/wrong/conv3x3/dgrad/dgrad.h"

namespace ladder::conv3x3::dgrad_wrong {
namespace {

struct Steps : Honest {
  __device__ bool inside(const Problem& p, long long pixel, int dr, int ds) const {
    const long long neighbour = pixel + dr * p.w + ds;
    return neighbour >= 0 && neighbour < static_cast<long long>(p.n) * p.h * p.w;
  }
};

}  // namespace

LADDER_VERSION(Dgrad, {.launch = launch_cheat<Spoiled<Steps>>, .dtypes = stored_dtypes()})

}  // namespace ladder::conv3x3::dgrad_wrong
