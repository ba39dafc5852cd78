#include "tests/wrong/conv_stem/faulty_sum.h"

namespace ladder::conv_stem {
namespace {

long long size_y(const Problem& p) { return static_cast<long long>(p.n) * p.out_h() * p.out_w() * p.k; }

template <Fault kFault>
struct Faulty {
  __device__ void operator()(const auto& v, long long index) const {
    const Problem& p = v.p;
    const long long pixel = index / p.k;
    const int col = static_cast<int>(pixel % p.out_w());
    const int row = static_cast<int>(pixel / p.out_w() % p.out_h());
    const long long image = pixel / p.out_w() / p.out_h();
    v.store(v.t.y, index, faulty_sum<kFault>(v, image, row, col, static_cast<int>(index % p.k)));
  }
};

template <Fault kFault>
wrong::Entry<Fprop> faulty(const char* name) {
  return wrong::only({Dtype::f32}, wrong::other_kernel<Fprop, size_y, Faulty<kFault>>(name));
}

// A ReLU, which this pass has not.
struct Relu {
  __device__ void operator()(const auto& v, long long i) const { v.store(v.t.y, i, fmaxf(v.load(v.t.y, i), 0.0f)); }
};

}  // namespace

LADDER_CHEATS(Fprop, wrong_problems(),
              {
                  faulty<Fault::none>("honest"),
                  faulty<Fault::less_padding>("less_padding"),
                  faulty<Fault::clamped_border>("clamped_border"),
                  faulty<Fault::wrapped_border>("wrapped_border"),
                  faulty<Fault::smaller_stride>("smaller_stride"),
                  faulty<Fault::exchanged_axes>("exchanged_axes"),
                  faulty<Fault::flipped_filter>("flipped_filter"),
                  faulty<Fault::last_column>("last_column"),
                  faulty<Fault::last_channel>("last_channel"),
                  faulty<Fault::no_bias>("no_bias"),
                  faulty<Fault::bf16_sum>("bf16_sum"),
                  wrong::only({Dtype::f32}, wrong::spoiled_output<Fprop, size_y, Relu>("relu")),
              })

}  // namespace ladder::conv_stem
