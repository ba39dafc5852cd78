// core/backend.h for the emulator.
#include "core/backend.h"

#include <fmt/format.h>

#include <cstring>

#include "core/error.h"
#include "core/read_only.h"
#include "core/simt/memory.h"
#include "core/simt/options.h"
#include "core/simt/stream.h"

namespace ladder::backend {

Kind kind() { return Kind::emulator; }

const char* unavailable() { return nullptr; }

int num_devices() { return 1; }

int current_device() { return 0; }

void use_device(int number) {
  if (number != 0) throw UsageError(fmt::format("no device {}: the emulator is number 0 and the only one", number));
}

const DeviceInfo& device(int number) {
  if (number != 0) throw Failure(fmt::format("no device {}: the emulator is number 0 and the only one", number));
  static const DeviceInfo info = [] {
    DeviceInfo emulator;
    emulator.name = "emulator";
    emulator.slug = "emulator";
    emulator.arch = 90;
    // A small card, so that kernels which size themselves by it (persistent blocks, slabs that fit L2) take several
    // rounds even at the tests' sizes.
    emulator.num_sms = 4;
    emulator.l2_bytes = 256 * 1024;
    return emulator;
  }();
  return info;
}

const DeviceInfo& device() { return device(0); }

void* allocate(std::size_t bytes) { return simt::allocate_memory(bytes); }

void release(void* pointer) noexcept {
  simt::run_all_streams();  // as cudaFree() does
  simt::release_memory(pointer);
}

void name_memory(const void* begin, std::size_t bytes, const std::string& name) {
  simt::name_memory(begin, bytes, name);
}

void set_read_only(void* pointer, bool read_only) { simt::set_read_only(pointer, read_only); }

void copy_in(void* device_pointer, const void* host, std::size_t bytes) {
  std::memcpy(device_pointer, host, bytes);
  synchronize();
}

void copy_out(void* host, const void* device_pointer, std::size_t bytes) {
  synchronize();
  std::memcpy(host, device_pointer, bytes);
}

void copy(void* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
  synchronize();
}

void set_bytes(void* device_pointer, int byte, std::size_t bytes) {
  std::memset(device_pointer, byte, bytes);
  synchronize();
}

void peek(void* host, const void* device_pointer, std::size_t bytes) { std::memcpy(host, device_pointer, bytes); }

void poke(void* device_pointer, const void* host, std::size_t bytes) { std::memcpy(device_pointer, host, bytes); }

Stream check_stream() { return nullptr; }

void hold() {}

bool let_go() { return true; }

std::vector<std::string> schedules() { return {"asc", "desc", "random:1", "greedy:1", "greedy:2", "late:1"}; }

std::string schedule() { return simt::options().str(); }

void set_schedule(const std::string& schedule) {
  synchronize();
  simt::options().set_schedule(schedule);
}

void synchronize() { simt::synchronize_streams(); }

}  // namespace ladder::backend
