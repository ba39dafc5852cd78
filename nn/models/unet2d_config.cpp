#include "nn/models/unet2d_config.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/json_fields.h"

namespace ladder::nn {
namespace {

// Limits above any network that is trained, yet low enough to count and lay out parameters before memory is allocated.
constexpr int kMostSide = 1 << 15, kMostChannels = 1 << 14, kMostMultiple = 64, kMostBlocks = 1000, kMostLevels = 12;

void check_range(const char* what, int value, int most) {
  if (value >= 1 && value <= most) return;
  throw UsageError(fmt::format("{} {}: 1 to {} are right", what, value, most));
}

}  // namespace

void Unet2dConfig::check() const {
  check_range("image size", image_size, kMostSide);
  check_range("channels", channels, kMostChannels);
  check_range("res-blocks", res_blocks, kMostBlocks);
  if (channel_mult.empty()) throw UsageError("channel multipliers are a list of numbers, such as 1,2,3,4");
  for (const int multiple : channel_mult) check_range("channel multiplier", multiple, kMostMultiple);
  if (levels() > kMostLevels || image_size % (1 << (levels() - 1)) != 0) {
    throw UsageError(
        fmt::format("an image of {} pixels a side cannot be halved {} times, once for each of {} levels but the last",
                    image_size, levels() - 1, levels()));
  }
  if (head_size != 32 && head_size != 64) throw UsageError(fmt::format("the head size is 32 or 64, not {}", head_size));
  for (int level = 0; level < levels(); ++level) {
    if (level_channels(level) % kGroups != 0) {
      throw UsageError(
          fmt::format("level {} has {} channels: they must be a multiple of the {} groups of its normalisation", level,
                      level_channels(level), kGroups));
    }
    if (attends(side(level)) && level_channels(level) % head_size != 0) {
      throw UsageError(fmt::format("attention at {}x{}: {} channels are no multiple of the head size {}", side(level),
                                   side(level), level_channels(level), head_size));
    }
  }
  // The middle block attends at the smallest side, whatever the list says.
  const int last = levels() - 1;
  if (level_channels(last) % head_size != 0) {
    throw UsageError(fmt::format("attention in the middle: {} channels are no multiple of the head size {}",
                                 level_channels(last), head_size));
  }
  constexpr int kMaxSide = 32;  // 1024 tokens
  for (const int resolution : attention_resolutions) {
    if (resolution > kMaxSide) {
      throw UsageError(fmt::format("attention at {0}x{0} pixels: at most {1}x{1}", resolution, kMaxSide));
    }
    bool there = false;
    for (int level = 0; level < levels(); ++level) there = there || side(level) == resolution;
    if (!there) throw UsageError(fmt::format("attention at {0}x{0} pixels: no level has that size", resolution));
  }
  if (side(last) > kMaxSide) {
    throw UsageError(fmt::format("attention in the middle is at {0}x{0} pixels: at most {1}x{1}; give more levels",
                                 side(last), kMaxSide));
  }
}

bool Unet2dConfig::attends(int side) const { return std::ranges::count(attention_resolutions, side) > 0; }

Unet2dConfig unet2d_config(std::string_view name) {
  if (name == "unet64") return {};
  if (name == "tiny") {
    return {.image_size = 8, .channels = 64, .channel_mult = {1, 2}, .res_blocks = 1, .attention_resolutions = {4}};
  }
  throw UsageError(fmt::format("no configuration '{}'; there are: unet64, tiny", name));
}

void to_json(nlohmann::json& json, const Unet2dConfig& config) {
  json = {{"image_size", config.image_size},
          {"channels", config.channels},
          {"channel_mult", config.channel_mult},
          {"res_blocks", config.res_blocks},
          {"attention_resolutions", config.attention_resolutions},
          {"head_size", config.head_size}};
}

void from_json(const nlohmann::json& json, Unet2dConfig& config) {
  const JsonFields fields(json, "the model's", JsonFields::Missing::is_wrong);
  fields.read("image_size", config.image_size);
  fields.read("channels", config.channels);
  fields.read("channel_mult", config.channel_mult, kMostLevels, 1, kMostMultiple);
  fields.read("res_blocks", config.res_blocks);
  fields.read("attention_resolutions", config.attention_resolutions, kMostLevels, 1, kMostSide);
  fields.read("head_size", config.head_size);
  config.check();
}

std::vector<int> parse_list(std::string_view text, std::string_view what) {
  std::vector<int> numbers;
  const char* begin = text.data();
  const char* const end = begin + text.size();
  while (begin != end) {
    int number = 0;
    const auto [parse_end, error] = std::from_chars(begin, end, number);
    if (error != std::errc{} || (parse_end != end && *parse_end != ',') || parse_end + 1 == end) {
      throw UsageError(fmt::format("{} is a list of numbers such as 1,2,3, not '{}'", what, text));
    }
    numbers.push_back(number);
    begin = parse_end == end ? end : parse_end + 1;
  }
  return numbers;
}

}  // namespace ladder::nn
