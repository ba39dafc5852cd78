#include "dev/conv3x3/conv3x3.h"
#include "tests/wrong/layers.h"

namespace ladder::conv3x3 {

LADDER_CHEATS(WgradBatch, {"n1 h8 w8 c16 k16 batch2", "n2 h8 w8 c16 k24 bias batch3", "n1 h7 w9 c21 k13 bias batch8"},
              wrong::wrong_layers<WgradBatch>())

}  // namespace ladder::conv3x3
