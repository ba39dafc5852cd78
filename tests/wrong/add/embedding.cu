#include "dev/add/add.h"
#include "tests/wrong/wrong.h"

namespace ladder::add {
namespace {

enum class Fault {
  none,
  first_image,   // one embedding for the whole batch
  next_image,    // the neighbour's
  by_pixel,      // as if it went with the pixels: right where the image has one
  next_channel,  // shifted by a channel
  scales,        // a factor, as of models that scale and shift
};

template <Fault kFault>
struct Faulty {
  __device__ void operator()(const auto& v, long long i) const {
    const Problem& p = v.p;
    const long long pixel = i / p.c;
    long long image = pixel / (p.h * p.w);
    if (kFault == Fault::first_image) image = 0;
    if (kFault == Fault::next_image) image = (image + 1) % p.n;
    if (kFault == Fault::by_pixel) image = pixel % p.n;
    const long long channel = kFault == Fault::next_channel ? (i + 1) % p.c : i % p.c;
    const float e = v.t.e[image * (p.pitch == 0 ? p.c : p.pitch) + p.first + channel];
    const float x = v.load(v.t.x, i);
    v.store(v.t.y, i, kFault == Fault::scales ? x * (1.0f + e) : x + e);
  }
};

template <Fault kFault>
constexpr auto faulty = wrong::other_kernel<Embedding, &Problem::elements, Faulty<kFault>>;

// The first columns of the matrix, whichever are asked for.
void first_columns(Problem& p) { p.first = 0; }

}  // namespace

LADDER_CHEATS(Embedding, (std::vector<std::string>{"n3 h4 w4 c8", "n2 h3 w5 c7", "n2 h3 w5 c7 pitch12 first3"}),
              {
                  faulty<Fault::none>("honest"),
                  faulty<Fault::first_image>("first_image"),
                  faulty<Fault::next_image>("next_image"),
                  faulty<Fault::by_pixel>("by_pixel"),
                  faulty<Fault::next_channel>("next_channel"),
                  faulty<Fault::scales>("scales"),
                  wrong::spoiled_problem<Embedding, first_columns>("first_columns"),
              })

}  // namespace ladder::add
