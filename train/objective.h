// What a training step minimises, as operations on a tape: how a batch is made on the device, and the loss of a part of it.
#pragma once

#include <cstddef>
#include <vector>

#include "nn/state.h"
#include "runtime/tape.h"

namespace ladder::train {

// Where an array lies that has a row for each sample.
struct Rows {
  const Region* region = nullptr;
  std::size_t offset = 0;  // bytes
  std::size_t row_bytes = 0;
};

class Objective {
 public:
  virtual ~Objective() = default;

  // Samples of a batch, and of a part of it.
  virtual int batch() const = 0;
  virtual int part() const = 0;

  // Of what the host hands over for each step: multiples of 256 at the beginning of an array.
  virtual std::size_t input_bytes() const = 0;

  // Appends what makes the batch of a step out of its inputs, which lie at the beginning of `inputs`.
  virtual void append_batch(Tape& tape, const Region& inputs) const = 0;
  // What a batch consists of then.
  virtual std::vector<Rows> arrays(const Region& inputs) const = 0;

  // Appends the losses [part] and their mean [1], fp32, of a part whose rows of each array begin at `rows`; where the
  // network trains, the backward pass as well.
  virtual void append_loss(Tape& tape, const nn::Binding& binding, const std::vector<Rows>& rows, ValueId losses,
                           ValueId loss) const = 0;
};

}  // namespace ladder::train
