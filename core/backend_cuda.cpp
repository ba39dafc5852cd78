// The backend on a GPU: the CUDA runtime.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

#include "core/backend.h"
#include "core/cuda_check.h"
#include "core/read_only.h"

namespace ladder::backend {
namespace {

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  LADDER_CUDA(cudaDeviceGetAttribute(&value, which, device));
  return value;
}

// Device name as a slug: "NVIDIA GeForce RTX 4090" gives "rtx-4090". Lower case; vendor and brand dropped; words joined
// by hyphens.
std::string slug_of(std::string name) {
  for (const char* prefix : {"NVIDIA ", "GeForce ", "Tesla "}) {
    if (name.starts_with(prefix)) name.erase(0, std::string(prefix).size());
  }
  std::string slug;
  for (const unsigned char c : name) {
    if (std::isalnum(c)) {
      slug += static_cast<char>(std::tolower(c));
    } else if (!slug.empty() && slug.back() != '-') {
      slug += '-';
    }
  }
  return slug;
}

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

// A T for each device, made by make(number) on first use. References stay valid.
template <class T>
class PerDevice {
 public:
  explicit PerDevice(T (*make)(int device)) : make_(make) {}

  const T& of(int device) {
    const std::lock_guard lock(mutex_);
    const auto found = made_.find(device);
    return found != made_.end() ? found->second : made_.emplace(device, make_(device)).first->second;
  }

 private:
  T (*make_)(int device);
  std::mutex mutex_;
  std::map<int, T> made_;
};

// Make a non-blocking stream on the current device.
Stream make_stream(int) {
  Stream stream = nullptr;
  LADDER_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

// Host-side gate that a held stream waits at. It opens after 1 s by itself: otherwise a launch that waits for the
// stream would never return.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool open = true;
  bool forced = false;

  void close() {
    const std::lock_guard lock(mutex);
    open = false;
    forced = false;
  }
  void wait() {
    std::unique_lock lock(mutex);
    forced = !changed.wait_for(lock, std::chrono::seconds(1), [&] { return open; });
  }
  bool release() {
    const std::lock_guard lock(mutex);
    open = true;
    changed.notify_all();
    return !forced;
  }
};
Gate gate;

// Copy on a separate stream, which waits for no other work, and wait for the copy.
void copy_on_separate_stream(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  static PerDevice<Stream> streams(make_stream);
  const Stream stream = streams.of(current_device());
  LADDER_CUDA(cudaMemcpyAsync(to, from, bytes, kind, stream));
  LADDER_CUDA(cudaStreamSynchronize(stream));
}

DeviceInfo query(int device) {
  if (const char* reason = unavailable()) throw Failure(reason);
  cudaDeviceProp properties{};
  LADDER_CUDA(cudaGetDeviceProperties(&properties, device));
  int driver = 0;
  int runtime = 0;
  LADDER_CUDA(cudaDriverGetVersion(&driver));
  LADDER_CUDA(cudaRuntimeGetVersion(&runtime));

  DeviceInfo info{.name = properties.name,
                  .slug = slug_of(properties.name),
                  .arch = properties.major * 10 + properties.minor,
                  .num_sms = properties.multiProcessorCount,
                  .sm_clock_khz = attribute(cudaDevAttrClockRate, device),
                  .l2_bytes = static_cast<std::size_t>(properties.l2CacheSize),
                  .uuid = "GPU",
                  .driver = version_text(driver),
                  .runtime = version_text(runtime)};
  // DRAM moves data on both edges of its clock.
  const double transfers_per_s = 2e3 * attribute(cudaDevAttrMemoryClockRate, device);
  info.dram_bytes_per_s = transfers_per_s * attribute(cudaDevAttrGlobalMemoryBusWidth, device) / 8;
  for (int i = 0; i < 16; ++i) {
    const bool group_starts = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
    info.uuid += fmt::format("{}{:02x}", group_starts ? "-" : "", static_cast<unsigned char>(properties.uuid.bytes[i]));
  }
  return info;
}

}  // namespace

