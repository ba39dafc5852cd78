#include "runtime/chosen_versions.h"

#include <fmt/format.h>

#include "core/backend.h"

namespace ladder {
namespace {

// Versions that tf32 uses for these passes unless --use names others: the newest ones are held back. On an H100 three
// processes of seven that trained in tf32 with the newest versions of these passes stopped answering; each version by
// itself passes all its checks there, and nobody knows yet which one it is.
constexpr const char* kHeldBackInTf32 = "attention/backward=v02,attention/forward=v02,conv3x3/wgrad=v05";

}  // namespace

Promotions chosen_versions(Dtype dtype, const std::string& use) {
  Promotions promotions = Promotions::for_device(backend::device().slug);
  if (dtype == Dtype::tf32) promotions.use(kHeldBackInTf32);
  if (!use.empty()) promotions.use(use);
  return promotions;
}

void explain(const Program& program) {
  for (std::size_t i = 0; i < program.tape().operations().size(); ++i) {
    const Operation& operation = program.tape().operations()[i];
    const VersionChoice& choice = program.choice(i);
    fmt::print("{:<36} {:<24} {:<52} {:<26} {}\n", operation.name, operation.problem.pass->path(),
               operation.problem.text, choice.version->label(), choice.reason);
  }
}

}  // namespace ladder
