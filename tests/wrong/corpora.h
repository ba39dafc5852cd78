// The cheats that know their pass, filled by LADDER_CHEATS of tests/wrong/wrong.h.
#pragma once

#include <string>
#include <vector>

#include "tests/wrong/cheat.h"

namespace ladder::wrong {

struct Corpus {
  const Pass* pass;
  std::vector<std::string> problems;  // without a dtype
  std::vector<Cheat> cheats;
};

const std::vector<Corpus>& corpora();
bool add(Corpus corpus);

}  // namespace ladder::wrong
