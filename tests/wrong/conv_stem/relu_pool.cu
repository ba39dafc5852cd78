#include "tests/wrong/conv_stem/faulty_sum.h"

namespace ladder::conv_stem {
namespace {

long long size_y(const Problem& p) { return static_cast<long long>(p.n) * p.pool_h() * p.pool_w() * p.k; }

enum class Pooling {
  right,
  no_relu,
  bias_after_relu,
  window_2,        // two rows and columns of three
  next_window,     // windows begin a pixel further on
  without_corner,  // all but the last of the nine
  mean,
};

template <Pooling kPooling, Fault kFault = Fault::none>
struct Faulty {
  __device__ void operator()(const auto& v, long long index) const {
    const Problem& p = v.p;
    const int k = static_cast<int>(index % p.k);
    const long long pixel = index / p.k;
    const int col = static_cast<int>(pixel % p.pool_w()) * 2 + (kPooling == Pooling::next_window);
    const int row = static_cast<int>(pixel / p.pool_w() % p.pool_h()) * 2 + (kPooling == Pooling::next_window);
    constexpr int kWindow = kPooling == Pooling::window_2 ? 2 : 3;
    float largest = kPooling == Pooling::no_relu || kPooling == Pooling::bias_after_relu ? -INFINITY : 0.0f;
    float sum = 0;
    for (int tap = 0; tap < kWindow * kWindow; ++tap) {
      if (kPooling == Pooling::without_corner && tap == 8) continue;
      const int tap_row = min(row + tap / kWindow, p.out_h() - 1);
      const int tap_col = min(col + tap % kWindow, p.out_w() - 1);
      float value = faulty_sum<kFault>(v, pixel / p.pool_w() / p.pool_h(), tap_row, tap_col, k);
      if (kPooling == Pooling::bias_after_relu && v.t.bias) value = fmaxf(value - v.t.bias[k], 0.0f) + v.t.bias[k];
      largest = fmaxf(largest, value);
      sum += fmaxf(value, 0.0f);
    }
    v.store(v.t.y, index, kPooling == Pooling::mean ? sum / 9 : largest);
  }
};

template <Pooling kPooling, Fault kFault = Fault::none>
wrong::Entry<ReluPool> faulty(const char* name) {
  return wrong::only({Dtype::f32}, wrong::other_kernel<ReluPool, size_y, Faulty<kPooling, kFault>>(name));
}

}  // namespace

LADDER_CHEATS(ReluPool, wrong_problems(),
              {
                  faulty<Pooling::right>("honest"),
                  faulty<Pooling::no_relu>("no_relu"),
                  faulty<Pooling::bias_after_relu>("bias_after_relu"),
                  faulty<Pooling::window_2>("window_2"),
                  faulty<Pooling::next_window>("next_window"),
                  faulty<Pooling::without_corner>("without_corner"),
                  faulty<Pooling::mean>("mean"),
                  faulty<Pooling::right, Fault::less_padding>("less_padding"),
                  faulty<Pooling::right, Fault::exchanged_axes>("exchanged_axes"),
                  faulty<Pooling::right, Fault::no_bias>("no_bias"),
                  faulty<Pooling::right, Fault::bf16_sum>("bf16_sum"),
              })

}  // namespace ladder::conv_stem
