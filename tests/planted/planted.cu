#include "tests/planted/planted.h"

#include "core/backend.h"
#include "core/device.h"

namespace ladder::planted {
namespace {

constexpr int kThreads = 128;

// Device memory that nobody has written yet.
class Memory {
 public:
  explicit Memory(int count) : pointer_(static_cast<int*>(backend::allocate(count * sizeof(int)))) {}
  ~Memory() { backend::release(pointer_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  int* get() const { return pointer_; }
  void fill(int count) {
    std::vector<int> values(count);
    for (int i = 0; i < count; ++i) values[i] = i;
    backend::copy_in(pointer_, values.data(), count * sizeof(int));
  }
  // True if the first kThreads words are first, first + 1, ...
  bool counts_from(int first) const {
    std::vector<int> values(kThreads);
    backend::copy_out(values.data(), pointer_, kThreads * sizeof(int));
    for (int i = 0; i < kThreads; ++i) {
      if (values[i] != first + i) return false;
    }
    return true;
  }

 private:
  int* pointer_;
};

template <class Kernel, class... A>
void run_kernel(Kernel kernel, A... args) {
  launch(kernel, {1, kThreads}, nullptr, args...);
  backend::synchronize();
}

// Stores 64 MiB past the end: an allocation's own padding would hide a smaller step.
template <bool kFaulty>
__global__ void planted_memcheck_kernel(int* out) {
  constexpr int kFarBehind = kFaulty ? (64 << 20) / static_cast<int>(sizeof(int)) : 0;
  out[kFarBehind + threadIdx.x] = static_cast<int>(threadIdx.x);
}

bool memcheck(bool faulty) {
  const Memory out(kThreads);
  run_kernel(faulty ? planted_memcheck_kernel<true> : planted_memcheck_kernel<false>, out.get());
  return out.counts_from(0);
}

// Every warp reads what the next one has written to shared memory, with and without a barrier in between.
template <bool kFaulty>
__global__ void planted_racecheck_kernel(int* out) {
  LADDER_SHARED(int, table, [kThreads]);
  table[threadIdx.x] = static_cast<int>(threadIdx.x) + 1;
  if (!kFaulty) __syncthreads();
  const int next = (threadIdx.x + 32) % kThreads;
  out[next] = table[next];
}

bool racecheck(bool faulty) {
  const Memory out(kThreads);
  run_kernel(faulty ? planted_racecheck_kernel<true> : planted_racecheck_kernel<false>, out.get());
  return out.counts_from(1);
}

// A barrier in code that only a part of the second warp comes to.
template <bool kFaulty>
__global__ void planted_synccheck_kernel(int* out, int arriving) {
  LADDER_SHARED(int, table, [kThreads]);
  table[threadIdx.x] = static_cast<int>(threadIdx.x) + 2;
  if (!kFaulty || static_cast<int>(threadIdx.x) < arriving) __syncthreads();
  const int next = (threadIdx.x + 32) % kThreads;
  out[next] = table[next];
}

bool synccheck(bool faulty) {
  const Memory out(kThreads);
  run_kernel(faulty ? planted_synccheck_kernel<true> : planted_synccheck_kernel<false>, out.get(), 48);
  return out.counts_from(2);
}

// Reads an input of which only the first half was written.
template <bool kFaulty>
__global__ void planted_initcheck_kernel(const int* in, int* out) {
  out[threadIdx.x] = in[threadIdx.x] + (kFaulty ? in[kThreads + threadIdx.x] : 3);
}

bool initcheck(bool faulty) {
  Memory in(2 * kThreads);
  in.fill(kThreads);
  const Memory out(kThreads);
  run_kernel(faulty ? planted_initcheck_kernel<true> : planted_initcheck_kernel<false>, in.get(), out.get());
  return out.counts_from(3);
}

}  // namespace

const std::vector<Fault>& all() {
  static const std::vector<Fault> faults = {
      {"memcheck", memcheck}, {"racecheck", racecheck}, {"synccheck", synccheck}, {"initcheck", initcheck}};
  return faults;
}

}  // namespace ladder::planted
