#include "reference/opponent.h"

#include <map>

namespace ladder {
namespace {

std::map<const Pass*, OpponentFactory>& factories() {
  static std::map<const Pass*, OpponentFactory> factories;
  return factories;
}

}  // namespace

bool register_opponent(const Pass& pass, OpponentFactory factory) { return factories().emplace(&pass, factory).second; }

OpponentFactory opponent_of(const Pass& pass) {
  const auto found = factories().find(&pass);
  return found == factories().end() ? nullptr : found->second;
}

}  // namespace ladder
