// Checkpoints: a training's whole state on disk, and the weights alone as PyTorch reads and writes them.
//
//     RUN/checkpoints/step_00001000/model.safetensors      weights in fp32, named as guided-diffusion's
//                                  /ema.safetensors        their moving average, under the same names
//                                  /optimizer.safetensors  Adam's moments, "m.<name>" and "v.<name>"
//                    /latest                               "step_00001000": the one that was written last
//
// Each of the files has all of the metadata, so that three of different checkpoints cannot pass for one, and besides
// "contents", "model", "ema" or "optimizer", and "digest", of its tensors' bytes. A step's folder takes its name when it is whole and on the disk. What ends in
// ".partial" or ".replaced" was left behind by a process that was killed; nobody reads it, and the next
// write_checkpoint() clears it up. One process at a time may write to a run.
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

// A parameter, all four in PyTorch's layout (io/layout.h) and as many as the shape has elements.
struct CheckpointTensor {
  std::string name;
  io::Shape shape;
  std::vector<float> weight;
  std::vector<float> ema;  // exponential moving average of the weight
  std::vector<float> m;    // Adam's first moment
  std::vector<float> v;    // and its second
};

// The metadata needs "step", a whole number, which names the folder. The trainer keeps there what else it takes to go
// on: images seen, seed, resolved configuration, the data's digest, promoted versions, device, counters. "schema",
// "contents" and "digest" are write_checkpoint()'s.
struct Checkpoint {
  io::Metadata metadata;
  std::vector<CheckpointTensor> tensors;
};

// Writes `checkpoint` below the run's folder, which is made if need be, replaces one of the same step, and points
// `latest` at it. Returns the step's folder. After a Failure, such as a full disk, what was there before is still
// there, whole.
std::filesystem::path write_checkpoint(const std::filesystem::path& run, const Checkpoint& checkpoint);

// Removes the checkpoints with the lowest steps until `keep` are left (1 or more); never that which `latest` names.
void prune(const std::filesystem::path& run, int keep);

// Whether the run has a complete checkpoint.
bool has_checkpoint(const std::filesystem::path& run);

// The step's folder that a person's `path` means: itself, or of a run's folder (or its checkpoints/) the complete one
// that `latest` names, failing that the one with the highest step.
std::filesystem::path find_checkpoint(const std::filesystem::path& path);

// Take what find_checkpoint() does. The metadata is that of model.safetensors, its schema checked; without "schema",
// "contents" and "digest". read_checkpoint() has checked besides that all is there, undamaged, of one checkpoint, and
// alike in names and shapes, but cannot know which a model has: see expect(). Tensors are in the order in which they
// were written.
io::Metadata read_metadata(const std::filesystem::path& path);
Checkpoint read_checkpoint(const std::filesystem::path& path);

// The checkpoint that a training goes on from: the newest of the run's complete ones that is not damaged. What is wrong
// with newer ones is added to `damaged`, a line each. Throws the newest one's Failure where all are.
Checkpoint read_newest(const std::filesystem::path& run, std::vector<std::string>& damaged);
// The metadata of the newest whose model.safetensors begins as it should.
io::Metadata read_newest_metadata(const std::filesystem::path& run);

// As expect() of train/weights.h.
void expect(const std::string& what, const Checkpoint& found, const std::vector<ExpectedTensor>& expected);

// A value of a checkpoint's metadata; throw Failure where there is none, or no whole number of 0 or more.
const std::string& text_in(const io::Metadata& metadata, const std::string& key);
std::int64_t number_in(const io::Metadata& metadata, const std::string& key);

}  // namespace ladder::train
