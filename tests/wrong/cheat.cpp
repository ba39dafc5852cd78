#include "tests/wrong/cheat.h"

#include <fmt/format.h>

namespace ladder::wrong {

Cheat make_cheat(const Pass& pass, char letter, int number, const std::string& name, std::vector<Dtype> dtypes,
                 Launch launch, WorkspaceBytes workspace_bytes, Supports supports) {
  return {.version = {.pass = &pass,
                      .number = number,
                      .idea = name,
                      .file = fmt::format("{}{:02}_{}.cu", letter, number, name),
                      .dtypes = std::move(dtypes),
                      .supports = std::move(supports),
                      .workspace_bytes = std::move(workspace_bytes),
                      .launch = std::move(launch)},
          .honest = name == "honest"};
}

}  // namespace ladder::wrong
