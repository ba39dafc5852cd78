#include "core/registry.h"

#include <algorithm>
#include <deque>
#include <tuple>
#include <utility>

#include "core/error.h"

namespace ladder {
namespace {

// Filled before main() by the registration lines of layers and versions; deques, because pointers are handed out.
struct Registry {
  std::deque<Pass> passes;
  std::deque<Version> versions;
  std::vector<const Pass*> sorted_passes;
  std::vector<const Version*> sorted_versions;
  // An exception cannot leave a static initialiser, so that a bad file name waits here for all_versions().
  std::string error;
};

Registry& registry() {
  static Registry instance;
  return instance;
}

auto key(const Pass* p) { return std::tie(p->layer, p->name); }
auto key(const Version* v) { return std::tie(v->pass->layer, v->pass->name, v->number); }

template <class T>
void insert_sorted(std::vector<const T*>& sorted, const T* item) {
  const auto less = [](const T* a, const T* b) { return key(a) < key(b); };
  sorted.insert(std::upper_bound(sorted.begin(), sorted.end(), item, less), item);
}

double bytes_of(const std::vector<TensorSpec>& tensors, Role role) {
  double bytes = 0;
  for (const TensorSpec& t : tensors) {
    if (t.role == role) bytes += static_cast<double>(t.bytes());
  }
  return bytes;
}

template <class Items, class Word>
std::string joined(const Items& items, Word word) {
  std::string out;
  for (const auto& item : items) out += (out.empty() ? "" : ", ") + word(item);
  return out.empty() ? "none" : out;
}

}  // namespace

std::size_t TensorSpec::elements() const {
  std::size_t count = 1;
  for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
  return count;
}

std::size_t TensorSpec::bytes() const { return elements() * size_of(dtype); }

double Case::min_read_bytes() const { return bytes_of(tensors, Role::input); }
double Case::min_write_bytes() const { return bytes_of(tensors, Role::output); }

bool Version::has(Dtype dtype) const { return std::find(dtypes.begin(), dtypes.end(), dtype) != dtypes.end(); }

Case Version::checked_as(Case c) const {
  c.error_growth = error_growth;
  c.exact = exact;
  c.least_arithmetic = least_arithmetic;
  return c;
}

std::string Version::label() const {
  const std::string digits = std::to_string(number);
  return detail::parse_file_name(file)->letter + std::string(digits.size() < 2 ? "0" : "") + digits + '_' + idea;
}

const std::vector<const Pass*>& all_passes() { return registry().sorted_passes; }

const std::vector<const Version*>& all_versions() {
  if (!registry().error.empty()) throw Failure(registry().error);
  return registry().sorted_versions;
}

const Pass& find_pass(std::string_view layer, std::string_view name) {
  for (const Pass* pass : all_passes()) {
    if (pass->layer == layer && pass->name == name) return *pass;
  }
  throw UsageError("no pass '" + std::string(layer) + '/' + std::string(name) +
                   "'; there are: " + joined(all_passes(), [](const Pass* p) { return p->path(); }));
}

const Version& find_version(const Pass& pass, int number) {
  const auto versions = versions_of(pass);
  for (const Version* v : versions) {
    if (v->number == number) return *v;
  }
  throw UsageError(pass.path() + " has no version " + std::to_string(number) +
                   "; it has: " + joined(versions, [](const Version* v) { return std::to_string(v->number); }));
}

std::vector<const Version*> versions_of(const Pass& pass) {
  std::vector<const Version*> found;
  for (const Version* v : all_versions()) {
    if (v->pass == &pass) found.push_back(v);
  }
  return found;
}

namespace detail {

std::optional<FileName> parse_file_name(std::string_view file) {
  const auto slash = file.find_last_of("/\\");
  std::string_view base = slash == std::string_view::npos ? file : file.substr(slash + 1);
  if (!base.ends_with(".cu")) return std::nullopt;
  base.remove_suffix(3);

  const auto is_lower = [](char c) { return c >= 'a' && c <= 'z'; };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (base.size() < 5 || !is_lower(base[0]) || !is_digit(base[1]) || !is_digit(base[2]) || base[3] != '_') {
    return std::nullopt;
  }
  const std::string_view idea = base.substr(4);
  const bool is_words =
      std::all_of(idea.begin(), idea.end(), [&](char c) { return is_lower(c) || is_digit(c) || c == '_'; });
  if (!is_lower(idea[0]) || !is_words) return std::nullopt;
  return FileName{.letter = base[0], .number = (base[1] - '0') * 10 + (base[2] - '0'), .idea = std::string(idea)};
}

const Pass* add_pass(Pass pass) {
  Registry& r = registry();
  for (const Pass& known : r.passes) {
    if (known.layer == pass.layer && known.name == pass.name) return &known;
  }
  r.passes.push_back(std::move(pass));
  insert_sorted<Pass>(r.sorted_passes, &r.passes.back());
  return &r.passes.back();
}

bool add_version(Version version, std::string_view file) {
  Registry& r = registry();
  const auto complain = [&](const std::string& what) {
    r.error += (r.error.empty() ? "" : "; ") + std::string(file) + ": " + what;
    return false;
  };
  auto parsed = parse_file_name(file);
  if (!parsed) return complain("a version's file is named like v07_some_idea.cu");
  for (const Version& known : r.versions) {
    if (known.pass == version.pass && known.number == parsed->number) {
      return complain("the number " + std::to_string(parsed->number) + " is taken by " + known.file);
    }
  }
  version.number = parsed->number;
  version.idea = std::move(parsed->idea);
  version.file = file;
  r.versions.push_back(std::move(version));
  insert_sorted<Version>(r.sorted_versions, &r.versions.back());
  return true;
}

}  // namespace detail
}  // namespace ladder
