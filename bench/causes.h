// Failures grouped by their cause, each told once.
#pragma once

#include <string>
#include <vector>

#include "bench/session.h"

namespace ladder {

// The causes of a run's failures, numbered from 1 in the order in which they came.
class Causes {
 public:
  // The number of a failed result's cause: equal for one version and one line of its kernel, or one reason but for its
  // numbers.
  int add(const Result& failed);
  int count() const { return static_cast<int>(causes_.size()); }

  // "cause 1: 24 of 24 cases of v07_warp_online, in fp32, bf16", a line each, and the cause that the pattern of a version's
  // failures suggests.
  std::string summary(const std::vector<Result>& results) const;

 private:
  struct Cause {
    const Version* version = nullptr;
    std::string key;
    std::vector<Case> cases;
  };
  std::vector<Cause> causes_;
};

// Empty, or that every fp32 case of the version passes and cases of 2-byte types have wrong values.
std::string rounding_suspected(const std::vector<Result>& results, const Version& version);

// `text` in lines of at most 80 columns, each after four spaces; a word that is longer has a line of its own.
std::string wrapped(const std::string& text);

}  // namespace ladder
