// What the cheats of one pass share, whatever their layer. Those of a pass are tests/wrong/<layer>/<pass>.cu: the layer's
// honest version spoiled in ways that only this pass has, and a list of them all. What can be wrong with any pass is in
// tests/wrong/generic.cu.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/backend.h"
#include "core/check/check.h"
#include "core/numeric.h"
#include "tests/wrong/corpora.h"

namespace ladder::wrong {

constexpr int kThreads = 64;

// Cheat::operator()(view, index) is called for every output element: every index below view.count().
template <class View, class Cheat>
__global__ void wrong_kernel(View view, Cheat cheat) {
  const long long index = blockIdx.x * static_cast<long long>(kThreads) + threadIdx.x;
  if (index < view.count()) cheat(view, index);
}

inline unsigned num_blocks(long long count) { return static_cast<unsigned>((count + kThreads - 1) / kThreads); }

// View<T>(problem, tensors, workspace) is what a kernel sees of pass P, stored as T.
template <class P, template <class> class View, class Cheat>
void launch_with(const typename P::Problem& p, const typename P::Tensors& t, void* workspace, Stream stream,
                 const LaunchConfig& config) {
  with_storage_type(p.dtype, [&](auto element) {
    using V = View<decltype(element)>;
    launch(wrong_kernel<V, Cheat>, config, stream, V(p, t, workspace), Cheat{});
  });
}

template <class P, template <class> class View, class Cheat>
void launch_cheat(const typename P::Problem& p, const typename P::Tensors& t, void* workspace, Stream stream) {
  const long long count = View<float>(p, t, workspace).count();
  launch_with<P, View, Cheat>(p, t, workspace, stream, {.grid = num_blocks(count), .block = kThreads});
}

// One of a pass's list.
template <class P>
struct Entry {
  const char* name;
  void (*launch)(const typename P::Problem&, const typename P::Tensors&, void* workspace, Stream stream);
  std::size_t (*workspace_bytes)(const typename P::Problem&) = nullptr;
  std::vector<Dtype> dtypes = {Dtype::f32, Dtype::bf16, Dtype::f16};
};

// What a kernel sees of pass P that has no View of its own: void pointers among the tensors are of T.
template <class P, class T>
struct Typed {
  typename P::Problem p;
  typename P::Tensors t;
  long long threads;

  __host__ __device__ long long count() const { return threads; }
  __device__ float load(const void* tensor, long long i) const { return to_float(static_cast<const T*>(tensor)[i]); }
  __device__ void store(void* tensor, long long i, float value) const {
    static_cast<T*>(tensor)[i] = from_float<T>(value);
  }
};

// Enqueues cheat(Typed, i) for every i below `count`.
template <class P, class Cheat>
void launch_each(const typename P::Problem& p, const typename P::Tensors& t, Stream stream, long long count,
                 const Cheat& cheat) {
  with_storage_type(p.dtype, [&](auto element) {
    using V = Typed<P, decltype(element)>;
    launch(wrong_kernel<V, Cheat>, {.grid = num_blocks(count), .block = kThreads}, stream, V{p, t, count}, cheat);
  });
}

// The layer's honest version: that of the lowest number.
template <class P>
KernelPlan<P> honest_plan(const typename P::Problem& p) {
  return version_of<P>(versions_of(pass_of<P>()).front()->number).plans(p).front();
}

template <class P>
void launch_honest(const typename P::Problem& p, const typename P::Tensors& t, void* workspace, Stream stream) {
  honest_plan<P>(p).bind(t, workspace)(stream);
}

template <class P>
std::size_t honest_bytes(const typename P::Problem& p) {
  return (honest_plan<P>(p).workspace_bytes + 255) / 256 * 256;
}

template <class P>
Entry<P> honest() {
  return {.name = "honest", .launch = launch_honest<P>, .workspace_bytes = honest_bytes<P>};
}

// The honest version, then Cheat{}(Typed, i) for every i below kCount, a member or function of the problem.
template <class P, auto kCount, class Cheat>
Entry<P> spoiled_output(const char* name) {
  return {.name = name,
          .launch =
              [](const typename P::Problem& p, const typename P::Tensors& t, void* workspace, Stream stream) {
                launch_honest<P>(p, t, workspace, stream);
                launch_each<P>(p, t, stream, std::invoke(kCount, p), Cheat{});
              },
          .workspace_bytes = honest_bytes<P>};
}

template <class Element, class Cheat>
struct Fill {
  Element* to;

  template <class View>
  __device__ void operator()(const View& view, long long i) const {
    to[i] = Cheat{}(view, i);
  }
};

// The honest version on another input: a member of the tensors, whose element i is Cheat{}(Typed, i).
template <class P, auto kInput, auto kCount, class Cheat>
Entry<P> spoiled_input(const char* name) {
  using Tensors = typename P::Tensors;
  using Element = std::remove_cvref_t<decltype(*(std::declval<Tensors>().*kInput))>;
  return {.name = name,
          .launch =
              [](const typename P::Problem& p, const Tensors& t, void* workspace, Stream stream) {
                auto* const spoiled = reinterpret_cast<Element*>(static_cast<char*>(workspace) + honest_bytes<P>(p));
                launch_each<P>(p, t, stream, std::invoke(kCount, p), Fill<Element, Cheat>{spoiled});
                Tensors others = t;
                others.*kInput = spoiled;
                launch_honest<P>(p, others, workspace, stream);
              },
          .workspace_bytes =
              [](const typename P::Problem& p) {
                return honest_bytes<P>(p) + static_cast<std::size_t>(std::invoke(kCount, p)) * sizeof(Element);
              }};
}

// The honest version on another problem.
template <class P, void (*kSpoil)(typename P::Problem&)>
Entry<P> spoiled_problem(const char* name) {
  return {.name = name,
          .launch =
              [](const typename P::Problem& p, const typename P::Tensors& t, void* workspace, Stream stream) {
                typename P::Problem other = p;
                kSpoil(other);
                launch_honest<P>(other, t, workspace, stream);
              },
          .workspace_bytes = honest_bytes<P>};
}

template <class P>
bool add_cheats(std::vector<std::string> problems, const std::vector<Entry<P>>& entries) {
  Corpus corpus{.pass = &pass_of<P>(), .problems = std::move(problems)};
  for (const Entry<P>& entry : entries) {
    corpus.cheats.push_back(make_cheat(
        *corpus.pass, 'w', static_cast<int>(corpus.cheats.size()) + 1, entry.name, entry.dtypes,
        [entry](const Case& c, void* const* pointers, void* workspace, Stream stream) {
          entry.launch(problem_of<P>(c), P::bind(Pointers(c.tensors, pointers)), workspace, stream);
        },
        [entry](const Case& c) {
          return entry.workspace_bytes ? entry.workspace_bytes(problem_of<P>(c)) : std::size_t{0};
        }));
  }
  return add(std::move(corpus));
}

struct Release {
  void operator()(void* pointer) const { backend::release(pointer); }
};

}  // namespace ladder::wrong

// LADDER_CHEATS(pass, problems to try them on, {{.name = "honest", .launch = ...}, ...}): the first must be honest.
#define LADDER_CHEATS(P, problems, ...)                                                              \
  namespace {                                                                                        \
  [[maybe_unused]] const bool ladder_cheats = ::ladder::wrong::add_cheats<P>(problems, __VA_ARGS__); \
  }
