// Fuzz the JSON that files hold. The first byte selects: after 't' a training's configuration, after any other byte a
// policy's metadata.
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/json_fields.h"
#include "dev/diffusion/scheduler.h"
#include "nn/models/unet1d_weights.h"
#include "policy/policy_file.h"
#include "tests/fuzz/memory_file.h"
#include "train/training_config.h"

namespace ladder {
namespace {

using nlohmann::json;

// An accepted configuration must survive the round trip through its own text.
void read_training(const std::string& text) {
  const json made = parse_object(text, "it").get<train::TrainingConfig>();
  if (json(json::parse(made.dump()).get<train::TrainingConfig>()) != made) std::abort();
}

// Returns a small policy's file: header with this metadata, and all tensors zero.
std::string policy_with(const std::string& metadata) {
  const nn::Unet1dConfig small = {.horizon = 16, .dims = {8, 16}, .step_channels = 8, .observation = 6, .groups = 8};
  json header;
  std::size_t end = 0;
  for (const nn::PublishedTensor& tensor : nn::published_tensors(small)) {
    const std::size_t begin = end;
    end += static_cast<std::size_t>(tensor.elements()) * sizeof(float);
    header[tensor.name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
  }
  header["__metadata__"] = {{denoise::kMetadataKey, metadata}};
  const std::string text = header.dump(-1, ' ', false, json::error_handler_t::replace);
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text + std::string(end, '\0');
}

void read_policy(const std::string& text) {
  const fuzz::MemoryFile file(policy_with(text));
  const denoise::PolicyFile policy = denoise::read_policy(file.path(), {});
  diffusion::SchedulerConfig::from_json(policy.scheduler.dump());
}

}  // namespace
}  // namespace ladder

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    data[0] == 't' ? ladder::read_training(text) : ladder::read_policy(text);
  } catch (const ladder::Failure&) {
  } catch (const ladder::UsageError&) {
  }
  return 0;
}
