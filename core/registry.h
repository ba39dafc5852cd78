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
//       static std::vector<TensorSpec> tensors(const Problem&);              // in the order that bind() takes them
//       static Tensors bind(const Problem&, void* const* pointers);          // a null pointer for an absent tensor
//       static double flops(const Problem&);
//       static std::int64_t reduction_length(const Problem&);                // longest sum behind one output element
//       // and, where it applies:
//       static constexpr bool kExact = false;                                // outputs are no sums of products of inputs
//       static void derive(const Problem&, std::vector<std::vector<float>>& inputs);  // inputs that follow from others
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
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/stream.h"

namespace ladder {

enum class Role : std::uint8_t { input, output };

struct TensorSpec {
  std::string name;  // the paper's letter: "x", "w", "dy"
  Role role = Role::input;
  Dtype dtype = Dtype::f32;         // how it is stored and rounded
  std::vector<std::int64_t> shape;  // outermost dimension first
  std::string layout;               // a letter a dimension: "nhwc", "krsc"
  double mean = 0.0;                // of the normal values that fill() draws for an input
  double stddev = 1.0;              // likewise
  std::optional<Dtype> drawn = {};  // a dtype to which those values are rounded besides

  std::size_t elements() const;
  std::size_t bytes() const;
};

struct Pass;

// One parsed problem of one pass, as the harness sees it.
struct Case {
  const Pass* pass = nullptr;
  std::string text;  // the problem's canonical line
  Dtype dtype = Dtype::f32;
  double flops = 0;
  std::int64_t reduction_length = 1;
  std::vector<TensorSpec> tensors;
  double error_growth = 1;              // of the version at hand, see VersionDef
  bool exact = true;                    // likewise
  double least_arithmetic = 1;          // likewise
  bool integers_exact = true;           // of the pass: integer inputs have integer answers
  std::shared_ptr<const void> problem;  // the layer's own Problem

  double min_read_bytes() const;   // every input once
  double min_write_bytes() const;  // every output once
};

struct Pass {
  std::string layer;
  std::string name;
  Case (*parser)(const Pass& self, std::string_view line) = nullptr;
  std::string (*random_problem)(std::uint64_t seed) = nullptr;  // a line, fp32
  // Fills in inputs that follow from other inputs; null where there are none. `values` as in HostTensors.
  void (*derive)(const Case& c, std::vector<std::vector<float>>& values) = nullptr;

  Case parse(std::string_view line) const { return parser(*this, line); }  // throws UsageError
  std::string path() const { return layer + "/" + name; }
};

// One numbered kernel version, stateless. All functions may be called from any thread.
struct Version {
  const Pass* pass = nullptr;
  int number = 0;
  std::string idea;  // "smem_tile"
  std::string file;  // as the compiler was given it
  std::vector<Dtype> dtypes;
  int min_arch = 0;            // compute capability times ten (80, 90) below which it cannot run
  bool arch_specific = false;  // runs on min_arch alone: sm_90a
  double error_growth = 1;
  bool exact = true;
  double least_arithmetic = 1;
  std::string needs;  // one phrase for --list, or empty

  // Why this version cannot run the case, or null. The harness has asked about dtype and architecture already.
  std::function<const char*(const Case&)> supports;
  std::function<std::size_t(const Case&)> workspace_bytes;
  // Enqueues the version on `stream`. `pointers` are device pointers in the order of Case::tensors.
  std::function<void(const Case&, void* const* pointers, void* workspace, Stream stream)> launch;
  std::shared_ptr<const void> definition;  // what its file said, see definition_of()

