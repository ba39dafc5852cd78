#include "tests/conformance/wrappers.h"

#include <algorithm>

namespace ladder::conformance {

namespace {

std::vector<Wrapper>& wrappers() {
  static std::vector<Wrapper> list;
  return list;
}

}  // namespace

bool add(std::string name, Output (*run)()) {
  auto& list = wrappers();
  const auto before = [](const Wrapper& a, const Wrapper& b) { return a.name < b.name; };
  Wrapper wrapper{std::move(name), run};
  list.insert(std::upper_bound(list.begin(), list.end(), wrapper, before), wrapper);
  return true;
}

const std::vector<Wrapper>& all() { return wrappers(); }

std::vector<float> awkward_floats(int count) {
  std::vector<std::uint32_t> words;
  for (const std::uint32_t sign : {0x00000000u, 0x80000000u}) {
    for (const std::uint32_t magnitude :
         {0x00000000u, 0x00000001u, 0x007fffffu, 0x00800000u, 0x33000000u, 0x33000001u, 0x33800000u,
          0x387fe000u, 0x38800000u, 0x3f800000u, 0x3f801000u, 0x3f803000u, 0x3f808000u, 0x3f818000u,
          0x3f808001u, 0x3f801001u, 0x477fe000u, 0x477fefffu, 0x477ff000u, 0x47800000u, 0x7f7f7fffu,
          0x7f7f8000u, 0x7f7fffffu, 0x7f800000u, 0x7f800001u, 0x7fc00000u, 0x7fffffffu}) {
      words.push_back(sign | magnitude);
    }
  }
  Inputs inputs;
  while (static_cast<int>(words.size()) < count) words.push_back(static_cast<std::uint32_t>(inputs.bits()));
  std::vector<float> values;
  for (int i = 0; i < count; ++i) values.push_back(std::bit_cast<float>(words[i]));
  return values;
}

}  // namespace ladder::conformance
