// Refused: keeps ladder::num_launches
#include "core/device.h"

namespace ladder {

__device__ int num_launches = 0;

__global__ void count_kernel() { ++num_launches; }

}  // namespace ladder
