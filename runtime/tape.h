// A tape: the operations of a step on values, before versions are chosen and memory is allocated. An operation is a
// problem of a pass, with a value for each of its tensors; the pass defines which of them it reads and writes.
//
// Forward and backward are recorded together: code that adds an operation also registers its gradient operations
// (on_backward), and backward() appends those, the last first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/registry.h"
#include "runtime/region.h"

namespace ladder {

struct Value {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<std::int64_t> shape;
  // Region of the value; null: in the arena, from the operation that writes the value first to the one that reads it
  // last.
  const Region* region = nullptr;
  std::size_t offset = 0;  // bytes, in the region
  // True if several operations write parts of the value: it has memory of its own, which begins as zeros.
  bool in_parts = false;
  // True if the loss depends on the value by way of a parameter. Operations make no gradient of other values, such as
  // inputs.
  bool requires_grad = false;

  std::int64_t elements() const;
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * size_of(dtype); }
};

using ValueId = int;
inline constexpr ValueId kNoValue = -1;

struct Operation {
  std::string name;  // the layer's: "input_blocks.1.0.in_layers.2"
  Case problem;
  std::vector<ValueId> values;  // in the order of problem.tensors
  bool side_stream = false;     // may run on the side stream, at the same time as others
};

class Tape {
 public:
  using Tensors = std::initializer_list<std::pair<std::string_view, ValueId>>;

  ValueId value(std::string name, Dtype dtype, std::vector<std::int64_t> shape);  // in the arena
  ValueId value(std::string name, Dtype dtype, std::vector<std::int64_t> shape, const Region& region,
                std::size_t offset_bytes = 0);

  ValueId value_in_parts(std::string name, Dtype dtype, std::vector<std::int64_t> shape);
  void set_requires_grad(ValueId id) { values_[id].requires_grad = true; }

  // Append an operation of pass P, with a value for every tensor of the problem, by name; kNoValue for a tensor that
  // this problem lacks. Throws Failure if a tensor has no value, or a value of another size or dtype (tf32 is stored as
  // fp32).
  template <class P>
  void run(const std::string& name, const typename P::Problem& problem, Tensors tensors) {
    run(name, case_of<P>(problem), tensors);
  }
  void run(const std::string& name, Case problem, Tensors tensors);

  // Append an operation that may run beside all others that share no value with it.
  template <class P>
  void run_on_side_stream(const std::string& name, const typename P::Problem& problem, Tensors tensors) {
    const bool before = std::exchange(side_stream_, true);
    run<P>(name, problem, tensors);
    side_stream_ = before;
  }

  // Appends an operation y = a + b. The three values have one shape and one dtype.
  using Addition = void (*)(Tape& tape, const std::string& name, ValueId a, ValueId b, ValueId y);

  // Gradients of the loss. add_gradient() names a summand. gradient() appends additions if there are several, and throws
  // Failure if there is none.
  void add_gradient(ValueId of, ValueId gradient);
  // Name the complete sum: an operation has added to the summands so far.
  void replace_gradient(ValueId of, ValueId gradient);
  bool has_gradient(ValueId of) const { return num_gradients(of) > 0; }
  int num_gradients(ValueId of) const;  // summands so far
  ValueId gradient(ValueId of, Addition append_addition);
  // Remove and return the summands, for an operation that adds them up itself.
  std::vector<ValueId> take_gradients(ValueId of);

  // Register `step`, which appends gradient operations when backward() reaches it.
  void on_backward(std::function<void()> step) { backward_.push_back({std::move(step), side_stream_}); }
  void backward();

  // Let operations that are appended from now on, and those that their gradients add, run beside all others that share
  // no value with them: for chains of small operations.
  void set_side_stream(bool on) { side_stream_ = on; }

  const std::vector<Value>& values() const { return values_; }
  const std::vector<Operation>& operations() const { return operations_; }
  void set_operations(std::vector<Operation> operations) { operations_ = std::move(operations); }  // on these values
  const Value& operator[](ValueId id) const { return values_[id]; }
  double flops() const;

 private:
  std::vector<Value> values_;
  std::vector<Operation> operations_;
  std::vector<std::vector<ValueId>> gradients_;  // by value: the summands
  struct BackwardStep {
    std::function<void()> append;
    bool side_stream;
  };
  std::vector<BackwardStep> backward_;
  bool side_stream_ = false;
};

}  // namespace ladder
