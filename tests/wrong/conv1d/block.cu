#include "dev/common/activation.h"
#include "tests/wrong/conv1d/faulty_conv.h"

namespace ladder::conv1d {
namespace {

enum class Fault {
  none,
  no_bias,
  length_only,       // statistics of each channel by itself
  all_channels,      // statistics of all groups together
  batch_statistics,  // statistics of all samples together
  next_group,
  half_length,        // statistics of the first half of the positions
  sample_variance,    // divides by n - 1, like a sample variance
  no_epsilon,         // leaves epsilon out: shows in a group with a small deviation
  film_first,         // scale and shift before the normalisation
  film_inside,        // scale and shift before the activation
  exchanged_film,     // uses shifts as scales and scales as shifts
  one_plus_scale,     // multiplies by 1 + scale, like many networks but not this one
  no_step,            // leaves out the row that all samples share
  film_of_first,      // the first sample's row for all
  dense_film,         // rows without their pitch
  no_residual,        // leaves it out
  residual_inside,    // adds it before the activation
  no_activation,      // leaves it out
  silu,               // SiLU for Mish
  exchanged_sources,  // x_rest's channels in front of x's
};

template <Fault kFault, ConvFault kConvFault = ConvFault::none>
struct Faulty {
  // Returns an element of x, or of the concatenation of x and x_rest.
  static __device__ float x_at(const auto& v, int n, int position, int c) {
    const Problem& p = v.p;
    const long long row = static_cast<long long>(n) * p.l + position;
    if (!v.t.x_rest) return v.load(v.t.x, row * p.c + c);
    const int rest_channels = p.c - p.split;
    if (kFault == Fault::exchanged_sources) c = c < rest_channels ? c + p.split : c - rest_channels;
    return c < p.split ? v.load(v.t.x, row * p.split + c) : v.load(v.t.x_rest, row * rest_channels + c - p.split);
  }
  static __device__ float film(const auto& v, int n, int j) {
    const Problem& p = v.p;
    if (kFault == Fault::film_of_first) n = 0;
    const int pitch = kFault == Fault::dense_film ? p.film_width() : p.pitch;
    return (kFault == Fault::no_step ? 0.0f : v.t.film_step[j]) + v.t.film[n * pitch + j];
  }
  static __device__ float scale(const auto& v, int n, int k) {
    if (!v.p.film) return 1.0f;
    if (kFault == Fault::exchanged_film) return film(v, n, v.p.k + k);
    return film(v, n, k) + (kFault == Fault::one_plus_scale ? 1.0f : 0.0f);
  }
  static __device__ float shift(const auto& v, int n, int k) {
    if (v.p.film_width() == 0) return 0.0f;
    return film(v, n, kFault == Fault::exchanged_film && v.p.film ? k : v.p.film_width() - v.p.k + k);
  }
  // Returns the value before normalisation: convolution plus bias.
  static __device__ float h(const auto& v, int n, int o, int k) {
    const auto x = [&](int sample, int position, int c) { return x_at(v, sample, position, c); };
    const float sum = (kFault == Fault::no_bias ? 0.0f : v.t.bias[k]) + faulty_conv<kConvFault>(v, n, o, k, x);
    return kFault == Fault::film_first ? scale(v, n, k) * sum + shift(v, n, k) : sum;
  }

