// Cheats that take one layout of q, k and v for another.
#include "dev/attention/attention.h"
#include "tests/wrong/wrong.h"

namespace ladder::attention {
namespace {

std::vector<std::string> layouts() {
  return {
      "n1 t21 heads2 d32 order-new", "n2 t20 heads3 d32 separate",
      "n1 t20 heads2 d32 separate q_head640 q_token32 v_image3840 v_token192 d_o_image1280 d_o_head640 d_o_token32"};
}

void legacy_order(Problem& p) {
  if (p.packed()) p.layout = QkvLayout::legacy;
}
void k_as_q(Problem& p) { p.k = p.q; }
void v_as_k(Problem& p) { p.v = p.k; }
void d_o_as_o(Problem& p) { p.d_o = {}; }

// Takes [n, t, heads, d] for [n, heads, t, d].
void heads_first(Problem& p) {
  if (p.v == Strides{}) p.v = {.image = p.t * p.c(), .head = p.t * p.d, .token = p.d};
}

}  // namespace

namespace forward_layouts {
LADDER_CHEATS(Forward, layouts(),
              {
                  wrong::honest<Forward>(),
                  wrong::spoiled_problem<Forward, legacy_order>("legacy_order"),
                  wrong::spoiled_problem<Forward, k_as_q>("k_as_q"),
                  wrong::spoiled_problem<Forward, v_as_k>("v_as_k"),
                  wrong::spoiled_problem<Forward, heads_first>("heads_first"),
              })
}  // namespace forward_layouts

namespace backward_layouts {
LADDER_CHEATS(Backward, layouts(),
              {
                  wrong::honest<Backward>(),
                  wrong::spoiled_problem<Backward, legacy_order>("legacy_order"),
                  wrong::spoiled_problem<Backward, k_as_q>("k_as_q"),
                  wrong::spoiled_problem<Backward, v_as_k>("v_as_k"),
                  wrong::spoiled_problem<Backward, heads_first>("heads_first"),
                  wrong::spoiled_problem<Backward, d_o_as_o>("d_o_as_o"),
              })
}  // namespace backward_layouts

}  // namespace ladder::attention
