#include <cuda_runtime.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include "core/communicator.h"
namespace ladder {
__global__ void hog(long long ns, float4* data, long long n) {
  const long long t0 = clock64();
  (void)n;
  (void)data;
  while (clock64() - t0 < ns * 2 - ns / 20) __nanosleep(200);
}
struct Fake : Communicator {
  int rank() const override { return 0; }
  int size() const override { return 2; }
  double pending = 0;
  bool grouped = false;
  Stream at{};
  void launch(double bytes, Stream s) {
    static const int ctas = std::getenv("CTAS") ? std::atoi(std::getenv("CTAS")) : 0;
    if (!ctas) return;
    const double us = 18 + bytes / (1e3 * std::min(19.0 * ctas, 100 + 7.0 * ctas));
    const int block = 544;
    hog<<<ctas, block, 0, s>>>((long long)(us * 1e3), nullptr, 0);
  }
  void all_reduce(void*, std::size_t count, Dtype d, Stream s) override {
    if (count < 1000) return;
    const double bytes = double(count) * (d == Dtype::f32 ? 4 : 2);
    if (grouped) {
      pending += bytes;
      at = s;
    } else
      launch(bytes, s);
  }
  void group_begin() override {
    grouped = true;
    pending = 0;
  }
  void group_end() override {
    grouped = false;
    launch(pending, at);
  }
  void reduce_scatter(const void*, void*, std::size_t, Dtype, Stream) override {}
  void all_gather(const void*, void*, std::size_t, Stream s) override { launch(0, s); }
  void broadcast(void*, std::size_t, int, Stream) override {}
  void check() override {}
};
Communicator* fake_communicator() {
  static Fake f;
  return &f;
}
}  // namespace ladder
