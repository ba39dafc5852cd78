// Does the work of one launch in the next, outside the time that is taken of it.
#include "tests/wrong/conv3x3/fprop/fprop.h"

#include <optional>

namespace ladder::conv3x3::fprop_wrong {
namespace {

struct Debt {
  Problem problem;
  Fprop::Tensors tensors;
};

bool same_buffers(const Fprop::Tensors& a, const Fprop::Tensors& b) {
  return a.x == b.x && a.w == b.w && a.bias == b.bias && a.y == b.y;
}

void launch_later(const Problem& p, const Fprop::Tensors& t, void* workspace, Stream stream) {
  static std::optional<Debt> debt;
  // Other buffers may be gone.
  if (debt && debt->problem == p && same_buffers(debt->tensors, t)) {
    launch_cheat<Spoiled<Honest>>(debt->problem, debt->tensors, workspace, stream);
  }
  debt = {p, t};
}

}  // namespace

LADDER_VERSION(Fprop, {.launch = launch_later, .dtypes = stored_dtypes()})

}  // namespace ladder::conv3x3::fprop_wrong