  bool has(Dtype dtype) const;
  std::string label() const;     // "v03_smem_tile"
  Case checked_as(Case c) const;  // the case, with what this version's algorithm changes about it
};

// What a version file says of itself; see LADDER_VERSION.
template <class P>
struct VersionDef {
  void (*launch)(const typename P::Problem&, const typename P::Tensors&, void* workspace, Stream stream);
  std::vector<Dtype> dtypes;
  const char* (*supports)(const typename P::Problem&) = nullptr;
  std::size_t (*workspace_bytes)(const typename P::Problem&) = nullptr;
  int min_arch = 0;
  // True for instructions that later architectures dropped, such as sm_90a's wgmma: it runs on min_arch alone.
  bool arch_specific = false;
  // How much larger the rounding errors of its sums may be than those of plain fp32 additions.
  double error_growth = 1;
  // False where intermediates are no sums of products of the inputs (Winograd): integer problems are then held to the
  // bound instead of the last bit.
  bool exact = true;
  // The share of the formula's multiplications that the algorithm cannot do without: a time below that much arithmetic at
  // the hardware's peak is not believed. 1/4 for Winograd's F(4x4, 3x3).
  double least_arithmetic = 1;
  const char* needs = "";
};

// All passes and versions, in order of layer, pass and number. Versions whose file name is malformed or whose number is
// taken twice make this throw Failure: the first thing every main() does is to call it.
const std::vector<const Pass*>& all_passes();
const std::vector<const Version*>& all_versions();

// Throw UsageError naming what there is.
const Pass& find_pass(std::string_view layer, std::string_view name);
const Version& find_version(const Pass& pass, int number);
std::vector<const Version*> versions_of(const Pass& pass);

namespace detail {

// What a file name says: "dev/conv3x3/fprop/v03_smem_tile.cu" is letter 'v', number 3, idea "smem_tile". Nothing for a
// name that is not a lower-case letter, two digits, an underscore, lower-case words, ".cu".
struct FileName {
  char letter = 'v';
  int number = 0;
  std::string idea;
};
std::optional<FileName> parse_file_name(std::string_view file);

const Pass* add_pass(Pass pass);  // returns the one already there, if any
bool add_version(Version version, std::string_view file);

template <class P>
constexpr bool integers_exact() {
  if constexpr (requires { P::kExact; }) return P::kExact;
  return true;
}

template <class P>
Case make_case(const Pass& pass, const typename P::Problem& problem) {
  return {.pass = &pass,
          .text = problem.str(),
          .dtype = problem.dtype,
          .flops = P::flops(problem),
          .reduction_length = P::reduction_length(problem),
          .tensors = P::tensors(problem),
          .integers_exact = integers_exact<P>(),
          .problem = std::make_shared<const typename P::Problem>(problem)};
}

template <class P>
const typename P::Problem& problem_of(const Case& c) {
  return *static_cast<const typename P::Problem*>(c.problem.get());
}

template <class P>
constexpr auto derivation() -> void (*)(const Case&, std::vector<std::vector<float>>&) {
  if constexpr (requires { &P::derive; }) {
    return [](const Case& c, std::vector<std::vector<float>>& values) { P::derive(problem_of<P>(c), values); };
  }
  return nullptr;
}

}  // namespace detail

// The pass's entry in the registry, made on first use.
template <class P>
const Pass& pass_of() {
  static const Pass* const pass = detail::add_pass(
      {.layer = P::kLayer,
       .name = P::kName,
       .parser = [](const Pass& self,
                    std::string_view line) { return detail::make_case<P>(self, P::Problem::parse(line)); },
       .random_problem = [](std::uint64_t seed) { return P::Problem::random(seed).str(); },
       .derive = detail::derivation<P>()});
  return *pass;
}

// What the file of version `number` says of itself: for a version of another pass that hands its work on to it. Not to be
// called before main(). Throws UsageError if there is none.
template <class P>
const VersionDef<P>& definition_of(int number) {
  return *static_cast<const VersionDef<P>*>(find_version(pass_of<P>(), number).definition.get());
}

template <class P>
bool register_version(const char* file, VersionDef<P> def) {
  Version v{.pass = &pass_of<P>(),
            .dtypes = def.dtypes,
            .min_arch = def.min_arch,
            .arch_specific = def.arch_specific,
            .error_growth = def.error_growth,
            .exact = def.exact,
            .least_arithmetic = def.least_arithmetic,
            .needs = def.needs,
            .supports = [f = def.supports](const Case& c) { return f ? f(detail::problem_of<P>(c)) : nullptr; },
            .workspace_bytes =
                [f = def.workspace_bytes](const Case& c) { return f ? f(detail::problem_of<P>(c)) : std::size_t{0}; },
            .launch =
                [f = def.launch](const Case& c, void* const* pointers, void* workspace, Stream stream) {
                  const auto& problem = detail::problem_of<P>(c);
                  f(problem, P::bind(problem, pointers), workspace, stream);
                },
            .definition = std::make_shared<const VersionDef<P>>(def)};
  return detail::add_version(std::move(v), file);
}

}  // namespace ladder

// A name of its own for each line of a file.
#define LADDER_NAME_OF_LINE_(prefix, line) prefix##line
#define LADDER_NAME_OF_LINE(prefix, line) LADDER_NAME_OF_LINE_(prefix, line)
#define LADDER_UNIQUE(prefix) LADDER_NAME_OF_LINE(prefix, __LINE__)

#define LADDER_VERSION(pass, ...)                                                         \
  namespace {                                                                             \
  [[maybe_unused]] const bool ladder_registered =                                         \
      ::ladder::register_version<pass>(__FILE__, ::ladder::VersionDef<pass> __VA_ARGS__); \
  }
