#include "runtime/region.h"

#include <algorithm>
#include <utility>

#include "core/backend.h"

namespace ladder {

OwnedRegion::OwnedRegion(std::string region_name, std::size_t size) {
  name = std::move(region_name);
  bytes = std::max<std::size_t>(size, 1);
  base = backend::allocate(bytes);
  backend::set_bytes(base, 0, bytes);
}

OwnedRegion::~OwnedRegion() { backend::release(base); }

}  // namespace ladder
