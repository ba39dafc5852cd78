// Deliberately broken kernels. Each file beside this one holds one kernel with one fault, switched by a template
// parameter, so that the broken kernel and its correct twin differ in nothing else.
#pragma once

#include <bit>
#include <cstring>
#include <vector>

#include "core/backend.h"
#include "core/device.h"

namespace ladder::faults {

// What has to catch a fault. Several may; every one that is named must.
struct Detectors {
  bool value = false;   // a wrong result under at least one schedule
  bool report = false;  // the emulator's Fault, under every schedule
  bool asan = false;
  bool tsan = false;
};

struct Entry {
  const char* name;
  const char* fault;  // in words
  Detectors detectors;
  bool (*run)(bool broken);  // launches the kernel; true if its result is right
};

bool add(const Entry& entry);
const std::vector<Entry>& all();  // by name

// Device memory with an end that is watched: by AddressSanitizer where it is there, else by a guard band.
template <class T>
class Guarded {
 public:
  explicit Guarded(std::size_t count, T value = T{})
      : count_(count), data_(static_cast<T*>(backend::allocate(bytes()))) {
    std::memset(static_cast<void*>(data_), kGuard, bytes());
    for (std::size_t i = 0; i < count; ++i) data_[i] = value;
  }
  ~Guarded() { backend::release(data_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  T* get() { return data_; }
  T& operator[](std::size_t i) { return data_[i]; }
  bool intact() const {
    const auto* byte = reinterpret_cast<const unsigned char*>(data_);
    for (std::size_t i = count_ * sizeof(T); i < bytes(); ++i) {
      if (byte[i] != kGuard) return false;
    }
    return true;
  }

 private:
  static constexpr unsigned char kGuard = 0xa5;
#if defined(LADDER_ASAN)
  static constexpr std::size_t kGuardBytes = 0;
#else
  static constexpr std::size_t kGuardBytes = 256;
#endif
  std::size_t bytes() const { return count_ * sizeof(T) + kGuardBytes; }

  std::size_t count_;
  T* data_;
};

}  // namespace ladder::faults

#define LADDER_FAULT(name, words, detectors, run)                                       \
  namespace {                                                                           \
  [[maybe_unused]] const bool ladder_fault_added =                                      \
      ::ladder::faults::add({name, words, ::ladder::faults::Detectors detectors, run}); \
  }
