// Which versions programs run: those that are promoted for the device, less those that are held back, and
// what --use names in their place.
#pragma once

#include <string>

#include "core/dtype.h"
#include "runtime/program.h"
#include "runtime/promoted.h"

namespace ladder {

// `use` is --use's text, or empty. Throws UsageError.
Promotions chosen_versions(Dtype dtype, const std::string& use);

// Prints a line an operation: its layer, pass, problem, version and why that one.
void explain(const Program& program);

}  // namespace ladder
