// Which versions a training and its sampler run: those that are promoted for the device, less those that are held back, and
// what --use names in their place.
#pragma once

#include <string>

#include "core/dtype.h"
#include "runtime/promoted.h"

namespace ladder::train {

// `use` is --use's text, or empty. Throws UsageError.
Promotions chosen_versions(Dtype dtype, const std::string& use);

}  // namespace ladder::train
