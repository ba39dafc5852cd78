#include "policy/policy_names.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"

namespace ladder::denoise {
namespace {

constexpr std::array<const char*, 3> kPrefixes = {"", "model.", "diffusion.unet."};
constexpr std::array<std::string_view, 6> kModules = {"diffusion_step_encoder.", "down_modules.", "mid_modules.",
                                                      "up_modules.", "final_conv.", "local_cond_encoder."};

bool begins_with_module(std::string_view name) {
  return std::ranges::any_of(kModules, [&](std::string_view module) { return name.starts_with(module); });
}

void replace(std::string& text, std::string_view from, std::string_view to) {
  if (const auto at = text.find(from); at != text.npos) text.replace(at, from.size(), to);
}

}  // namespace

std::string Names::in_file(const std::string& published) const {
  std::string name = published;
  if (lerobot) {
    replace(name, ".blocks.0.", ".conv1.");
    replace(name, ".blocks.1.", ".conv2.");
    replace(name, ".2.conv.", ".2.");
  }
  return prefix + name;
}

bool Names::of_network(const std::string& name) const {
  // Without a prefix all that a policy has besides its network has another name.
  return prefix.empty() ? begins_with_module(name) : name.starts_with(prefix);
}

Names names_of(const io::SafetensorsFile& file) {
  Names names;
  std::ptrdiff_t most = 0;
  for (const char* prefix : kPrefixes) {
    const auto count = std::ranges::count_if(file.tensors(), [&](const io::StoredTensor& tensor) {
      const std::string_view name = tensor.name;
      return name.starts_with(prefix) && begins_with_module(name.substr(std::string_view(prefix).size()));
    });
    if (count > most) names.prefix = prefix;
    most = std::max(most, count);
  }
  if (most == 0) {
    throw Failure(fmt::format("'{}' has no network of a Diffusion Policy: none of its {} tensors is named {}..., bare or "
                              "after model. or diffusion.unet.",
                              file.path().string(), file.tensors().size(), kModules[1]));
  }
  names.lerobot = std::ranges::any_of(file.tensors(), [&](const io::StoredTensor& tensor) {
    return names.of_network(tensor.name) && (tensor.name.find(".conv1.block.") != std::string::npos ||
                                             tensor.name.find(".conv2.block.") != std::string::npos);
  });
  return names;
}

}  // namespace ladder::denoise
