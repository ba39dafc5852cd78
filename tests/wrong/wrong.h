// Shared code of the cheats written for one pass. tests/wrong/<layer>/<pass>.cu holds a pass's cheats: the layer's
// honest version spoiled in ways that only this pass has, and their list. Faults that any pass can have are in
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
#include "tests/wrong/cheat.h"

namespace ladder::wrong {

// Call cheat(view, index) for every index below view.count().
template <class View, class Cheat>
__global__ void wrong_kernel(View view, Cheat cheat) {
  const long long index = blockIdx.x * static_cast<long long>(kThreads) + threadIdx.x;
  if (index < view.count()) cheat(view, index);
}

inline unsigned num_blocks(long long count) { return static_cast<unsigned>((count + kThreads - 1) / kThreads); }

// Entry of a pass's list of cheats.
template <class P>
struct Entry {
  const char* name;
  void (*launch)(const typename P::Problem&, const typename P::Tensors&, void* workspace, Stream stream);
  std::vector<Dtype> dtypes = {Dtype::f32, Dtype::bf16, Dtype::f16};
};

// A kernel's view of pass P, with element type T behind the tensors' void pointers.
template <class P, class T>
struct Typed {
  typename P::Problem p;
  typename P::Tensors t;
  long long threads;

  __host__ __device__ long long count() const { return threads; }
  __device__ float load(const void* tensor, long long i) const { return to_float(static_cast<const T*>(tensor)[i]); }
  __device__ float load(const float* tensor, long long i) const { return tensor[i]; }
  __device__ void store(void* tensor, long long i, float value) const {
    static_cast<T*>(tensor)[i] = from_float<T>(value);
  }
  __device__ void store(float* tensor, long long i, float value) const { tensor[i] = value; }
  __device__ float rounded(float value) const { return to_float(from_float<T>(value)); }
};

// Enqueue cheat(Typed, i) for every i below `count`.
template <class P, class Cheat>
void launch_each(const typename P::Problem& p, const typename P::Tensors& t, Stream stream, long long count,
                 const Cheat& cheat) {
  with_storage_type(p.dtype, [&](auto element) {
    using V = Typed<P, decltype(element)>;
    launch(wrong_kernel<V, Cheat>, {.grid = num_blocks(count), .block = kThreads}, stream, V{p, t, count}, cheat);
  });
}

// Plan of the layer's honest version, which is the one with the lowest number.
template <class P>
KernelPlan<P> honest_plan(const typename P::Problem& p) {
  return version_of<P>(versions_of(pass_of<P>()).front()->number).plans(p).front();
}

template <class P>
void launch_honest(const typename P::Problem& p, const typename P::Tensors& t, void* workspace, Stream stream) {
  honest_plan<P>(p).bind(t, workspace)(stream);
}

// Number of copies of every tensor that a cheat's workspace has room for, after the honest version's workspace.
constexpr std::size_t kCopies = 5;

template <class P>
std::size_t honest_bytes(const typename P::Problem& p) {
  return aligned(honest_plan<P>(p).workspace_bytes);
}

template <class P>
void* room_for_copies(const typename P::Problem& p, void* workspace) {
  return static_cast<char*>(workspace) + honest_bytes<P>(p);
}

template <class P>
Entry<P> honest() {
  return {.name = "honest", .launch = launch_honest<P>};
}

// A kernel in place of the honest version: Cheat{}(Typed, i) for every i below kCount, a member or function of the
// problem. If a kernel has several faults to choose from, the pass's honest entry is that kernel without a fault, so
// that each fault is caught by itself.
template <class P, auto kCount, class Cheat>
Entry<P> other_kernel(const char* name) {
  return {.name = name, .launch = [](const typename P::Problem& p, const typename P::Tensors& t, void*, Stream stream) {
            launch_each<P>(p, t, stream, std::invoke(kCount, p), Cheat{});
          }};
}

// The honest version, then Cheat{}(Typed, i) for every i below kCount.
template <class P, auto kCount, class Cheat>
Entry<P> spoiled_output(const char* name) {
  return {.name = name,
          .launch = [](const typename P::Problem& p, const typename P::Tensors& t, void* workspace, Stream stream) {
            launch_honest<P>(p, t, workspace, stream);
            launch_each<P>(p, t, stream, std::invoke(kCount, p), Cheat{});
          }};
}

template <class Element, class Cheat>
struct Fill {
  Element* to;
  Cheat cheat;

