// Row addresses of a head's tensors. Legacy computes them from sizes alone, for qkv in the legacy order: it takes the
// fewest registers and is what the trainer runs. Strided computes them from strides, for every problem. A kernel is a
// template over its View: Legacy or Strided.
#pragma once

#include "core/device.h"
#include "dev/attention/attention.h"

namespace ladder::attention {

// Rows of one head of one image: a token's channels are at tensor[index(token)].
template <class T>
struct HeadRows {
  T* tensor;
  int first;
  int pitch;

  __device__ __forceinline__ int index(int token) const { return first + token * pitch; }
  __device__ __forceinline__ T* begin() const { return tensor + first; }
  __device__ __forceinline__ T* row(int token) const { return begin() + token * pitch; }
  __device__ __forceinline__ HeadRows from_begin() const {
    return {begin(), 0, pitch};
  }  // folds `first` into the pointer
};

// NOTE: the order of Legacy's address sums decides the machine code of kernels whose every register is in use.
struct Legacy {
  template <class T>
  using Qkv = T*;  // [n, t, heads, 3, d]
  template <class T>
  using Heads = T*;  // [n, t, heads, d]

  // Rows of q, k and v, or of their gradients. Addresses of k and v are computed from q's at each use, and so hold no
  // registers in between.
  template <class T>
  struct Parts {
    HeadRows<T> rows;
    int d;

    __device__ __forceinline__ Parts from_begin() const { return {rows.from_begin(), d}; }
    __device__ __forceinline__ T* q() const { return rows.begin(); }
    __device__ __forceinline__ T* k() const { return q() + d; }
    __device__ __forceinline__ T* v() const { return q() + 2 * d; }
    __device__ __forceinline__ T* q(int token) const { return rows.row(token); }
    __device__ __forceinline__ T* k(int token) const { return rows.row(token) + d; }
    __device__ __forceinline__ T* v(int token) const { return rows.row(token) + 2 * d; }
    __device__ __forceinline__ int q_pitch() const { return rows.pitch; }
    __device__ __forceinline__ int k_pitch() const { return rows.pitch; }
    __device__ __forceinline__ int v_pitch() const { return rows.pitch; }
  };
  template <class T>
  __device__ __forceinline__ static Parts<T> parts(T* qkv, const Sizes& p, int d, int image, int head) {
    const int pitch = 3 * p.heads * d;
    return {{qkv, image * p.t * pitch + head * 3 * d, pitch}, d};
  }
  template <class T>
  __device__ __forceinline__ static Parts<T> parts_from_image(T* qkv, const Sizes& p, int d, int image, int head) {
    const int pitch = 3 * p.heads * d;
    return {{qkv + image * p.t * pitch + head * 3 * d, 0, pitch}, d};
  }
  template <class T>
  __device__ __forceinline__ static HeadRows<T> rows(T* heads, const Sizes& p, int d, int image, int head) {
    const int pitch = p.heads * d;
    return {heads, image * p.t * pitch + head * d, pitch};
  }

  template <class T>
  static const T* inputs(const Problem&, const auto& t) {
    return static_cast<const T*>(t.qkv);
  }
  template <class T>
  static T* gradients(const Problem&, const Backward::Tensors& t) {
    return static_cast<T*>(t.dqkv);
  }
  template <class T>
  static const T* d_o(const Problem&, const Backward::Tensors& t) {
    return static_cast<const T*>(t.d_o);
  }
};

struct Strided {
  template <class T>
  struct Heads {
    T* tensor;
    Strides strides;
  };
  template <class T>
  struct Qkv {
    Heads<T> q, k, v;
  };

  template <class T>
  struct Parts {
    HeadRows<T> q_, k_, v_;

    __device__ __forceinline__ Parts from_begin() const { return {q_.from_begin(), k_.from_begin(), v_.from_begin()}; }
    __device__ __forceinline__ T* q() const { return q_.begin(); }
    __device__ __forceinline__ T* k() const { return k_.begin(); }
    __device__ __forceinline__ T* v() const { return v_.begin(); }
    __device__ __forceinline__ T* q(int token) const { return q_.row(token); }
    __device__ __forceinline__ T* k(int token) const { return k_.row(token); }
    __device__ __forceinline__ T* v(int token) const { return v_.row(token); }
    __device__ __forceinline__ int q_pitch() const { return q_.pitch; }
    __device__ __forceinline__ int k_pitch() const { return k_.pitch; }
    __device__ __forceinline__ int v_pitch() const { return v_.pitch; }
  };
  template <class T>
  __device__ __forceinline__ static Parts<T> parts(const Qkv<T>& qkv, const Sizes& p, int d, int image, int head) {
    return {rows(qkv.q, p, d, image, head), rows(qkv.k, p, d, image, head), rows(qkv.v, p, d, image, head)};
  }
  template <class T>
  __device__ __forceinline__ static Parts<T> parts_from_image(const Qkv<T>& qkv, const Sizes& p, int d, int image,
                                                              int head) {
    return parts(qkv, p, d, image, head);
  }
  template <class T>
  __device__ __forceinline__ static HeadRows<T> rows(const Heads<T>& heads, const Sizes&, int, int image, int head) {
    return {heads.tensor, image * heads.strides.image + head * heads.strides.head, heads.strides.token};
  }

  template <class T>
  static Qkv<const T> inputs(const Problem& p, const auto& t) {
    return p.packed() ? of<const T>(p, t.qkv, t.qkv, t.qkv) : of<const T>(p, t.q, t.k, t.v);
  }
  template <class T>
  static Qkv<T> gradients(const Problem& p, const Backward::Tensors& t) {
    const Problem dense = p.without_strides();
    return p.packed() ? of<T>(dense, t.dqkv, t.dqkv, t.dqkv) : of<T>(dense, t.dq, t.dk, t.dv);
  }
  template <class T>
  static Heads<const T> d_o(const Problem& p, const Backward::Tensors& t) {
    return {static_cast<const T*>(t.d_o), heads_of_d_o(p).strides};
  }

 private:
  template <class T>
  static Qkv<T> of(const Problem& p, auto* q, auto* k, auto* v) {
    const auto heads = [&](auto* tensor, int part) -> Heads<T> {
      const HeadsView view = heads_of_part(p, part);
      return {static_cast<T*>(tensor) + view.offset, view.strides};
    };
    return {heads(q, 0), heads(k, 1), heads(v, 2)};
  }
};

// Calls f(Legacy{}) or f(Strided{}), as the problem needs.
inline auto with_view(const Problem& p, const auto& f) {
  return p.layout == QkvLayout::legacy ? f(Legacy{}) : f(Strided{});
}

}  // namespace ladder::attention
