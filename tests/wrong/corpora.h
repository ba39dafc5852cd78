// The passes whose checks are tried with kernels that cheat, filled by LADDER_CHEATS of tests/wrong/wrong.h.
#pragma once

#include <string>
#include <vector>

#include "core/registry.h"

namespace ladder::wrong {

struct Corpus {
  const Pass* pass;                   // that the cheats are registered under
  const Pass* honest;                 // that they pretend to be
  std::vector<std::string> problems;  // without a dtype
};

const std::vector<Corpus>& corpora();
bool add(Corpus corpus);

}  // namespace ladder::wrong
