#include "tests/wrong/conv1d/faulty_conv.h"

namespace ladder::conv1d {
namespace {

enum class Addend { both, no_bias, no_residual, residual_of_first };

template <ConvFault kFault, Addend kAddend>
struct Faulty {
  __device__ void operator()(const auto& v, long long index) const {
    const Problem& p = v.p;
    const int k = static_cast<int>(index % p.k);
    const int o = static_cast<int>(index / p.k % p.out_l());
    const int n = static_cast<int>(index / p.k / p.out_l());
    float y = faulty_conv<kFault>(v, n, o, k, [&](int sample, int position, int c) {
      return v.load(v.t.x, (static_cast<long long>(sample) * p.l + position) * p.c + c);
    });
    if (v.t.bias && kAddend != Addend::no_bias) y += v.t.bias[k];
    const long long from = kAddend == Addend::residual_of_first ? index % (p.out_l() * p.k) : index;
    if (v.t.residual && kAddend != Addend::no_residual) y += v.load(v.t.residual, from);
    v.store(v.t.y, index, y);
  }
};

template <ConvFault kFault, Addend kAddend = Addend::both>
wrong::Entry<Fprop> faulty(const char* name) {
  return wrong::other_kernel<Fprop, size_y, Faulty<kFault, kAddend>>(name);
}

// Each kind of convolution, in more than one sample.
std::vector<std::string> problems() {
  return {"n2 l7 c8 k16 taps5 bias residual", "n3 l6 c5 k9 taps3 stride2 bias",
          "n2 l4 c8 k12 taps4 transposed residual", "n2 l5 c16 k8 taps1 bias"};
}

}  // namespace

LADDER_CHEATS(Fprop, problems(),
              {
                  faulty<ConvFault::none>("honest"),
                  faulty<ConvFault::clamped_border>("clamped_border"),
                  faulty<ConvFault::neighbours>("neighbours"),
                  faulty<ConvFault::flipped_taps>("flipped_taps"),
                  faulty<ConvFault::exchanged_phases>("exchanged_phases"),
                  faulty<ConvFault::padded_after>("padded_after"),
                  faulty<ConvFault::last_channel>("last_channel"),
                  faulty<ConvFault::first_tap>("first_tap"),
                  wrong::only({Dtype::f32}, faulty<ConvFault::bf16_sum>("bf16_sum")),
                  faulty<ConvFault::none, Addend::no_bias>("no_bias"),
                  faulty<ConvFault::none, Addend::no_residual>("no_residual"),
                  faulty<ConvFault::none, Addend::residual_of_first>("residual_of_first"),
              })

}  // namespace ladder::conv1d
