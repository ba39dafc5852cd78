#include <algorithm>

#include "tests/wrong/conv3x3/problems.h"
#include "tests/wrong/wrong.h"

namespace ladder::conv3x3 {
namespace {

using Tensors = WgradBatch::Tensors;

// The honest version with some of its tensors exchanged.
template <void (*kExchange)(int batch, Tensors&)>
void exchanged(const Problem& p, const Tensors& t, void* workspace, Stream stream) {
  Tensors others = t;
  kExchange(p.batch, others);
  wrong::launch_honest<WgradBatch>(p, others, workspace, stream);
}

// Takes the first layer's x for all.
void x_of_first(int batch, Tensors& t) { std::fill_n(t.x, batch, t.x[0]); }

// Takes the next layer's dy.
void neighbours_dy(int batch, Tensors& t) { std::rotate(t.dy, t.dy + 1, t.dy + batch); }

// Writes dbias to the layer before.
void neighbours_dbias(int batch, Tensors& t) { std::rotate(t.dbias, t.dbias + 1, t.dbias + batch); }

// Leaves the last layer's dw as it was.
void without_last(const Problem& p, const Tensors& t, void* workspace, Stream stream) {
  Problem fewer = p;
  fewer.batch = p.batch - 1;
  wrong::launch_honest<WgradBatch>(fewer, t, workspace, stream);
}

}  // namespace

LADDER_CHEATS(WgradBatch, {"n1 h8 w8 c16 k16 batch2", "n2 h8 w8 c16 k24 bias batch3", "n1 h7 w9 c21 k13 bias batch8"},
              {
                  wrong::honest<WgradBatch>(),
                  {.name = "x_of_first", .launch = exchanged<x_of_first>},
                  {.name = "neighbours_dy", .launch = exchanged<neighbours_dy>},
                  {.name = "neighbours_dbias", .launch = exchanged<neighbours_dbias>},
                  {.name = "without_last", .launch = without_last},
              })

}  // namespace ladder::conv3x3
