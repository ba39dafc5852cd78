#include "bench/untrusted/drawn.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <utility>

#include "core/backend.h"
#include "core/error.h"

namespace ladder {
namespace {

double cost(const Case& c) { return c.flops + c.traffic.bytes(); }

// Largest cost of a drawn problem: on the emulator, its reference takes milliseconds.
double most_cost() { return backend::kind() == backend::Kind::emulator ? 0x1p24 : 0x1p26; }

// Positions and lengths of the numbers in a problem's line that may be sizes: of "n5 c12 eps1e-06 fp32", 5 and 12.
std::vector<std::pair<std::size_t, std::size_t>> sizes(const std::string& line) {
  std::vector<std::pair<std::size_t, std::size_t>> found;
  const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  for (std::size_t begin = 0; begin < line.size();) {
    const std::size_t end = std::min(line.find(' ', begin), line.size());
    const auto digits = std::find_if(line.begin() + begin, line.begin() + end, is_digit) - line.begin();
    const bool is_number = std::all_of(line.begin() + digits, line.begin() + end, is_digit);
    if (is_number && digits < static_cast<std::ptrdiff_t>(end)) found.emplace_back(digits, end - digits);
    begin = end + 1;
  }
  return found;
}

// The problem with one of its sizes multiplied; nothing if that is no problem, or if its cost does not follow the size.
std::optional<Case> multiplied(const Case& c, std::pair<std::size_t, std::size_t> size, std::uint64_t factor) {
  const auto [begin, length] = size;
  std::string line = c.text;
  line.replace(begin, length, std::to_string(std::stoull(c.text.substr(begin, length)) * factor));
  try {
    Case larger = c.pass->parse(line);
    if (cost(larger) > 1.5 * cost(c) && cost(larger) <= most_cost()) return larger;
  } catch (const UsageError&) {  // not every size can be multiplied
  }
  return {};
}

}  // namespace

std::optional<Case> drawn_problem(const Pass& pass, const std::vector<Dtype>& dtypes, int num_draws,
                                  std::mt19937_64& random, const Supports& supports) {
  constexpr int kMostDraws = 2000;
  std::optional<Case> smallest;
  for (int draw = 0, num_supported = 0; draw < kMostDraws && num_supported < num_draws; ++draw) {
    Case c = pass.random(random()).with_dtype(dtypes[random() % dtypes.size()]);
    if (cost(c) > most_cost() || !supports(c)) continue;
    ++num_supported;
    if (!smallest || cost(c) < cost(*smallest)) smallest = std::move(c);
  }
  return smallest;
}

std::optional<Case> enlarged(const Case& c, std::size_t index, std::mt19937_64& random, const Supports& supports) {
  constexpr std::size_t kFactors = 2;
  const auto found = sizes(c.text);
  for (std::size_t i = 0; i < kFactors * found.size(); ++i) {
    const std::optional<Case> larger = multiplied(c, found[(index + i / kFactors) % found.size()], 3 + random() % 4);
    if (larger && supports(*larger)) return larger;
  }
  return {};
}

}  // namespace ladder
