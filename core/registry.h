// The registry: every pass of every layer, and every numbered version of it. Sandbox, benchmark, tests and trainer all
// take versions from here.
//
// A layer's header declares a pass as a type:
//
//     struct Fprop {
//       static constexpr const char* kLayer = "conv3x3";
//       static constexpr const char* kName = "fprop";
//       using Problem = ...;   // plain fields, one of them `Dtype dtype`; str(), static parse(line) throwing UsageError,
//                              // static random(seed): any small problem, for the tests
//       struct Tensors {...};  // typed views: const inputs, outputs
//       static std::vector<TensorSpec> tensors(const Problem&);  // defines the tensors' order
//       static Tensors bind(const Pointers& at);                 // {.x = at["x"], .bias = at.get<float>("bias"), ...}
//       static double flops(const Problem&);
//       // and, where it applies:
//       static constexpr bool kDefault = true;                   // the layer's default pass
//       static constexpr bool kExact = false;                    // outputs are not sums of products of inputs
//       static bool exact(const Problem&);                       // or: the same for each problem
//       static Traffic traffic(const Problem&);                  // default: every tensor moves once
//       static void derive(const Problem&, HostTensors& inputs);  // fills in inputs that depend on others
//     };
//
// and a version file ends with
//
//     LADDER_VERSION(conv3x3::Fprop, {.launch = launch, .dtypes = {Dtype::f32}});
//
// Number and idea come from the file's name, vNN_<idea>.cu.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/kernel.h"
#include "core/stream.h"
#include "core/tensors.h"

namespace ladder {

struct Pass;

// A parsed problem of a pass, without the pass's types.
struct Case {
  const Pass* pass = nullptr;
  std::string text;  // the problem's canonical line
  Dtype dtype = Dtype::f32;
  bool names_dtype = false;  // the parsed line named a dtype
  double flops = 0;
  Traffic traffic;  // least bytes that a kernel has to move
  std::vector<TensorSpec> tensors;
  bool integers_exact = true;           // integer inputs have integer answers
  std::shared_ptr<const void> problem;  // the layer's own Problem

  Case with_dtype(Dtype other) const;                     // the same problem in another dtype
  const TensorSpec& tensor(std::string_view name) const;  // throws Failure naming the existing ones

  // Number of terms in the longest sum of any output element.
  std::int64_t reduction_length() const;
};

struct Pass {
  std::string layer;
  std::string name;
  bool is_default = false;  // the layer's default pass
  Case (*parser)(const Pass& self, std::string_view line) = nullptr;
  Case (*random_problem)(const Pass& self, std::uint64_t seed) = nullptr;  // fp32
  Case (*in_dtype)(const Case& c, Dtype dtype) = nullptr;
  // Fill in inputs that follow from other inputs; null if there are none.
  void (*derive)(const Case& c, HostTensors& inputs) = nullptr;

  Case parse(std::string_view line) const { return parser(*this, line); }  // throws UsageError
  Case random(std::uint64_t seed) const { return random_problem(*this, seed); }
  std::string path() const { return layer + "/" + name; }
};

// Definition of a version, given in its file through LADDER_VERSION. P is its pass, or AnyPass in the registry.
template <class P>
struct VersionDef {
  // Exactly one of launch and plans is given. launch enqueues the version; plans lists every way in which it can run
  // the problem, the default first.
  std::function<void(const typename P::Problem&, const typename P::Tensors&, void* workspace, Stream)> launch = {};
  std::function<std::vector<KernelPlan<P>>(const typename P::Problem&)> plans = {};
  std::vector<const char*> plan_names = {};  // names of all possible plans; each must run in the tests
  std::vector<Dtype> dtypes = {};
  // Returns null, or why the version cannot run the problem. Empty: it runs every problem.
  std::function<const char*(const typename P::Problem&)> supports = {};
  std::function<std::size_t(const typename P::Problem&)> workspace_bytes = {};  // for `launch`; empty: none
  bool private_workspace = false;                                               // Kernel::private_workspace
  int min_arch = 0;  // compute capability times ten (80, 90) below which it cannot run
  // True if the version uses instructions that later architectures dropped, such as sm_90a's wgmma: it runs on min_arch
  // alone.
  bool arch_specific = false;
  // Factor by which rounding errors of the version's sums may exceed those of plain fp32 additions.
  double error_growth = 1;
  // False if intermediates are not sums of products of the inputs (Winograd): integer problems are then held to the
  // bound instead of the last bit.
  bool exact = true;
  // Share of the formula's multiplications that the algorithm cannot avoid: a time below that much arithmetic at the
  // hardware's peak is not believed. 1/4 for Winograd's F(4x4, 3x3).
  double least_arithmetic = 1;
  const char* needs = "";  // one phrase for --list
};

// Type-erased pass: the problem is a Case, tensors are found by name.
struct AnyPass {
  using Problem = Case;
  using Tensors = Pointers;
};
using AnyVersionDef = VersionDef<AnyPass>;

// A numbered kernel version, stateless. All functions may be called from any thread.
struct Version {
  const Pass* pass = nullptr;
  char letter = 'v';            // first letter of the file name; cheats of tests/wrong have 'w', 'x', ...
  int number = 0;               // below 100 in a file name, from 100 on for some cheats
  std::string idea;             // "smem_tile"
  std::string file;             // path that the compiler was given
  AnyVersionDef def;            // the file's definition; always with `plans`
  const void* typed = nullptr;  // its VersionDef<P>; null if no file registered it

