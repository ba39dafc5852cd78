// Whether the tests see enough of a version.
#pragma once

#include <string>

#include "core/registry.h"

namespace ladder::test {

// Empty, or that the version runs too few of the problems of [ci] and of random ones: a kernel is made for a layer, not for
// one shape of it.
std::string too_narrow(const Version& v);

// Empty, or a problem of any set whose default plan is that of no problem of [ci] and [edge], so that no test runs it.
std::string untested_plan(const Version& v);

}  // namespace ladder::test