  __device__ void operator()(const auto& v, long long index) const {
    const Problem& p = v.p;
    const int k = static_cast<int>(index % p.k);
    const int o = static_cast<int>(index / p.k % p.out_l());
    const int n = static_cast<int>(index / p.k / p.out_l());
    int first = k / p.group_channels() * p.group_channels();
    int channels = p.group_channels();
    if (kFault == Fault::next_group) first = (first + channels) % p.k;
    if (kFault == Fault::length_only) first = k;
    if (kFault == Fault::all_channels) first = 0;
    if (kFault == Fault::length_only) channels = 1;
    if (kFault == Fault::all_channels) channels = p.k;
    const int length = kFault == Fault::half_length ? (p.out_l() + 1) / 2 : p.out_l();
    const int first_sample = kFault == Fault::batch_statistics ? 0 : n;
    const int samples = kFault == Fault::batch_statistics ? p.n : 1;
    const auto sum_of = [&](const auto& term) {
      float sum = 0;
      for (int i = 0; i < samples * length * channels; ++i) {
        sum += term(h(v, first_sample + i / channels / length, i / channels % length, first + i % channels));
      }
      return sum;
    };
    const auto count = static_cast<float>(samples * length * channels);
    const float mean = sum_of([](float value) { return value; }) / count;
    const float squares = sum_of([mean](float value) { return (value - mean) * (value - mean); });
    const float variance = squares / (kFault == Fault::sample_variance ? count - 1 : count);
    const float rstd = 1.0f / sqrtf(variance + (kFault == Fault::no_epsilon ? 0.0f : kEpsilon));

    float z = v.t.gamma[k] * (h(v, n, o, k) - mean) * rstd + v.t.beta[k];
    const float residual = v.t.residual && kFault != Fault::no_residual ? v.load(v.t.residual, index) : 0.0f;
    if (kFault == Fault::residual_inside) z += residual;
    if (kFault == Fault::film_inside) z = scale(v, n, k) * z + shift(v, n, k);
    const bool activates = p.mish && kFault != Fault::no_activation;
    const float active = !activates ? z : kFault == Fault::silu ? Silu::value(z) : Mish::value(z);
    const bool film_done = kFault == Fault::film_inside || kFault == Fault::film_first;
    const float y = film_done ? active : scale(v, n, k) * active + shift(v, n, k);
    v.store(v.t.y, index, y + (kFault == Fault::residual_inside ? 0.0f : residual));
  }
};

template <Fault kFault, ConvFault kConvFault = ConvFault::none>
wrong::Entry<Block> faulty(const char* name) {
  return wrong::other_kernel<Block, size_y, Faulty<kFault, kConvFault>>(name);
}

// Problems with all features of a block and more than one sample; a group of two elements, with a small deviation at
// times.
std::vector<std::string> problems() {
  return {"n2 l6 c8 k16 taps5 bias g4 mish film pitch40 residual", "n3 l4 c6 k12 taps3 g3 mish split2 residual",
          "n2 l5 c8 k12 taps3 g2 mish shift", "n2 l3 c4 k12 taps4 transposed g2 mish film", "n8 l1 c4 k64 taps1 g32"};
}

}  // namespace

LADDER_CHEATS(Block, problems(),
              {
                  faulty<Fault::none>("honest"),
                  faulty<Fault::none, ConvFault::flipped_taps>("flipped_taps"),
                  faulty<Fault::none, ConvFault::exchanged_phases>("exchanged_phases"),
                  faulty<Fault::none, ConvFault::neighbours>("neighbours"),
                  faulty<Fault::none, ConvFault::last_channel>("last_channel"),
                  faulty<Fault::no_bias>("no_bias"),
                  faulty<Fault::length_only>("length_only"),
                  faulty<Fault::all_channels>("all_channels"),
                  faulty<Fault::batch_statistics>("batch_statistics"),
                  faulty<Fault::next_group>("next_group"),
                  faulty<Fault::half_length>("half_length"),
                  faulty<Fault::sample_variance>("sample_variance"),
                  wrong::only({Dtype::f32}, faulty<Fault::no_epsilon>("no_epsilon")),
                  faulty<Fault::film_first>("film_first"),
                  faulty<Fault::film_inside>("film_inside"),
                  faulty<Fault::exchanged_film>("exchanged_film"),
                  faulty<Fault::one_plus_scale>("one_plus_scale"),
                  faulty<Fault::no_step>("no_step"),
                  faulty<Fault::film_of_first>("film_of_first"),
                  faulty<Fault::dense_film>("dense_film"),
                  faulty<Fault::no_residual>("no_residual"),
                  faulty<Fault::residual_inside>("residual_inside"),
                  faulty<Fault::no_activation>("no_activation"),
                  faulty<Fault::silu>("silu"),
                  faulty<Fault::exchanged_sources>("exchanged_sources"),
              })

}  // namespace ladder::conv1d
