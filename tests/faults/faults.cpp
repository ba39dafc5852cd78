#include "tests/faults/faults.h"

#include <algorithm>
#include <string_view>

namespace ladder::faults {

namespace {

std::vector<Entry>& entries() {
  static std::vector<Entry> list;
  return list;
}

}  // namespace

bool add(const Entry& entry) {
  auto& list = entries();
  auto before = [](const Entry& a, const Entry& b) { return std::string_view(a.name) < b.name; };
  list.insert(std::upper_bound(list.begin(), list.end(), entry, before), entry);
  return true;
}

const std::vector<Entry>& all() { return entries(); }

}  // namespace ladder::faults
