// Deliberately broken kernels. Each file in this folder holds one kernel with one fault. A template parameter switches
// the fault, so that the broken kernel and its correct twin differ in nothing else.
#pragma once

#include <bit>
#include <cstddef>
#include <vector>

#include "core/backend.h"
#include "core/device.h"

namespace ladder::faults {

// Detectors that must catch a fault. Every named detector must; others may.
struct Detectors {
  bool value = false;   // a wrong result under at least one schedule
  bool report = false;  // the emulator's Fault, under every schedule
  bool asan = false;
  bool order = false;     // a race or an unset read, in a build that checks the order of accesses, under every schedule
  const char* says = "";  // words that the report must contain
  bool slow = false;      // run under one schedule only
};

struct Entry {
  const char* name;
  const char* fault;  // description
  Detectors detectors;
  bool (*run)(bool broken);  // launches the kernel; returns true if its result is right
};

bool add(const Entry& entry);
const std::vector<Entry>& all();  // sorted by name

// Device memory with a guarded end: AddressSanitizer's red zone in such a build, else an inaccessible page.
template <class T>
class Guarded {
 public:
  explicit Guarded(std::size_t count, T value = T{}, const char* name = "values")
      : memory_(backend::allocate(allocation(count))),
        data_(reinterpret_cast<T*>(static_cast<unsigned char*>(memory_) + allocation(count) - count * sizeof(T))) {
    backend::name_memory(data_, count * sizeof(T), name);
    for (std::size_t i = 0; i < count; ++i) data_[i] = value;
  }
  ~Guarded() { backend::release(memory_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  T* get() { return data_; }
  T& operator[](std::size_t i) { return data_[i]; }

 private:
  static std::size_t allocation(std::size_t count) { return (count * sizeof(T) + 255) / 256 * 256; }

  void* memory_;
  T* data_;
};

}  // namespace ladder::faults

#define LADDER_FAULT(name, words, detectors, run)                                       \
  namespace {                                                                           \
  [[maybe_unused]] const bool ladder_fault_added =                                      \
      ::ladder::faults::add({name, words, ::ladder::faults::Detectors detectors, run}); \
  }
