#include "tests/wrong/cheat.h"

#include <fmt/format.h>

namespace ladder::wrong {

Cheat make_cheat(const Pass& pass, char letter, int number, const std::string& name, std::vector<Dtype> dtypes,
                 Launch launch, WorkspaceBytes workspace_bytes, Supports supports) {
  const auto plans = [launch = std::move(launch), workspace_bytes = std::move(workspace_bytes)](const Case& c) {
    const auto bind = [launch, c](const Pointers& at, void* workspace) -> BoundLaunch {
      std::vector<void*> pointers;
      for (const TensorSpec& spec : c.tensors) pointers.push_back(at[spec.name]);
      return [=](Stream stream) { launch(c, pointers.data(), workspace, stream); };
    };
    return std::vector<KernelPlan<AnyPass>>{{.workspace_bytes = workspace_bytes(c), .bind = bind}};
  };
  return {.version = {.pass = &pass,
                      .letter = letter,
                      .number = number,
                      .idea = name,
                      .file = fmt::format("{}{:02}_{}.cu", letter, number, name),
                      .def = {.plans = plans, .dtypes = std::move(dtypes), .supports = std::move(supports)}},
          .honest = name == "honest"};
}

void launch_version(const Version& v, const Case& c, void* const* pointers, void* workspace, Stream stream) {
  plan(v, c).bind(Pointers(c.tensors, pointers), workspace)(stream);
}

std::size_t workspace_bytes_of(const Version& v, const Case& c) { return plan(v, c).workspace_bytes; }

std::size_t all_bytes(const Case& c) {
  std::size_t bytes = 0;
  for (const TensorSpec& spec : c.tensors) bytes += aligned(spec.bytes());
  return bytes;
}

}  // namespace ladder::wrong
