// The machine that kernels run on, with the same interface in both builds: core/backend_cuda.cpp drives a GPU,
// core/simt/backend.cpp the emulator. Only core/ knows which of the two was linked.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/stream.h"

namespace ladder::backend {

enum class Kind { gpu, emulator };

Kind kind();

// Returns null if kernels can run here, else the reason in one line ("no CUDA device: ..."). Never throws.
const char* unavailable();

struct DeviceInfo {
  std::string name;  // "NVIDIA H200", "emulator"
  std::string slug;  // "h200", "emulator": for file names
  int arch = 0;      // compute capability times ten: 90; the emulator answers 90
  int num_sms = 0;
  int sm_clock_khz = 0;  // highest clock that the device reports
  std::size_t l2_bytes = 0;
  double dram_bytes_per_s = 0;  // bus width times data rate: an upper bound for any kernel
  std::string uuid;
  std::string driver;  // "13.0", from cudaDriverGetVersion
  std::string runtime;
};
// All functions below act on the calling thread's current device, which is number 0 until use_device().
int num_devices();                     // visible to this process
int current_device();                  // number of the current device
void use_device(int number);           // throws UsageError if there is no such device
const DeviceInfo& device(int number);  // cached; throws Failure if there is no such device
const DeviceInfo& device();

// Allocate and release device memory, at least 256-byte aligned. allocate() throws Failure if no memory is left or the
// device faulted.
void* allocate(std::size_t bytes);
void release(void* pointer) noexcept;
// Name [begin, begin + bytes) for the emulator's reports until its buffer is released. No effect on a GPU.
void name_memory(const void* begin, std::size_t bytes, const std::string& name);
void copy_in(void* device_pointer, const void* host, std::size_t bytes);   // synchronous
void copy_out(void* host, const void* device_pointer, std::size_t bytes);  // synchronous; waits for all work first
void copy(void* to, const void* from, std::size_t bytes);                  // on the device; synchronous
void set_bytes(void* device_pointer, int byte, std::size_t bytes);         // synchronous
void peek(void* host, const void* device_pointer, std::size_t bytes);      // copy_out without waiting for work
void poke(void* device_pointer, const void* host, std::size_t bytes);      // copy_in without waiting for work
void synchronize();  // waits for all work; throws Failure with the launch error, if any

// Stream that checks pass to versions. Non-blocking: neither it nor the default stream waits for the other.
Stream check_stream();

// Hold back work enqueued on check_stream() from now on until let_go(): work that runs in between was enqueued
// elsewhere. No effect on the emulator, where launches run at once.
void hold();
// Release the held work. Returns false if something had to wait for the held stream, which then went ahead by itself.
bool let_go();

// Thread schedules that a test should try: "asc", "desc", "random:1", ... on the emulator; only "gpu" on a GPU.
std::vector<std::string> schedules();
std::string schedule();  // the current schedule
// Set the schedule of all launches until the next call. The emulator takes other seeds too. Throws UsageError for an
// unknown schedule.
void set_schedule(const std::string& schedule);

}  // namespace ladder::backend
