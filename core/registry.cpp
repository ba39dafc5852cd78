#include "core/registry.h"

#include <algorithm>
#include <deque>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/backend.h"
#include "core/error.h"
#include "core/problem_line.h"

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

template <class Items, class Word>
std::string joined(const Items& items, Word word) {
  std::string out;
  for (const auto& item : items) out += (out.empty() ? "" : ", ") + word(item);
  return out.empty() ? "none" : out;
}

}  // namespace

Case Case::with_dtype(Dtype other) const { return pass->in_dtype(*this, other); }

const TensorSpec& Case::tensor(std::string_view name) const {
  for (const TensorSpec& spec : tensors) {
    if (spec.name == name) return spec;
  }
  throw Failure(pass->path() + " has no tensor '" + std::string(name) +
                "'; there are: " + joined(tensors, [](const TensorSpec& spec) { return spec.name; }));
}

std::int64_t Case::reduction_length() const {
  std::int64_t longest = 1;
  for (const TensorSpec& spec : tensors) longest = std::max(longest, spec.reduction_length);
  return longest;
}

bool Version::has(Dtype dtype) const {
  return std::find(def.dtypes.begin(), def.dtypes.end(), dtype) != def.dtypes.end();
}

std::string Version::label() const { return fmt::format("{}{:02}_{}", letter, number, idea); }

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

const Pass& default_pass(std::string_view layer) {
  for (const Pass* pass : all_passes()) {
    if (pass->layer == layer && pass->is_default) return *pass;
  }
  throw UsageError("no layer '" + std::string(layer) + "' with a default pass; there are: " +
                   joined(all_passes(), [](const Pass* p) { return p->path(); }));
}

std::vector<const Version*> versions_of(const Pass& pass) {
  std::vector<const Version*> found;
  for (const Version* v : all_versions()) {
    if (v->pass == &pass) found.push_back(v);
  }
  return found;
}

std::string why_not(const Version& v, const Case& c) {
  if (!v.has(c.dtype)) {
    std::vector<std::string> has;
    for (const Dtype dtype : v.def.dtypes) has.push_back(name(dtype));
    return fmt::format("{} has no {}; it has {}", v.label(), name(c.dtype), fmt::join(has, ", "));
  }
  if (const char* reason = v.supports(c)) return reason;
  if (const char* reason = backend::unavailable()) return reason;
  if (const int arch = backend::device().arch; v.def.arch_specific ? arch != v.def.min_arch : arch < v.def.min_arch) {
    return fmt::format("{} needs sm_{}{}; {} is sm_{}", v.label(), v.def.min_arch, v.def.arch_specific ? "a" : "",
                       backend::device().name, arch);
  }
  return {};
}

std::vector<Kernel> plans(const Version& version, const Case& c) {
  if (const char* reason = version.supports(c)) {
    throw UsageError(version.pass->path() + ' ' + version.label() + " cannot run '" + c.text + "': " + reason);
  }
  std::vector<Kernel> kernels;
  for (KernelPlan<AnyPass>& plan : version.def.plans(c)) {
    kernels.push_back({.name = plan.name,
                       .workspace_bytes = plan.workspace_bytes,
                       .private_workspace = version.def.private_workspace,
                       .bind = std::move(plan.bind)});
  }
  if (kernels.empty())
    throw Failure(version.pass->path() + ' ' + version.label() + " has no plan for '" + c.text + '\'');
  return kernels;
}

Kernel plan(const Version& version, const Case& c, std::string_view name) {
  std::vector<Kernel> kernels = plans(version, c);
  if (name.empty()) return std::move(kernels.front());
  for (Kernel& kernel : kernels) {
    if (kernel.name == name) return std::move(kernel);
  }
  throw UsageError(version.pass->path() + ' ' + version.label() + " has no plan '" + std::string(name) + "' for '" +
                   c.text + "'; it has: " + joined(kernels, [](const Kernel& k) { return k.name; }));
}

namespace detail {

bool names_dtype(std::string_view line) { return dtype_of(line).has_value(); }

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

// Winograd's F(4x4, 3x3) has it: its transforms multiply by up to 8 on each side.
constexpr double kMostErrorGrowth = 16;

bool add_version(Version version, std::string_view file, const std::string& wrong) {
  Registry& r = registry();
  const auto complain = [&](const std::string& what) {
    r.error += (r.error.empty() ? "" : "; ") + std::string(file) + ": " + what;
    return false;
  };
  auto parsed = parse_file_name(file);
  if (!parsed) return complain("a version's file is named like v07_some_idea.cu");
  if (!wrong.empty()) return complain(wrong);
  if (!(version.def.error_growth >= 1 && version.def.error_growth <= kMostErrorGrowth)) {
    return complain(fmt::format(".error_growth is from 1 to {}", kMostErrorGrowth));
  }
  for (const Version& known : r.versions) {
    if (known.pass == version.pass && known.number == parsed->number) {
      return complain("the number " + std::to_string(parsed->number) + " is taken by " + known.file);
    }
  }
  version.letter = parsed->letter;
  version.number = parsed->number;
  version.idea = std::move(parsed->idea);
  version.file = file;
  r.versions.push_back(std::move(version));
  insert_sorted<Version>(r.sorted_versions, &r.versions.back());
  return true;
}

}  // namespace detail
}  // namespace ladder
