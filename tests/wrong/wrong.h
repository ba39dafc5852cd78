// What the cheats of one pass share, whatever their layer. Those of a pass are tests/wrong/<layer>/<pass>.cu: an honest
// kernel, that kernel spoiled in ways that only this pass has, and a list of them all. What can be wrong with any pass is
// in tests/wrong/generic.cu.
#pragma once

#include <cstddef>
#include <string>
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
