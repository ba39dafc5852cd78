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

// The problems of ci and edge, in each dtype that a version of the pass has.
std::vector<Case> tested_problems(const Pass& pass);

// Empty, or a tensor that all problems have and that is a multiple of 16 bytes, though its rows are not, in a random problem
// and in none of `tested`: a load of 16 bytes that is right for the whole tensor's size is misaligned for its rows there.
// Elements of 4 bytes and of 2 are told apart.
std::string untested_rows(const Pass& pass, const std::vector<Case>& tested);

// Empty, or an input of a problem of ci that Pass::derive() changes when it runs a second time. The check of a second launch
// changes a few elements, derives again, and relies on the others being the same.
std::string changed_by_deriving_again(const Pass& pass);

}  // namespace ladder::test
