// What kernels that cheat share, whatever their layer. Those of a pass lie in tests/wrong/<layer>/<pass>/, numbered like
// versions; a header beside them has an honest kernel to spoil in one way each. The first is the honest one, and its file
// says through LADDER_CHEATS whose checks are tried, and on what problems.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/backend.h"
#include "core/check.h"
#include "core/numeric.h"
#include "tests/wrong/corpora.h"

namespace ladder::wrong {

// W is P under another name, so that no benchmark or trainer ever meets its versions. They are checked as P's.
template <class W, class P>
bool add_cheats(std::vector<std::string> problems) {
  register_reference(pass_of<W>(), [](const Case& c, const HostTensors& inputs) {
    Case honest = c;
    honest.pass = &pass_of<P>();
    NamedOutputs named;
    ExpectedOutputs expected = reference_outputs(honest, inputs);
    for (std::size_t i = 0; i < expected.size(); ++i) named[written(c.tensors)[i]->name] = std::move(expected[i]);
    return named;
  });
  return add({&pass_of<W>(), &pass_of<P>(), std::move(problems)});
}

constexpr int kThreads = 64;

// Cheat::operator()(view, index) is called for every output element: every index below view.count().
template <class View, class Cheat>
__global__ void wrong_kernel(View view, Cheat cheat) {
  const long long index = blockIdx.x * static_cast<long long>(kThreads) + threadIdx.x;
  if (index < view.count()) cheat(view, index);
}

inline unsigned num_blocks(long long count) { return static_cast<unsigned>((count + kThreads - 1) / kThreads); }

// View<T>(problem, tensors, workspace) is what a kernel sees of pass W, stored as T.
template <class W, template <class> class View, class Cheat>
void launch_with(const typename W::Problem& p, const typename W::Tensors& t, void* workspace, Stream stream,
                 const LaunchConfig& config) {
  with_storage_type(p.dtype, [&](auto element) {
    using V = View<decltype(element)>;
    launch(wrong_kernel<V, Cheat>, config, stream, V(p, t, workspace), Cheat{});
  });
}

template <class W, template <class> class View, class Cheat>
void launch_cheat(const typename W::Problem& p, const typename W::Tensors& t, void* workspace, Stream stream) {
  const long long count = View<float>(p, t, workspace).count();
  launch_with<W, View, Cheat>(p, t, workspace, stream, {.grid = num_blocks(count), .block = kThreads});
}

inline std::vector<Dtype> stored_dtypes() { return {Dtype::f32, Dtype::bf16, Dtype::f16}; }

template <class Problem>
const char* needs_streams(const Problem&) {
  return backend::kind() == backend::Kind::emulator ? "the emulator has no streams" : nullptr;
}

struct Release {
  void operator()(void* pointer) const { backend::release(pointer); }
};

}  // namespace ladder::wrong

// LADDER_CHEATS(pass of the cheats, pass that they pretend to be, problems)
#define LADDER_CHEATS(W, P, ...)                                                                              \
  namespace {                                                                                                 \
  [[maybe_unused]] const bool LADDER_UNIQUE(ladder_cheats_) = ::ladder::wrong::add_cheats<W, P>(__VA_ARGS__); \
  }
