#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>

#include "bench/statistics.h"
#include "bench/timer.h"
#include "core/backend.h"
#include "core/cuda_check.h"

namespace ladder {
namespace {

// Time after which the gate opens by itself, so that work which waits for the device cannot hang the run.
constexpr unsigned long long kGateTimeoutNs = 2'000'000'000;

// Gate in host memory that the device sees; times in nanoseconds of the GPU's global timer.
struct Gate {
  int waiting;
  int open;
  int timed_out;
  unsigned long long opened_ns;
  unsigned long long stamp_ns;
  unsigned long long spun_ns;
  unsigned long long clock_cycles;
  unsigned long long clock_ns;
};

__device__ unsigned long long global_ns() {
  unsigned long long ns;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
  return ns;
}

__global__ void gate_kernel(volatile Gate* gate) {
  const unsigned long long start = global_ns();
  gate->waiting = 1;
  while (!gate->open) {
    if (global_ns() - start > kGateTimeoutNs) {
      gate->timed_out = 1;
      break;
    }
  }
  gate->opened_ns = global_ns();
}

__global__ void stamp_kernel(volatile Gate* gate) { gate->stamp_ns = global_ns(); }

__global__ void empty_kernel() {}

__global__ void spin_kernel(volatile Gate* gate, unsigned long long ns) {
  const unsigned long long start = global_ns();
  unsigned long long now = start;
  while (now - start < ns) now = global_ns();
  gate->spun_ns = now - start;
}

__global__ void delay_kernel(long long cycles) {
  if (cycles < 0) return;  // waits until the argument has come, which from a cold cache takes some hundred cycles
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
}

// Count SM cycles between two ticks of the global timer, which may tick as seldom as every microsecond.
__global__ void clock_kernel(volatile Gate* gate) {
  constexpr unsigned long long kSpanNs = 20'000;
  unsigned long long start = global_ns();
  unsigned long long now = start;
  while (now == start) now = global_ns();
  start = now;
  const long long cycles = clock64();
  while (now - start < kSpanNs) now = global_ns();
  gate->clock_cycles = static_cast<unsigned long long>(clock64() - cycles);
  gate->clock_ns = now - start;
}

// Vectors of 16 bytes that a thread of move_kernel has in flight, threads of a block, and vectors of a block: 16 KiB at
// most each way.
constexpr int kMoveDepth = 4;
constexpr int kMoveThreads = 256;
constexpr std::size_t kMoveSpan = kMoveDepth * kMoveThreads;

// Read and write each vector once. Sizes and spans are in vectors of 16 bytes; a block has one span of reads and one of
// writes, and the last spans may be short or empty.
__global__ void __launch_bounds__(kMoveThreads)
    move_kernel(uint4* to, std::size_t num_writes, std::size_t write_span, const uint4* from, std::size_t num_reads,
                std::size_t read_span) {
  const std::size_t read_end = min(num_reads, (blockIdx.x + 1) * read_span);
  uint4 loaded[kMoveDepth];
#pragma unroll
  for (int i = 0; i < kMoveDepth; ++i) {
    const std::size_t read_idx = blockIdx.x * read_span + i * kMoveThreads + threadIdx.x;
    uint4& v = loaded[i];
    v = {};
    // NOTE: volatile, so that the load stays even if this thread has nothing to write.
    if (read_idx < read_end) {
      asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                   : "l"(from + read_idx));
    }
  }
  uint4 all{};
  for (const uint4& v : loaded) all = {all.x ^ v.x, all.y ^ v.y, all.z ^ v.z, all.w ^ v.w};

  const std::size_t write_end = min(num_writes, (blockIdx.x + 1) * write_span);
#pragma unroll
  for (int i = 0; i < kMoveDepth; ++i) {
    const std::size_t write_idx = blockIdx.x * write_span + i * kMoveThreads + threadIdx.x;
    if (write_idx < write_end) to[write_idx] = all;
  }
}

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct DeviceBytes {
  explicit DeviceBytes(std::size_t bytes) : pointer(backend::allocate(bytes)) {}
  ~DeviceBytes() { backend::release(pointer); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  void* pointer;
};

}  // namespace

struct Timer::Impl {
  Impl() : flush_bytes(std::max<std::size_t>(backend::device().l2_bytes * 5 / 2, 1 << 20)), flush(flush_bytes) {
    // Non-blocking: work that somebody puts on the default stream must not be ordered after ours by accident.
    LADDER_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    LADDER_CUDA(cudaEventCreate(&begin));
    LADDER_CUDA(cudaEventCreate(&end));
    LADDER_CUDA(cudaHostAlloc(&gate_memory, sizeof(Gate), cudaHostAllocMapped));
    *gate_memory = {};
    LADDER_CUDA(cudaHostGetDevicePointer(&device_gate, gate_memory, 0));
  }

