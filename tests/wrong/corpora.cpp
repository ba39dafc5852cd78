#include "tests/wrong/corpora.h"

#include <utility>

namespace ladder::wrong {

namespace {

std::vector<Corpus>& list() {
  static std::vector<Corpus> instance;
  return instance;
}

}  // namespace

const std::vector<Corpus>& corpora() { return list(); }

bool add(Corpus corpus) {
  list().push_back(std::move(corpus));
  return true;
}

}  // namespace ladder::wrong
