#include <algorithm>

#include "tests/wrong/groupnorm/problems.h"
#include "tests/wrong/wrong.h"

namespace ladder::groupnorm {
namespace {

using Tensors = Backward::Tensors;

enum class Fault {
  none,
  no_a,                // leaves A out of dx, as if the mean did not depend on x
  no_b,                // leaves B out of dx, as if the deviation did not depend on x
  next_group,          // A and B of the neighbouring group
  tail_of_pixels,      // A and B without the last pixel
  tail_of_channels,    // reads channels in pairs, and drops the last of an odd number from A and B
  no_gamma_in_sums,    // A and B of dz instead of gamma * dz, which parameters of one hide
  derivative_at_xhat,  // the activation's derivative before gamma and beta
  no_rstd,             // dx with respect to xhat
  bf16_sums,           // accumulates in bf16
  one_addend,          // leaves the second addend out
  addend_of_image,     // the first image's addend for all images
  next_row,            // de of the neighbouring image, which a batch of one hides
  first_column,        // de from the matrix's first column on
  rounded_dx,          // de of dx rounded to its stored dtype
  no_slope,            // de as if x - mean added up to nothing in each channel
  padding_counts,      // the sum of x - mean has the last pixel twice, as in blocks that pad their last row of threads
};

// Term: an element's contribution. Sums: the sums over many elements.
struct Term {
  float xhat;
  float dz;
};
struct Sums {
  float plain = 0;  // sum of dz: A or dbeta
  float xhat = 0;   // sum of dz * xhat: B or dgamma
};

__device__ float gamma_of(const auto& v, int c) { return v.t.gamma ? v.t.gamma[c] : 1.0f; }

template <Fault kFault>
__device__ Term term_of(const auto& v, long long index) {
  const int c = channel_of(v.p, index);
  const int group = group_of(v.p, index);
  const float xhat = (v.load(v.t.x, index) - v.t.mean[group]) * v.t.rstd[group];
  const float z = gamma_of(v, c) * xhat + (v.t.beta ? v.t.beta[c] : 0.0f);
  const float at = kFault == Fault::derivative_at_xhat ? xhat : z;
  const float slope = select_activation(v.p.activation, [at](auto act) { return decltype(act)::derivative(at); });
  return {.xhat = xhat, .dz = v.load(v.t.dy, index) * slope};
}

template <Fault kFault>
__device__ void add_term(const auto& v, long long index, float factor, Sums& sums) {
  const auto rounded = [](float x) { return kFault == Fault::bf16_sums ? to_float(from_float<__nv_bfloat16>(x)) : x; };
  const Term term = term_of<kFault>(v, index);
  sums.plain = rounded(sums.plain + factor * term.dz);
  sums.xhat = rounded(sums.xhat + factor * term.dz * term.xhat);
}

// Returns dx before the addends.
template <Fault kFault>
__device__ float dx_of(const auto& v, long long index) {
  const Problem& p = v.p;
  const int group = group_of(p, index);
  const long long first = first_of(p, kFault == Fault::next_group ? (group + 1) % (p.n * p.g) : group);
  const int pixels = kFault == Fault::tail_of_pixels ? p.h * p.w - 1 : p.h * p.w;
  const int channels = kFault == Fault::tail_of_channels ? p.c / p.g / 2 * 2 : p.c / p.g;
  Sums ab;
  for (int pixel = 0; pixel < pixels; ++pixel) {
    for (int c = 0; c < channels; ++c) {
      const long long i = first + static_cast<long long>(pixel) * p.c + c;
      add_term<kFault>(v, i, kFault == Fault::no_gamma_in_sums ? 1.0f : gamma_of(v, channel_of(p, i)), ab);
    }
  }
  if (kFault == Fault::no_a) ab.plain = 0;
  if (kFault == Fault::no_b) ab.xhat = 0;
  const Term term = term_of<kFault>(v, index);
  const auto m = static_cast<float>(p.h * p.w * (p.c / p.g));
  const float gradient = gamma_of(v, channel_of(p, index)) * term.dz - (ab.plain + term.xhat * ab.xhat) / m;
  return kFault == Fault::no_rstd ? gradient : v.t.rstd[group] * gradient;
}

template <Fault kFault>
__device__ void write_dx(const auto& v, long long index) {
  float dx = dx_of<kFault>(v, index);
  const long long image = static_cast<long long>(v.p.h) * v.p.w * v.p.c;
  if (v.t.addend) dx += v.load(v.t.addend, kFault == Fault::addend_of_image ? index % image : index);
  if (v.t.addend2 && kFault != Fault::one_addend) dx += v.load(v.t.addend2, index);
  v.store(v.t.dx, index, dx);
}

__device__ float rounded(float x, Dtype dtype) {
  return dtype == Dtype::bf16 ? to_float(from_float<__nv_bfloat16>(x)) : to_float(from_float<__half>(x));
}

// Write de[row][c], where `row` is the image.
template <Fault kFault>
__device__ void write_de(const auto& v, int row, int c) {
  const Problem& p = v.p;
  const int image = kFault == Fault::next_row ? (row + 1) % p.n : row;
  const long long first = static_cast<long long>(image) * p.h * p.w * p.c + c;
  const int pixels = p.h * p.w;
  float sum = 0;
  for (int i = 0; i < pixels; ++i) {
    const float dx =
        dx_of < kFault == Fault::no_slope ? Fault::no_b : kFault > (v, first + static_cast<long long>(i) * p.c);
    sum += kFault == Fault::rounded_dx ? rounded(dx, p.dtype) : dx;
  }
  if constexpr (kFault == Fault::padding_counts) {
    const long long last = first + static_cast<long long>(pixels - 1) * p.c;
    sum += dx_of<Fault::none>(v, last) - dx_of<Fault::no_b>(v, last);
  }
  v.t.de[row * p.embedding + (kFault == Fault::first_column ? 0 : p.first) + c] = sum;
}

__device__ void write_parameters(const auto& v, int c, const Sums& sums) {
  v.t.dgamma[c] = sums.xhat;
  v.t.dbeta[c] = sums.plain;
}

// Compute one output in each thread: an element of dx (with its group's A and B recomputed), an element of de, or a
// channel of dgamma and dbeta.
template <Fault kFault>
struct Faulty {
  __device__ void operator()(const auto& v, long long index) const {
    const long long num_elements = static_cast<long long>(v.p.n) * v.p.h * v.p.w * v.p.c;
    if (index < num_elements) return write_dx<kFault>(v, index);
    index -= num_elements;
    const long long num_columns = v.p.embedding == 0 ? 0 : static_cast<long long>(v.p.n) * v.p.c;
    if (index < num_columns) return write_de<kFault>(v, static_cast<int>(index / v.p.c), channel_of(v.p, index));
    index -= num_columns;
    Sums sums;
    for (long long i = index; i < num_elements; i += v.p.c) add_term<kFault>(v, i, 1.0f, sums);
    write_parameters(v, static_cast<int>(index), sums);
  }
};

long long num_outputs(const Problem& p) {
  return p.elements() + (p.embedding == 0 ? 0 : p.n * p.c) + (p.affine ? p.c : 0);
}

template <Fault kFault>
constexpr auto faulty = wrong::other_kernel<Backward, num_outputs, Faulty<kFault>>;

// Zero de's columns outside of the problem's, as if de were a matrix of its own.
struct OtherColumns {
  __device__ void operator()(const auto& v, long long index) const {
    if (v.p.embedding == 0) return;
    const long long column = index % v.p.embedding - v.p.first;
    if (column < 0 || column >= v.p.c) v.t.de[index] = 0.0f;
  }
};
long long num_columns(const Problem& p) { return static_cast<long long>(p.n) * std::max(p.embedding, 1); }

std::vector<std::string> backward_problems() {
  std::vector<std::string> problems = wrong_problems();
  problems.insert(problems.end(), {"n2 h4 w5 c16 g4 silu addend2", "n3 h3 w5 c24 g3 gelu embedding31 first5"});
  return problems;
}

// Use dy as dz.
void no_derivative(Problem& p) { p.activation = Activation::identity; }

// Compute dx alone: dgamma and dbeta go to the workspace.
void launch_dx(const Problem& p, Tensors t, void* workspace, Stream stream) {
  t.dgamma = static_cast<float*>(wrong::room_for_copies<Backward>(p, workspace));
  t.dbeta = t.dgamma + p.c;
  wrong::launch_honest<Backward>(p, t, workspace, stream);
}

// Compute dgamma and dbeta without the last image.
void last_image(const Problem& p, const Tensors& t, void* workspace, Stream stream) {
  Problem others = p;
  others.n = p.n > 1 ? p.n - 1 : 1;
  wrong::launch_honest<Backward>(others, t, workspace, stream);
  launch_dx(p, t, workspace, stream);
}

// Write dbeta in dgamma's place.
struct DgammaWithoutXhat {
  __device__ void operator()(const auto& v, long long c) const {
    if (v.p.affine) v.t.dgamma[c] = v.t.dbeta[c];
  }
};

struct Clear {
  __device__ void operator()(const auto& v, long long c) const { write_parameters(v, static_cast<int>(c), {}); }
};

// Add an element's terms to dgamma and dbeta, on top of any old values.
struct Add {
  __device__ void operator()(const auto& v, long long index) const {
    const Term term = term_of<Fault::none>(v, index);
    atomicAdd(v.t.dgamma + channel_of(v.p, index), term.dz * term.xhat);
    atomicAdd(v.t.dbeta + channel_of(v.p, index), term.dz);
  }
};

// Add into gradients without clearing them first.
void uncleared_atomics(const Problem& p, const Tensors& t, void* workspace, Stream stream) {
  launch_dx(p, t, workspace, stream);
  if (p.affine) wrong::launch_each<Backward>(p, t, stream, p.elements(), Add{});
}

// Add in the order of the threads' arrival: every answer is within the bound, but answers may differ from each other.
void float_atomics(const Problem& p, const Tensors& t, void* workspace, Stream stream) {
  if (p.affine) wrong::launch_each<Backward>(p, t, stream, p.c, Clear{});
  uncleared_atomics(p, t, workspace, stream);
}

// The block with the highest index sums the other blocks' partial sums in the workspace, without waiting for them.
struct LastBlockTooEarly {
  static constexpr int kBlocks = 4;
  Sums* partial;  // [kBlocks][c]