  ~Impl() {
    (void)cudaFreeHost(gate_memory);
    (void)cudaEventDestroy(end);
    (void)cudaEventDestroy(begin);
    (void)cudaStreamDestroy(stream);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  volatile Gate& gate() { return *gate_memory; }

  void flush_l2() {
    // Lines that an access policy window pinned would survive the overwriting.
    LADDER_CUDA(cudaCtxResetPersistingL2Cache());
    LADDER_CUDA(cudaMemsetAsync(flush.pointer, flush_byte++ & 0xFF, flush_bytes, stream));
  }

  void close_gate() {
    gate().waiting = 0;
    gate().open = 0;
    gate().timed_out = 0;
    gate_kernel<<<1, 1, 0, stream>>>(device_gate);
    LADDER_CUDA(cudaGetLastError());
  }

  Clock::time_point open_gate() {
    const Clock::time_point start = Clock::now();
    while (!gate().waiting && seconds_since(start) < 1e-9 * kGateTimeoutNs) {
    }
    const Clock::time_point opened = Clock::now();
    gate().open = 1;
    return opened;
  }

  void require_gate() {
    if (gate().timed_out) throw Failure("a launch waited for the device, so it cannot be timed");
  }

  Sample sample(const Work& work, int launches, const Work& after) {
    close_gate();
    Clock::time_point opened;
    try {
      LADDER_CUDA(cudaEventRecord(begin, stream));
      for (int i = 0; i < launches; ++i) work(stream);
      LADDER_CUDA(cudaEventRecord(end, stream));
      stamp_kernel<<<1, 1, 0, stream>>>(device_gate);
      if (after) after(stream);
      LADDER_CUDA(cudaGetLastError());
    } catch (...) {
      open_gate();
      throw;
    }
    opened = open_gate();
    LADDER_CUDA(cudaDeviceSynchronize());
    const double wall_seconds = seconds_since(opened);
    require_gate();
    float milliseconds = 0;
    LADDER_CUDA(cudaEventElapsedTime(&milliseconds, begin, end));
    Sample s{.seconds = 1e-3 * milliseconds / launches,
             .stamp_seconds = 1e-9 * static_cast<double>(gate().stamp_ns - gate().opened_ns) / launches,
             .wall_seconds = after ? 0 : wall_seconds / launches,
             .launches = launches};
    clock_kernel<<<1, 1, 0, stream>>>(device_gate);
    LADDER_CUDA(cudaStreamSynchronize(stream));
    s.sm_clock_hz = 1e9 * static_cast<double>(gate().clock_cycles) / static_cast<double>(gate().clock_ns);
    return s;
  }

  Sample cold(const Work& work, const Work& after) {
    flush_l2();
    return sample(work, 1, after);
  }

  Sample typical(const Work& work, int count) {
    std::vector<Sample> samples;
    for (int i = 0; i < count; ++i) {
      samples.push_back(cold(work, {}));
      calibration.sm_clock_hz = std::max(calibration.sm_clock_hz, samples.back().sm_clock_hz);
    }
    return median_sample(samples);
  }

  void calibrate() {
    const Work empty = [](Stream s) { empty_kernel<<<1, 1, 0, s>>>(); };
    // Load every kernel of this file, and wake up an idle GPU: its clock takes a while to rise.
    const Clock::time_point start = Clock::now();
    do {
      flush_l2();
      spin_kernel<<<1, 1, 0, stream>>>(device_gate, 1'000'000);
      empty(stream);
      stamp_kernel<<<1, 1, 0, stream>>>(device_gate);
      clock_kernel<<<1, 1, 0, stream>>>(device_gate);
      gate().open = 1;
      gate_kernel<<<1, 1, 0, stream>>>(device_gate);
      LADDER_CUDA(cudaStreamSynchronize(stream));
    } while (seconds_since(start) < 0.3);

    constexpr int kSamples = 15;
    calibration.empty = typical(empty, kSamples);
    for (const unsigned long long ns : {5'000ull, 50'000ull, 500'000ull}) {
      std::vector<double> errors;
      std::vector<double> expected;
      for (int i = 0; i < kSamples; ++i) {
        const Sample s = cold([&](Stream on) { spin_kernel<<<1, 1, 0, on>>>(device_gate, ns); }, {});
        expected.push_back(1e-9 * static_cast<double>(gate().spun_ns));
        errors.push_back(s.seconds - calibration.empty.seconds - expected.back());
      }
      calibration.spins.push_back({.expected_seconds = median(expected), .seconds = median(expected) + median(errors)});
    }

    const std::size_t copy_bytes = std::max<std::size_t>(4 * backend::device().l2_bytes, std::size_t{256} << 20);
    const DeviceBytes from(copy_bytes);
    const DeviceBytes to(copy_bytes);
    LADDER_CUDA(cudaMemset(from.pointer, 1, copy_bytes));
    const Work copy = [&](Stream on) {
      LADDER_CUDA(cudaMemcpyAsync(to.pointer, from.pointer, copy_bytes, cudaMemcpyDeviceToDevice, on));
    };
    copy(stream);
    LADDER_CUDA(cudaStreamSynchronize(stream));
    calibration.copy_bytes_per_s = 2.0 * static_cast<double>(copy_bytes) / typical(copy, 7).seconds;
    calibration.failure = fault_of(calibration, backend::device().dram_bytes_per_s);
  }

  std::size_t flush_bytes;
  DeviceBytes flush;
  int flush_byte = 0;
  cudaStream_t stream = nullptr;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  Gate* gate_memory = nullptr;
  Gate* device_gate = nullptr;
  Calibration calibration;
};

const char* Timer::unavailable() { return backend::unavailable(); }

Timer::Timer() {
  if (const char* reason = unavailable()) throw Failure(reason);
  impl_ = std::make_unique<Impl>();
  impl_->calibrate();
}

Timer::~Timer() = default;

const Calibration& Timer::calibration() const { return impl_->calibration; }

void Timer::run(const Work& work) {
  work(impl_->stream);
  backend::synchronize();
}

Work Timer::delay(double seconds) const {
  const auto cycles = static_cast<long long>(seconds * impl_->calibration.sm_clock_hz);
  return [cycles](Stream stream) { delay_kernel<<<1, 1, 0, stream>>>(cycles); };
}

Work Timer::copy(void* to, const void* from, std::size_t bytes) {
  return [=](Stream stream) { LADDER_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream)); };
}

Work Timer::streaming_kernel(void* to, std::size_t write_bytes, const void* from, std::size_t read_bytes) {
  const auto ceil_div = [](std::size_t a, std::size_t b) { return (a + b - 1) / b; };
  const std::size_t num_writes = ceil_div(write_bytes, sizeof(uint4));
  const std::size_t num_reads = ceil_div(read_bytes, sizeof(uint4));
  const std::size_t num_blocks = std::max<std::size_t>(ceil_div(std::max(num_writes, num_reads), kMoveSpan), 1);
  // Spans are whole lines of 128 bytes, so that no two blocks share a line. At most kMoveSpan, which is a multiple of a
  // line.
  const auto span = [&](std::size_t count) {
    constexpr std::size_t kLine = 128 / sizeof(uint4);
    return kLine * ceil_div(count, num_blocks * kLine);
  };
  return [=, write_span = span(num_writes), read_span = span(num_reads)](Stream stream) {
    move_kernel<<<static_cast<unsigned>(num_blocks), kMoveThreads, 0, stream>>>(
        static_cast<uint4*>(to), num_writes, write_span, static_cast<const uint4*>(from), num_reads, read_span);
    LADDER_CUDA(cudaGetLastError());
  };
}

Sample Timer::cold(const Work& work, const Work& after) { return impl_->cold(work, after); }

Sample Timer::warm(const Work& work, int launches, const Work& after) {
  work(impl_->stream);
  return impl_->sample(work, launches, after);
}

}  // namespace ladder