  bool has(Dtype dtype) const;
  std::string label() const;  // "v03_smem_tile"
  // Returns null, or why this version cannot run the case. why_not() also checks dtype and device.
  const char* supports(const Case& c) const { return def.supports ? def.supports(c) : nullptr; }
};

// Returns empty, or why the version cannot run the case on this device: dtype, architecture, supports(), no device.
std::string why_not(const Version& v, const Case& c);

// All passes and versions, in order of layer, pass and number. all_versions() throws Failure for a malformed file name,
// a number that is taken twice, or a contradictory definition: every main() calls it first.
const std::vector<const Pass*>& all_passes();
const std::vector<const Version*>& all_versions();

// Look up passes and versions. The first three throw UsageError naming the existing ones.
const Pass& find_pass(std::string_view layer, std::string_view name);
const Pass& default_pass(std::string_view layer);
const Version& find_version(const Pass& pass, int number);
std::vector<const Version*> versions_of(const Pass& pass);

namespace detail {

// Parts of a version's file name: "dev/conv3x3/fprop/v03_smem_tile.cu" is letter 'v', number 3, idea "smem_tile".
// parse_file_name() returns nothing for a name that is not a lower-case letter, two digits, an underscore, lower-case
// words, ".cu".
struct FileName {
  char letter = 'v';
  int number = 0;
  std::string idea;
};
std::optional<FileName> parse_file_name(std::string_view file);

const Pass* add_pass(Pass pass);  // returns the existing entry, if any
// `wrong` is the fault of the definition, or empty.
bool add_version(Version version, std::string_view file, const std::string& wrong);

bool names_dtype(std::string_view line);

template <class P>
bool integers_exact(const typename P::Problem& problem) {
  if constexpr (requires { P::exact(problem); }) {
    return P::exact(problem);
  } else if constexpr (requires { P::kExact; }) {
    return P::kExact;
  }
  return true;
}

template <class P>
constexpr bool is_default() {
  if constexpr (requires { P::kDefault; }) return P::kDefault;
  return false;
}

template <class P>
Case make_case(const Pass& pass, const typename P::Problem& problem) {
  Case c{.pass = &pass,
         .text = problem.str(),
         .dtype = problem.dtype,
         .flops = P::flops(problem),
         .tensors = P::tensors(problem),
         .integers_exact = integers_exact<P>(problem),
         .problem = std::make_shared<const typename P::Problem>(problem)};
  if constexpr (requires { P::traffic(problem); }) {
    c.traffic = P::traffic(problem);
  } else {
    c.traffic = each_once(c.tensors);
  }
  return c;
}

template <class P>
constexpr auto derivation() -> void (*)(const Case&, HostTensors&);

}  // namespace detail

template <class P>
const typename P::Problem& problem_of(const Case& c) {
  return *static_cast<const typename P::Problem*>(c.problem.get());
}

template <class P>
constexpr auto detail::derivation() -> void (*)(const Case&, HostTensors&) {
  if constexpr (requires { &P::derive; }) {
    return [](const Case& c, HostTensors& inputs) { P::derive(problem_of<P>(c), inputs); };
  }
  return nullptr;
}

// The pass's entry in the registry, made on first use.
template <class P>
const Pass& pass_of() {
  static const Pass* const pass = detail::add_pass(
      {.layer = P::kLayer,
       .name = P::kName,
       .is_default = detail::is_default<P>(),
       .parser =
           [](const Pass& self, std::string_view line) {
             Case c = detail::make_case<P>(self, P::Problem::parse(line));
             c.names_dtype = detail::names_dtype(line);
             return c;
           },
       .random_problem = [](const Pass& self,
                            std::uint64_t seed) { return detail::make_case<P>(self, P::Problem::random(seed)); },
       .in_dtype =
           [](const Case& c, Dtype dtype) {
             typename P::Problem problem = problem_of<P>(c);
             problem.dtype = dtype;
             return detail::make_case<P>(*c.pass, problem);
           },
       .derive = detail::derivation<P>()});
  return *pass;
}

// The Case of a problem, the same as the registry's parse() gives for the problem's line.
template <class P>
Case case_of(const typename P::Problem& problem) {
  return detail::make_case<P>(pass_of<P>(), problem);
}

namespace detail {

template <class P>
std::string fault_of(const VersionDef<P>& def) {
  if (!def.launch == !def.plans) return "either .launch or .plans, one of them, must be there";
  if (def.plans && def.plan_names.empty()) return ".plans without .plan_names";
  if (def.plans && def.workspace_bytes) return ".workspace_bytes is for .launch: a plan says its own";
  return {};
}

}  // namespace detail

// Typed access to a version's kernels, for a version of another pass that delegates work to it. Not to be called before
// main().
template <class P>
class VersionOf {
 public:
  explicit VersionOf(const VersionDef<P>& def) : def_(&def) {}

