// Configuration of a U-Net: guided-diffusion's UNetModel with conv_resample and resblock_updown off, in any size.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace ladder::nn {

inline constexpr int kImageChannels = 3;
inline constexpr int kGroups = 32;  // of every group normalisation

struct Unet2dConfig {
  int image_size = 64;                               // pixels of a side
  int channels = 64;                                 // of the first level
  std::vector<int> channel_mult = {1, 2, 3, 4};      // by level, times `channels`; each level halves the image
  int res_blocks = 2;                                // per level on the way down; one more on the way up
  std::vector<int> attention_resolutions = {16, 8};  // sides at which every residual block is followed by attention
  int head_size = 32;                                // channels of an attention head: 32 or 64

  // Throws UsageError saying what is wrong and what would be right.
  void check() const;

  int levels() const { return static_cast<int>(channel_mult.size()); }
  int level_channels(int level) const { return channels * channel_mult[level]; }
  int side(int level) const { return image_size >> level; }
  int embedding_channels() const { return 4 * channels; }
  bool attends(int side) const;
  std::int64_t image_elements() const { return std::int64_t{image_size} * image_size * kImageChannels; }

  bool operator==(const Unet2dConfig&) const = default;
};

// Returns a named configuration. "unet64": 20,494,211 parameters. "tiny": for a machine without a GPU. Throws
// UsageError that lists the names.
Unet2dConfig unet2d_config(std::string_view name);

void to_json(nlohmann::json& json, const Unet2dConfig& config);
void from_json(const nlohmann::json& json, Unet2dConfig& config);  // throws UsageError

// Parses a list such as "1,2,3,4". Throws UsageError that calls the list `what`.
std::vector<int> parse_list(std::string_view text, std::string_view what);

}  // namespace ladder::nn
