// A version that cheats, or an honest one beside it. They are made when the tests start and registered nowhere, so that no
// benchmark or trainer ever meets them. Here is all that they know of how core/ starts a version.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/registry.h"

namespace ladder::wrong {

constexpr int kThreads = 64;  // of a block of the kernels that spoil something

using Launch = std::function<void(const Case&, void* const* pointers, void* workspace, Stream stream)>;
using Supports = std::function<const char*(const Case&)>;
using WorkspaceBytes = std::function<std::size_t(const Case&)>;

struct Cheat {
  Version version;
  bool honest = false;      // must pass, where the others must be found out
  bool any_problem = true;  // else random problems show it, beside those of its corpus

  std::string label() const { return version.label(); }
};

inline const char* always(const Case&) { return nullptr; }

// `letter`, the number and the name are its label: "w07_bf16_sum".
Cheat make_cheat(const Pass& pass, char letter, int number, const std::string& name, std::vector<Dtype> dtypes,
                 Launch launch, WorkspaceBytes workspace_bytes, Supports supports = always);

// One launch of the version's default plan as the harness would enqueue it, and the workspace that it needs.
void launch_version(const Version& v, const Case& c, void* const* pointers, void* workspace, Stream stream);
std::size_t workspace_bytes_of(const Version& v, const Case& c);

inline std::size_t aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }
std::size_t all_bytes(const Case& c);  // of every tensor, aligned

// The cheats of one pass, and the problems that they are tried on, without a dtype.
struct Corpus {
  const Pass* pass;
  std::vector<std::string> problems;
  std::vector<Cheat> cheats;
};

// The cheats that know their pass: LADDER_CHEATS of tests/wrong/wrong.h adds them.
inline std::vector<Corpus>& corpora() {
  static std::vector<Corpus> instance;
  return instance;
}

// The cheats that need to know nothing of a pass but its tensors: each launches an honest version, and spoils its inputs,
// its outputs, its stream or its time. A new pass has them all without a line of its own. They are made from the pass's
// version of the lowest number, on cases whose tensors are among those of `problems`; the first is the one shape that some
// of them know. The honest one comes first.
std::vector<Cheat> generic_cheats(const Pass& pass, const std::vector<std::string>& problems);

}  // namespace ladder::wrong
