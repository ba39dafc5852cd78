// Which versions programs run: those that are promoted for the device, less those that are held back, and
// what --use names in their place.
#pragma once

#include <string>
#include <vector>

#include "core/dtype.h"
#include "runtime/program.h"
#include "runtime/promoted.h"

namespace ladder {

// `use` is --use's text, or empty. `layers` are those whose versions the program has, if not all. Throws UsageError.
Promotions chosen_versions(Dtype dtype, const std::string& use, const std::vector<std::string>& layers = {});

// Prints a line an operation: its layer, pass, problem, version and why that one.
void explain(const Program& program);

}  // namespace ladder
