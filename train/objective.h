// A training objective as operations on a tape: making a batch on the device, and the loss of a part (micro-batch) of
// it.
#pragma once

#include <cstddef>
#include <vector>

#include "nn/state.h"
#include "runtime/tape.h"

namespace ladder::train {

// Location of an array with one row per sample.
struct ArrayRows {
  const Region* region = nullptr;
  std::size_t offset = 0;  // bytes
  std::size_t row_bytes = 0;
};

class Objective {
 public:
  virtual ~Objective() = default;

  // Number of samples of a batch, and of a part of it.
  virtual int batch() const = 0;
  virtual int part() const = 0;

  // Size in bytes of the inputs that the host copies in for each step. Every array begins at a multiple of 256 bytes.
  virtual std::size_t input_bytes() const = 0;

  // Appends the operations that make a step's batch from its inputs, which lie at the beginning of `inputs`.
  virtual void append_batch(Tape& tape, const Region& inputs) const = 0;
  // The arrays of the batch that append_batch() makes.
  virtual std::vector<ArrayRows> arrays(const Region& inputs) const = 0;

  // Appends the losses [part] and their mean [1], fp32, of a part of the batch; `rows` locates the part's rows of each
  // array. Where the network trains, appends the backward pass as well.
  virtual void append_loss(Tape& tape, const nn::Binding& binding, const std::vector<ArrayRows>& rows, ValueId losses,
                           ValueId loss) const = 0;
};

}  // namespace ladder::train
