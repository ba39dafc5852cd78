// CUDA's atomics, on std::atomic_ref: blocks run on several OS threads at once. All are relaxed, as on the GPU.
#pragma once

#include <atomic>
#include <concepts>

#include "core/simt/runtime.h"

namespace ladder::simt::detail {

// Replaces *address by f(*address); returns what it held before.
template <class T, class F>
T update(T* address, F f) {
  std::atomic_ref<T> target(*address);
  T old = target.load(std::memory_order_relaxed);
  while (!target.compare_exchange_weak(old, f(old), std::memory_order_relaxed)) {
  }
  acquire_fence();
  return old;
}

template <class T>
concept Integer32or64 = std::same_as<T, int> || std::same_as<T, unsigned> || std::same_as<T, unsigned long long>;

template <class T>
concept Added = Integer32or64<T> || std::same_as<T, float> || std::same_as<T, double>;

}  // namespace ladder::simt::detail

template <ladder::simt::detail::Added T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  const T old = std::atomic_ref<T>(*address).fetch_add(value, std::memory_order_relaxed);
  ladder::simt::detail::acquire_fence();
  return old;
}
template <ladder::simt::detail::Integer32or64 T>
T atomicSub(T* address, std::type_identity_t<T> value) {
  return ladder::simt::detail::update(address, [value](T old) { return old - value; });
}
template <ladder::simt::detail::Integer32or64 T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  return ladder::simt::detail::update(address, [value](T old) { return old < value ? value : old; });
}
template <ladder::simt::detail::Integer32or64 T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  return ladder::simt::detail::update(address, [value](T old) { return value < old ? value : old; });
}
template <ladder::simt::detail::Integer32or64 T>
T atomicAnd(T* address, std::type_identity_t<T> value) {
  return ladder::simt::detail::update(address, [value](T old) { return old & value; });
}
template <ladder::simt::detail::Integer32or64 T>
T atomicOr(T* address, std::type_identity_t<T> value) {
  return ladder::simt::detail::update(address, [value](T old) { return old | value; });
}
template <ladder::simt::detail::Integer32or64 T>
T atomicXor(T* address, std::type_identity_t<T> value) {
  return ladder::simt::detail::update(address, [value](T old) { return old ^ value; });
}
// Counts up to `last`, then starts again at 0.
inline unsigned atomicInc(unsigned* address, unsigned last) {
  return ladder::simt::detail::update(address, [last](unsigned old) { return old >= last ? 0 : old + 1; });
}
template <ladder::simt::detail::Added T>
T atomicExch(T* address, std::type_identity_t<T> value) {
  const T old = std::atomic_ref<T>(*address).exchange(value, std::memory_order_relaxed);
  ladder::simt::detail::acquire_fence();
  return old;
}
template <ladder::simt::detail::Integer32or64 T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  std::atomic_ref<T>(*address).compare_exchange_strong(expected, value, std::memory_order_relaxed);
  ladder::simt::detail::acquire_fence();
  return expected;
}
