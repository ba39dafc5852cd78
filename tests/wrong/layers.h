// Cheats of the passes that do several layers' work in one launch (wgrad_batch): tensors of the wrong layer.
#pragma once

#include <algorithm>

#include "tests/wrong/wrong.h"

namespace ladder::wrong {

// The honest version with some of its tensors exchanged.
template <class P, void (*kExchange)(int batch, typename P::Tensors&)>
void exchanged(const typename P::Problem& p, const typename P::Tensors& t, void* workspace, Stream stream) {
  typename P::Tensors others = t;
  kExchange(p.batch, others);
  launch_honest<P>(p, others, workspace, stream);
}

// Takes the first layer's x for all.
template <class P>
void x_of_first(int batch, typename P::Tensors& t) {
  std::fill_n(t.x, batch, t.x[0]);
}

// Takes the next layer's dy.
template <class P>
void neighbours_dy(int batch, typename P::Tensors& t) {
  std::rotate(t.dy, t.dy + 1, t.dy + batch);
}

// Writes dbias to the layer before.
template <class P>
void neighbours_dbias(int batch, typename P::Tensors& t) {
  std::rotate(t.dbias, t.dbias + 1, t.dbias + batch);
}

// Leaves the last layer's dw as it was.
template <class P>
void without_last(const typename P::Problem& p, const typename P::Tensors& t, void* workspace, Stream stream) {
  typename P::Problem fewer = p;
  fewer.batch = p.batch - 1;
  launch_honest<P>(fewer, t, workspace, stream);
}

template <class P>
std::vector<Entry<P>> wrong_layers() {
  return {
      honest<P>(),
      {.name = "x_of_first", .launch = exchanged<P, x_of_first<P>>},
      {.name = "neighbours_dy", .launch = exchanged<P, neighbours_dy<P>>},
      {.name = "neighbours_dbias", .launch = exchanged<P, neighbours_dbias<P>>},
      {.name = "without_last", .launch = without_last<P>},
  };
}

}  // namespace ladder::wrong