Kind kind() { return Kind::gpu; }

const char* unavailable() {
  static const std::string reason = [] {
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status == cudaSuccess && count > 0) return std::string();
    (void)cudaGetLastError();
    return std::string("no CUDA device: ") + (status == cudaSuccess ? "none is visible" : cudaGetErrorString(status));
  }();
  return reason.empty() ? nullptr : reason.c_str();
}

int num_devices() {
  if (unavailable() != nullptr) return 0;
  int count = 0;
  LADDER_CUDA(cudaGetDeviceCount(&count));
  return count;
}

int current_device() {
  int number = 0;
  LADDER_CUDA(cudaGetDevice(&number));
  return number;
}

void use_device(int number) {
  if (number < 0 || number >= num_devices()) {
    throw UsageError(fmt::format("no device {}: there are {}, the first is number 0", number, num_devices()));
  }
  LADDER_CUDA(cudaSetDevice(number));
}

const DeviceInfo& device(int number) {
  static PerDevice<DeviceInfo> infos(query);
  return infos.of(number);
}

const DeviceInfo& device() {
  if (const char* reason = unavailable()) throw Failure(reason);
  return device(current_device());
}

void* allocate(std::size_t bytes) {
  void* pointer = nullptr;
  LADDER_CUDA(cudaMalloc(&pointer, std::max<std::size_t>(bytes, 1)));
  return pointer;
}

void release(void* pointer) noexcept { (void)cudaFree(pointer); }

void name_memory(const void*, std::size_t, const std::string&) {}

void set_read_only(void*, bool) {}

void copy_in(void* device_pointer, const void* host, std::size_t bytes) {
  LADDER_CUDA(cudaMemcpy(device_pointer, host, bytes, cudaMemcpyHostToDevice));
  // Pageable copies may return before the DMA to the device ends, and a non-blocking stream does not wait for it.
  LADDER_CUDA(cudaDeviceSynchronize());
}

void copy_out(void* host, const void* device_pointer, std::size_t bytes) {
  LADDER_CUDA(cudaDeviceSynchronize());
  LADDER_CUDA(cudaMemcpy(host, device_pointer, bytes, cudaMemcpyDeviceToHost));
}

void copy(void* to, const void* from, std::size_t bytes) {
  LADDER_CUDA(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice));
  LADDER_CUDA(cudaDeviceSynchronize());
}

void set_bytes(void* device_pointer, int byte, std::size_t bytes) {
  LADDER_CUDA(cudaMemset(device_pointer, byte, bytes));
  LADDER_CUDA(cudaDeviceSynchronize());
}

void peek(void* host, const void* device_pointer, std::size_t bytes) {
  copy_on_separate_stream(host, device_pointer, bytes, cudaMemcpyDeviceToHost);
}

void poke(void* device_pointer, const void* host, std::size_t bytes) {
  copy_on_separate_stream(device_pointer, host, bytes, cudaMemcpyHostToDevice);
}

Stream check_stream() {
  static PerDevice<Stream> streams(make_stream);
  return streams.of(current_device());
}

void hold() {
  gate.close();
  LADDER_CUDA(cudaLaunchHostFunc(
      check_stream(), [](void*) { gate.wait(); }, nullptr));
}

bool let_go() { return gate.release(); }

std::vector<std::string> schedules() { return {"gpu"}; }

std::string schedule() { return "gpu"; }

void set_schedule(const std::string& schedule) {
  if (schedule != "gpu") throw UsageError(fmt::format("no schedule '{}'; a GPU has only its own, 'gpu'", schedule));
}

void synchronize() {
  LADDER_CUDA(cudaGetLastError());
  LADDER_CUDA(cudaDeviceSynchronize());
}

}  // namespace ladder::backend