  __device__ void operator()(const auto& v, long long) const {
    const int pixels = v.p.n * v.p.h * v.p.w;
    const int pixels_per_block = (pixels + kBlocks - 1) / kBlocks;
    const int begin = static_cast<int>(blockIdx.x) * pixels_per_block;
    for (int c = static_cast<int>(threadIdx.x); c < v.p.c; c += wrong::kThreads) {
      Sums sums;
      for (int pixel = begin; pixel < begin + pixels_per_block && pixel < pixels; ++pixel) {
        add_term<Fault::none>(v, static_cast<long long>(pixel) * v.p.c + c, 1.0f, sums);
      }
      partial[blockIdx.x * v.p.c + c] = sums;
      if (blockIdx.x + 1 < kBlocks) continue;
      Sums total;
      for (int block = 0; block < kBlocks; ++block) {
        total.plain += partial[block * v.p.c + c].plain;
        total.xhat += partial[block * v.p.c + c].xhat;
      }
      write_parameters(v, c, total);
    }
  }
};

void last_block_too_early(const Problem& p, const Tensors& t, void* workspace, Stream stream) {
  launch_dx(p, t, workspace, stream);
  auto* const room = static_cast<Sums*>(wrong::room_for_copies<Backward>(p, workspace));
  const LastBlockTooEarly parameters{room + p.c};  // launch_dx() uses the workspace in front
  constexpr int kCount = LastBlockTooEarly::kBlocks * wrong::kThreads;
  if (p.affine) wrong::launch_each<Backward>(p, t, stream, kCount, parameters);
}

}  // namespace

LADDER_CHEATS(Backward, backward_problems(),
              {
                  faulty<Fault::none>("honest"),
                  faulty<Fault::no_a>("no_a"),
                  faulty<Fault::no_b>("no_b"),
                  faulty<Fault::next_group>("next_group"),
                  faulty<Fault::tail_of_pixels>("tail_of_pixels"),
                  faulty<Fault::tail_of_channels>("tail_of_channels"),
                  faulty<Fault::no_gamma_in_sums>("no_gamma_in_sums"),
                  wrong::spoiled_problem<Backward, no_derivative>("no_derivative"),
                  faulty<Fault::derivative_at_xhat>("derivative_at_xhat"),
                  faulty<Fault::no_rstd>("no_rstd"),
                  faulty<Fault::bf16_sums>("bf16_sums"),
                  faulty<Fault::one_addend>("one_addend"),
                  faulty<Fault::addend_of_image>("addend_of_image"),
                  faulty<Fault::next_row>("next_row"),
                  faulty<Fault::first_column>("first_column"),
                  wrong::only({Dtype::bf16, Dtype::f16}, faulty<Fault::rounded_dx>("rounded_dx")),
                  faulty<Fault::no_slope>("no_slope"),
                  faulty<Fault::padding_counts>("padding_counts"),
                  wrong::spoiled_output<Backward, num_columns, OtherColumns>("other_columns"),
                  {.name = "last_image", .launch = last_image},
                  wrong::spoiled_output<Backward, &Problem::c, DgammaWithoutXhat>("dgamma_without_xhat"),
                  {.name = "uncleared_atomics", .launch = uncleared_atomics},
                  {.name = "float_atomics", .launch = float_atomics},
                  {.name = "last_block_too_early", .launch = last_block_too_early},
              })

}  // namespace ladder::groupnorm
