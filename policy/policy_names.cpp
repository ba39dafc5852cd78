#include "policy/policy_names.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include <fmt/format.h>

#include "core/error.h"

namespace ladder::denoise {
namespace {

constexpr std::array<std::string_view, 6> kModules = {
    "diffusion_step_encoder.", "down_modules.", "mid_modules.", "up_modules.", "final_conv.", "local_cond_encoder."};

bool begins_with_module(std::string_view name) {
  return std::ranges::any_of(kModules, [&](std::string_view module) { return name.starts_with(module); });
}

// Returns the prefixes of names before the network's modules, each with its number of tensors.
std::map<std::string, int> prefixes_of(const io::SafetensorsFile& file) {
  std::map<std::string, int> prefixes;
  for (const io::StoredTensor& tensor : file.tensors()) {
    for (const std::string_view module : kModules) {
      const std::size_t position = tensor.name.find(module);
      if (position == tensor.name.npos || (position > 0 && tensor.name[position - 1] != '.')) continue;
      ++prefixes[tensor.name.substr(0, position)];
      break;
    }
  }
  return prefixes;
}

void replace(std::string& text, std::string_view from, std::string_view to) {
  if (const auto position = text.find(from); position != text.npos) text.replace(position, from.size(), to);
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
  // Without a prefix, tensors outside the network are recognised by not beginning with one of its modules.
  return prefix.empty() ? begins_with_module(name) : name.starts_with(prefix);
}

Names names_of(const io::SafetensorsFile& file) {
  const std::map<std::string, int> prefixes = prefixes_of(file);
  if (prefixes.empty()) {
    throw Failure(
        fmt::format("'{}' has no network of a Diffusion Policy: none of its {} tensors is named {}0..., bare or "
                    "after a prefix",
                    file.path().string(), file.tensors().size(), kModules[1]));
  }
  const auto most = std::ranges::max_element(prefixes, {}, [](const auto& entry) { return entry.second; });
  for (const auto& [prefix, count] : prefixes) {
    if (count < most->second || prefix == most->first) continue;
    throw Failure(fmt::format("'{}' has two networks of a Diffusion Policy, '{}{}0...' and '{}{}0...': keep one",
                              file.path().string(), most->first, kModules[1], prefix, kModules[1]));
  }
  Names names{.prefix = most->first};
  names.lerobot = std::ranges::any_of(file.tensors(), [&](const io::StoredTensor& tensor) {
    return names.of_network(tensor.name) && (tensor.name.find(".conv1.block.") != std::string::npos ||
                                             tensor.name.find(".conv2.block.") != std::string::npos);
  });
  return names;
}

}  // namespace ladder::denoise
