// The machine that kernels run on, the same for both builds: core/backend_cuda.cpp drives a GPU, core/simt/backend.cpp
// the emulator. Only core/ knows which one was linked.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/stream.h"

namespace ladder::backend {

enum class Kind { gpu, emulator };

Kind kind();

// Null if kernels can run here, else the reason in one line ("no CUDA device: ..."). Never throws.
const char* unavailable();

struct DeviceInfo {
  std::string name;  // "NVIDIA H200", "emulator"
  std::string slug;  // "h200", "emulator": for file names
  int arch = 0;      // compute capability times ten: 90; the emulator answers 90
  int num_sms = 0;
  int sm_clock_khz = 0;  // highest SM clock the device announces
  std::size_t l2_bytes = 0;
  double dram_bytes_per_s = 0;  // bus width times data rate: no kernel can be faster
  std::string uuid;
  std::string driver;  // "13.0" as cudaDriverGetVersion has it
  std::string runtime;
};
// Everything below is of the calling thread's current device, which is number 0 until use_device().
int num_devices();                     // those that this process sees
int current_device();                  // its number
void use_device(int number);           // throws UsageError where there is no such device
const DeviceInfo& device(int number);  // asked of the driver once; throws Failure where there is none
const DeviceInfo& device();

// Device memory, at least 256-byte aligned. Throw Failure when there is none left or the device faulted.
void* allocate(std::size_t bytes);
void release(void* pointer) noexcept;
// What the emulator's reports call [begin, begin + bytes), until its buffer is released. Nothing on a GPU.
void name_memory(const void* begin, std::size_t bytes, const std::string& name);
void copy_in(void* device_pointer, const void* host, std::size_t bytes);   // synchronous
void copy_out(void* host, const void* device_pointer, std::size_t bytes);  // synchronous, after all work
void copy(void* to, const void* from, std::size_t bytes);                  // on the device; synchronous
void set_bytes(void* device_pointer, int byte, std::size_t bytes);         // synchronous
void peek(void* host, const void* device_pointer, std::size_t bytes);      // as copy_out, but waits for no work
void poke(void* device_pointer, const void* host, std::size_t bytes);      // as copy_in, but waits for no work
void synchronize();  // waits for all work; throws Failure with the launch error, if there was one

// The stream that checks give to versions. It does not wait for the default stream, nor the default stream for it.
Stream check_stream();

// Keeps back what is enqueued on check_stream() from now on until let_go(): work that runs in between was not enqueued
// there. Nothing can be kept back on the emulator, where launches run at once.
void hold();
// Returns false if something had to wait for the held stream, which then went ahead by itself.
bool let_go();

// The orders of running a kernel's threads that a test should try: "asc", "desc", "random:1", ... on the emulator, and
// only its own, "gpu", on a GPU.
std::vector<std::string> schedules();
std::string schedule();  // the one that launches run under now
// For all launches until the next call; the emulator takes other seeds as well. Throws UsageError for an unknown one.
void set_schedule(const std::string& schedule);

}  // namespace ladder::backend