  template <class View>
  __device__ void operator()(const View& view, long long i) const {
    if constexpr (std::is_void_v<Element>) {
      view.store(to, i, cheat(view, i));
    } else {
      to[i] = cheat(view, i);
    }
  }
};

struct Zero {
  __device__ float operator()(const auto&, long long) const { return 0.0f; }
};

// Element type of a tensor pointer, without const.
template <class P, auto kTensor>
using ElementOf = std::remove_const_t<
    std::remove_pointer_t<std::remove_cvref_t<decltype(std::declval<typename P::Tensors>().*kTensor)>>>;

// The honest version on another input: a member of the tensors, whose element i is Cheat{}(Typed, i).
template <class P, auto kInput, auto kCount, class Cheat>
Entry<P> spoiled_input(const char* name) {
  return {.name = name,
          .launch = [](const typename P::Problem& p, const typename P::Tensors& t, void* workspace, Stream stream) {
            using Element = ElementOf<P, kInput>;
            auto* const spoiled = static_cast<Element*>(room_for_copies<P>(p, workspace));
            launch_each<P>(p, t, stream, std::invoke(kCount, p), Fill<Element, Cheat>{spoiled, {}});
            typename P::Tensors others = t;
            others.*kInput = spoiled;
            launch_honest<P>(p, others, workspace, stream);
          }};
}

template <auto kInput, class Index>
struct MovedFrom {
  __device__ float operator()(const auto& v, long long i) const {
    return v.t.*kInput ? v.load(v.t.*kInput, Index{}(v.p, i)) : 0.0f;
  }
};

// The honest version on an input whose element i is the original element Index{}(problem, i).
template <class P, auto kInput, auto kCount, class Index>
constexpr auto moved_input = spoiled_input<P, kInput, kCount, MovedFrom<kInput, Index>>;

template <auto kOutput, class From, class Index>
struct MoveTo {
  const From* from;

  __device__ void operator()(const auto& v, long long i) const {
    v.store(v.t.*kOutput, Index{}(v.p, i), v.load(from, i));
  }
};

// The honest version with an output's element i moved to index Index{}(problem, i).
template <class P, auto kOutput, auto kCount, class Index>
Entry<P> moved_output(const char* name) {
  return {.name = name,
          .launch = [](const typename P::Problem& p, const typename P::Tensors& t, void* workspace, Stream stream) {
            if (!(t.*kOutput)) return launch_honest<P>(p, t, workspace, stream);
            using Element = ElementOf<P, kOutput>;
            auto* const from = static_cast<Element*>(room_for_copies<P>(p, workspace));
            typename P::Tensors others = t;
            others.*kOutput = from;
            launch_honest<P>(p, others, workspace, stream);
            launch_each<P>(p, t, stream, std::invoke(kCount, p), MoveTo<kOutput, Element, Index>{from});
          }};
}

// The honest version on another problem, or on other tensors.
template <class P, auto kSpoil>
Entry<P> spoiled_problem(const char* name) {
  return {.name = name,
          .launch = [](const typename P::Problem& p, const typename P::Tensors& t, void* workspace, Stream stream) {
            typename P::Problem problem = p;
            typename P::Tensors tensors = t;
            if constexpr (std::is_invocable_v<decltype(kSpoil), typename P::Problem&>) {
              kSpoil(problem);
            } else {
              kSpoil(problem, tensors);
            }
            launch_honest<P>(problem, tensors, workspace, stream);
          }};
}

// Restrict an entry to these dtypes.
template <class P>
Entry<P> only(std::vector<Dtype> dtypes, Entry<P> entry) {
  entry.dtypes = std::move(dtypes);
  return entry;
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
        [](const Case& c) { return honest_bytes<P>(problem_of<P>(c)) + kCopies * all_bytes(c); }));
  }
  corpora().push_back(std::move(corpus));
  return true;
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
