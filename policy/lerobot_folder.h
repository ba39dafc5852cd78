// A folder that LeRobot's save_pretrained wrote for a Diffusion Policy: config.json (sizes, scheduler, steps, the actions
// to execute), model.safetensors, and statistics of normalisation in one of LeRobot's two formats
// (lerobot_statistics.h).
#pragma once

#include <filesystem>

#include "policy/policy_file.h"

namespace ladder::denoise {

// Reads the folder. Actions get LeRobot's un-normalisation. Observations get its normalisation where the network takes
// numbers alone; where it takes pictures' features too, they stay as given. Notes say what is applied. Throws Failure,
// one line with the file and the error: a missing file or setting, one that is not supported, and settings that do not
// fit the tensors. Throws UsageError where a value of `given` is wrong.
PolicyFile read_lerobot_folder(const std::filesystem::path& folder, const Given& given);

}  // namespace ladder::denoise
