// Checkpoints: a training's whole state on disk, and the weights alone as PyTorch reads and writes them.
//
//     RUN/checkpoints/step_00001000/model.safetensors      weights in fp32, named as guided-diffusion's
//                                  /ema.safetensors        their moving average, under the same names
//                                  /optimizer.safetensors  Adam's moments, "m.<name>" and "v.<name>"
//                    /latest                               "step_00001000": the checkpoint written last
//
// Each file has all of the metadata, so that files of different checkpoints cannot pass for one checkpoint. Each file
// also has "contents" ("model", "ema" or "optimizer") and "digest", of its tensors' bytes. A step's folder gets its
// name once it is complete and on disk. A folder that ends in ".partial" or ".replaced" was left behind by a killed
// process: it is not read, and the next write_checkpoint() removes it or restores its name. One process at a time may
// write to a run.
//
// Errors are a Failure of one line that names the file or folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "train/weights.h"

namespace ladder::train {

inline constexpr const char* kCheckpointSchema = "ladder.checkpoint/1";

// A parameter with its moving average and moments, each in PyTorch's layout (io/layout.h) with the elements of `shape`.
struct CheckpointTensor {
  std::string name;
  io::Shape shape;
  std::vector<float> weight;
  std::vector<float> ema;  // exponential moving average of the weight
  std::vector<float> m;    // Adam's first moment
  std::vector<float> v;    // Adam's second moment
};

// The metadata must have "step", a whole number that names the folder. The trainer stores there everything else that
// resuming needs: images seen, seed, resolved configuration, the data's digest, promoted versions, device, counters.
// write_checkpoint() adds "schema", "contents" and "digest".
struct Checkpoint {
  io::Metadata metadata;
  std::vector<CheckpointTensor> tensors;
};

// Writes `checkpoint` below the run's folder, which is created if missing, replaces a checkpoint of the same step, and
// points `latest` at the new one. Returns the step's folder. After a Failure, such as a full disk, earlier checkpoints
// are intact.
std::filesystem::path write_checkpoint(const std::filesystem::path& run, const Checkpoint& checkpoint);

// Removes the checkpoints with the lowest steps until `keep` (at least 1) are left. Never removes the one named by
// `latest`.
void prune(const std::filesystem::path& run, int keep);

// Returns whether the run has a complete checkpoint.
bool has_checkpoint(const std::filesystem::path& run);

// Returns the step's folder for a `path` given by a user. A step's folder stands for itself. A run's folder, or its
// checkpoints/, stands for the complete checkpoint named by `latest`, else for the complete one with the highest step.
std::filesystem::path find_checkpoint(const std::filesystem::path& path);

// read_metadata() and read_checkpoint() accept the paths that find_checkpoint() accepts. The metadata is that of
// model.safetensors after a check of its schema, without "schema", "contents" and "digest". read_checkpoint() also
// checks that the three files are complete, undamaged, of one checkpoint, and agree in names and shapes. It does not
// compare these with a model's: see expect(). Tensors are in the order in which they were written.
io::Metadata read_metadata(const std::filesystem::path& path);
Checkpoint read_checkpoint(const std::filesystem::path& path);

// Reads the checkpoint to resume from: the run's newest complete checkpoint that is not damaged. Adds a line to
// `damaged` for each newer one that is. Throws the newest checkpoint's Failure where all are damaged.
Checkpoint read_newest(const std::filesystem::path& run, std::vector<std::string>& damaged);
// Reads the metadata of the newest checkpoint whose model.safetensors has a readable header.
io::Metadata read_newest_metadata(const std::filesystem::path& run);

// Overload of expect() of train/weights.h for a checkpoint's tensors.
void expect(const std::string& what, const Checkpoint& found, const std::vector<ExpectedTensor>& expected);

// text_in() and number_in() return a value of a checkpoint's metadata. They throw Failure where it is missing;
// number_in() also where it is not a whole number of 0 or more.
const std::string& text_in(const io::Metadata& metadata, const std::string& key);
std::int64_t number_in(const io::Metadata& metadata, const std::string& key);

}  // namespace ladder::train
