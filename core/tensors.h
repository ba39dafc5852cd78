// The tensors of a pass: what they are, where they lie on the device, and what they hold on the host. A pass lists them
// once, in tensors(Problem); everybody else finds them by name.
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
  Dtype dtype = Dtype::f32;         // how it is stored and rounded
  std::vector<std::int64_t> shape;  // outermost dimension first
  std::string layout;               // a letter a dimension: "nhwc", "krsc"

  // Of the random values that an input begins with: normal, or, of an integer dtype, uniform from low to high, both
  // included and at most 2^24 in magnitude.
  double mean = 0.0;
  double stddev = 1.0;
  std::optional<Dtype> drawn = {};  // a dtype to which those values are rounded besides
  std::int64_t low = 0;
  std::int64_t high = 0;

  // Of an output: the longest sum of one of its elements, and the dtype to which the formula lets its terms be
  // rounded on their way into that sum (attention's probabilities), if it does.
  std::int64_t reduction_length = 1;
  std::optional<Dtype> intermediate = {};

  std::size_t elements() const;
  std::size_t bytes() const;
  bool is_read() const { return role != Role::output; }
  bool is_written() const { return role != Role::input; }
};

// Those that a kernel writes, in order.
std::vector<const TensorSpec*> written(const std::vector<TensorSpec>& specs);

// Bytes that a kernel has to move at least.
struct Traffic {
  double read_bytes = 0;
  double write_bytes = 0;
  double bytes() const { return read_bytes + write_bytes; }
};

// Every input once, every output once, an inout both ways.
Traffic each_once(const std::vector<TensorSpec>& specs);

// Device pointers of a case's tensors, by name.
class Pointers {
 public:
  Pointers(const std::vector<TensorSpec>& specs, void* const* pointers) : specs_(&specs), pointers_(pointers) {}

  // Throws Failure naming the tensors that there are.
  void* operator[](std::string_view name) const;

  // Null for a tensor that the problem does not have.
  template <class T>
  T* get(std::string_view name) const {
    return static_cast<T*>(find(name));
  }

 private:
  void* find(std::string_view name) const;

  const std::vector<TensorSpec>* specs_;
  void* const* pointers_;
};

// Host values of a case's tensors, in the order of its specs; every value is representable in its tensor's dtype. What
// is only written is empty.
class HostTensors {
 public:
  HostTensors() = default;
  explicit HostTensors(const std::vector<TensorSpec>& specs, std::vector<std::vector<float>> values = {});

  // Throw Failure naming the tensors that there are.
  std::vector<float>& operator[](std::string_view name);
  const std::vector<float>& operator[](std::string_view name) const;

  // Null for a tensor that the problem does not have.
  const std::vector<float>* find(std::string_view name) const;

  std::vector<std::vector<float>> values;

 private:
  std::vector<std::string> names_;
};

}  // namespace ladder
