// Tensors of a pass: their specifications, device pointers and host values. A pass lists them once, in
// tensors(Problem); everything else finds them by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"

namespace ladder {

enum class Role : std::uint8_t {
  input,
  output,
  inout,  // read and then overwritten, as an optimizer's parameters are
};

struct TensorSpec {
  std::string name;  // the paper's letter: "x", "w", "dy"
  Role role = Role::input;
  Dtype dtype = Dtype::f32;         // of stored values
  std::vector<std::int64_t> shape;  // outermost dimension first
  std::string layout;               // one letter per dimension: "nhwc", "krsc"

  // Distribution of an input's random values: normal, or for an integer dtype uniform from low to high, both included
  // and at most 2^24 in magnitude.
  double mean = 0.0;
  double stddev = 1.0;
  std::optional<Dtype> drawn = {};  // dtype to which the values are rounded before `dtype`
  std::int64_t low = 0;
  std::int64_t high = 0;

  // Number of terms in the longest sum of an output's element, and the dtype, if any, to which the formula lets these
  // terms be rounded before they are summed (attention's probabilities).
  std::int64_t reduction_length = 1;
  std::optional<Dtype> intermediate = {};

  std::size_t elements() const;
  std::size_t bytes() const;
  bool is_read() const { return role != Role::output; }
  bool is_written() const { return role != Role::input; }
};

// Tensors that a kernel writes, in order.
std::vector<const TensorSpec*> written(const std::vector<TensorSpec>& specs);

// Least bytes that a kernel has to move.
struct Traffic {
  double read_bytes = 0;
  double write_bytes = 0;
  double bytes() const { return read_bytes + write_bytes; }
};

// Traffic that reads every input once and writes every output once; an inout counts both ways.
Traffic each_once(const std::vector<TensorSpec>& specs);

// Device pointers of a case's tensors, by name.
class Pointers {
 public:
  Pointers(const std::vector<TensorSpec>& specs, void* const* pointers) : specs_(&specs), pointers_(pointers) {}

  // Throws Failure naming the existing tensors.
  void* operator[](std::string_view name) const;

  // Returns null for a tensor that the problem does not have.
  template <class T>
  T* get(std::string_view name) const {
    return static_cast<T*>(find(name));
  }

 private:
  void* find(std::string_view name) const;

  const std::vector<TensorSpec>* specs_;
  void* const* pointers_;
};

// Host values of a case's tensors, in the order of its specs; every value is representable in its tensor's dtype.
// Tensors that are only written are empty.
class HostTensors {
 public:
  HostTensors() = default;
  explicit HostTensors(const std::vector<TensorSpec>& specs, std::vector<std::vector<float>> values = {});

  // Throw Failure naming the existing tensors.
  std::vector<float>& operator[](std::string_view name);
  const std::vector<float>& operator[](std::string_view name) const;

  // Returns null for a tensor that the problem does not have.
  const std::vector<float>* find(std::string_view name) const;

  std::vector<std::vector<float>> values;

 private:
  std::vector<std::string> names_;
};

}  // namespace ladder
