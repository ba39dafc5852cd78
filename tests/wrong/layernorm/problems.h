// Problems for the cheats of layernorm.
#pragma once

#include <string>
#include <vector>

#include "dev/layernorm/layernorm.h"

namespace ladder::layernorm {

// Problems: a benign one; a large mean; an odd row length with an epsilon that counts; rows of more than one tile.
inline std::vector<std::string> wrong_problems() { return {"m6 n64", "m4 n80 mean20000", "m5 n33 eps0.5", "m3 n300"}; }

__device__ inline int row_of(const Problem& p, long long index) { return static_cast<int>(index / p.n); }
__device__ inline int column_of(const Problem& p, long long index) { return static_cast<int>(index % p.n); }

}  // namespace ladder::layernorm
