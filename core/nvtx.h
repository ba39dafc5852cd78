// Named ranges for NVIDIA's profilers: `ncu --nvtx --nvtx-include "<name>/"` then sees the launches inside and no
// other.
#pragma once

#include <string>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define LADDER_HAS_NVTX 1
#endif

namespace ladder {

class NvtxRange {
 public:
#ifdef LADDER_HAS_NVTX
  explicit NvtxRange(const std::string& name) { nvtxRangePushA(name.c_str()); }
  ~NvtxRange() { nvtxRangePop(); }
#else
  explicit NvtxRange(const std::string&) {}
#endif
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;
};

}  // namespace ladder
