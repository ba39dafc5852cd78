// A version that cheats, or an honest one beside it. They are made when the tests start and registered nowhere, so that no
// benchmark or trainer ever meets them. Here is all that they know of how core/ starts a version.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/registry.h"

namespace ladder::wrong {

using Launch = std::function<void(const Case&, void* const* pointers, void* workspace, Stream stream)>;
using Supports = std::function<const char*(const Case&)>;
using WorkspaceBytes = std::function<std::size_t(const Case&)>;

struct Cheat {
  Version version;
  bool honest = false;  // must pass, where the others must be found out

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

}  // namespace ladder::wrong
