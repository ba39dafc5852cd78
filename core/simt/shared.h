// Shared memory for kernels: the emulator's side of the two macros that core/device.h documents.
#pragma once

#include "core/simt/runtime.h"

// The type is wrapped in a struct so that alignas in front of it keeps its meaning.
#define LADDER_SHARED(type, name, extents)                                                                     \
  struct name##_shared {                                                                                       \
    type value extents;                                                                                        \
  };                                                                                                           \
  static constinit const char* name##_key = #name;                                                             \
  [[maybe_unused]] auto& name =                                                                                \
      static_cast<name##_shared*>(                                                                             \
          ::ladder::simt::detail::shared_variable(&name##_key, sizeof(name##_shared), alignof(name##_shared))) \
          ->value

#define LADDER_DYN_SMEM(name) unsigned char* const name = ::ladder::simt::detail::current->dynamic_smem
