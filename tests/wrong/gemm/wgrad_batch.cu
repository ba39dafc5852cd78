#include "dev/gemm/gemm.h"
#include "tests/wrong/layers.h"

namespace ladder::gemm {

LADDER_CHEATS(WgradBatch, {"m32 n32 k32 batch2", "m24 n16 k40 bias batch3", "m33 n20 k21 bias batch8"},
              wrong::wrong_layers<WgradBatch>())

}  // namespace ladder::gemm