  // Returns null, or why the version cannot run the problem.
  const char* supports(const typename P::Problem& problem) const {
    return def_->supports ? def_->supports(problem) : nullptr;
  }

  // All plans for a supported problem, the default first.
  std::vector<KernelPlan<P>> plans(const typename P::Problem& problem) const {
    if (def_->plans) return def_->plans(problem);
    return {{.workspace_bytes = def_->workspace_bytes ? def_->workspace_bytes(problem) : 0,
             .bind = [def = def_, problem](const typename P::Tensors& tensors, void* workspace) -> BoundLaunch {
               return [=](Stream stream) { def->launch(problem, tensors, workspace, stream); };
             }}};
  }

 private:
  const VersionDef<P>* def_;
};

// Throws UsageError if there is no such version.
template <class P>
VersionOf<P> version_of(int number) {
  return VersionOf<P>(*static_cast<const VersionDef<P>*>(find_version(pass_of<P>(), number).typed));
}

namespace detail {

// Erase the pass's types from `def`, which must live as long as the program.
template <class P>
AnyVersionDef any_pass(const VersionDef<P>& def) {
  return {.plans =
              [&def](const Case& c) {
                std::vector<KernelPlan<AnyPass>> plans;
                for (KernelPlan<P>& plan : VersionOf<P>(def).plans(problem_of<P>(c))) {
                  plans.push_back({.name = plan.name,
                                   .workspace_bytes = plan.workspace_bytes,
                                   .bind = [bind = std::move(plan.bind)](const Pointers& pointers, void* workspace) {
                                     return bind(P::bind(pointers), workspace);
                                   }});
                }
                return plans;
              },
          .plan_names = def.plan_names,
          .dtypes = def.dtypes,
          .supports = [&def](const Case& c) { return VersionOf<P>(def).supports(problem_of<P>(c)); },
          .private_workspace = def.private_workspace,
          .min_arch = def.min_arch,
          .arch_specific = def.arch_specific,
          .error_growth = def.error_growth,
          .exact = def.exact,
          .least_arithmetic = def.least_arithmetic,
          .needs = def.needs};
}

}  // namespace detail

template <class P>
bool register_version(const char* file, VersionDef<P> def) {
  static std::deque<VersionDef<P>> kept;  // a deque never moves its elements
  kept.push_back(std::move(def));
  return detail::add_version({.pass = &pass_of<P>(), .def = detail::any_pass(kept.back()), .typed = &kept.back()}, file,
                             detail::fault_of(kept.back()));
}

}  // namespace ladder

// Identifier that is unique in its source file.
#define LADDER_JOINED_(prefix, number) prefix##number
#define LADDER_JOINED(prefix, number) LADDER_JOINED_(prefix, number)
#define LADDER_UNIQUE(prefix) LADDER_JOINED(prefix, __COUNTER__)

#define LADDER_VERSION(pass, ...)                                                         \
  namespace {                                                                             \
  [[maybe_unused]] const bool ladder_registered =                                         \
      ::ladder::register_version<pass>(__FILE__, ::ladder::VersionDef<pass> __VA_ARGS__); \
  }
