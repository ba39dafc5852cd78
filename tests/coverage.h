// Coverage of a version by the tests' problems.
#pragma once

#include <string>

#include "core/registry.h"

namespace ladder::test {

// Returns an error if the version runs too few of the problems of [ci] and of random problems, else empty: a kernel is
// made for a layer, not for one shape.
std::string too_narrow(const Version& v);

// Returns a problem of any set whose default plan no problem of [ci] and [edge] has, so that no test runs the plan;
// else empty.
std::string untested_plan(const Version& v);

// Problems of [ci] and [edge], in each dtype that a version of the pass has.
std::vector<Case> tested_problems(const Pass& pass);

// Returns a tensor that `tested` covers badly, else empty: a tensor of all problems whose size is a multiple of 16
// bytes but whose rows are not, in a random problem and in none of `tested`. 16-byte loads that fit the tensor's size
// are misaligned for such rows. Elements of 4 bytes and of 2 bytes are checked separately.
std::string untested_rows(const Pass& pass, const std::vector<Case>& tested);

// Returns an input of a problem of [ci] that Pass::derive() changes when it runs a second time, else empty. The check
// of a second launch changes a few elements, derives again, and relies on the other elements being the same.
std::string changed_by_deriving_again(const Pass& pass);

}  // namespace ladder::test
