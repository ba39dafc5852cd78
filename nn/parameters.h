// The parameters of a model: names and shapes, as the model declares them, and each parameter's offset in the flat
// buffers that hold all of them (values, gradients, Adam's moments, the moving average, the copy that tensor cores
// read).
//
// A buffer has three ranges, so that an operation on all tensors of a kind is one launch:
//     matrices       weights of convolutions, 1x1 convolutions included: kernels read a copy in the model's dtype, and
//                    their gradients come in that dtype
//     fp32_matrices  weights of linear layers, which are fp32 throughout
//     vectors        biases, gamma, beta: fp32
// Linear layers with the same input can be a group: their weights form one matrix [rows of all layers, columns], their
// biases one vector, so that one product computes all layers. Biases of convolutions can be a group of vectors. Members
// of a group are in the order of declaration. Every tensor begins at a multiple of kAlignment elements; padding
// elements are zero and stay zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/dtype.h"

namespace ladder::nn {

inline constexpr std::int64_t kAlignment = 64;  // elements: 128 bytes of a 16-bit type

inline std::int64_t aligned(std::int64_t elements) { return (elements + kAlignment - 1) / kAlignment * kAlignment; }

struct Parameter {
  enum class Range { matrices, fp32_matrices, vectors };
  enum class Start { uniform, zeros, ones };

  std::string name;
  std::vector<std::int64_t>
      shape;  // PyTorch's: [out, in, 3, 3] of a convolution, which lies in memory as [out, 3, 3, in]
  Range range = Range::vectors;
  Start start = Start::uniform;  // uniform: from -1 / sqrt(fan_in) to 1 / sqrt(fan_in)
  std::int64_t fan_in = 1;
  std::string group = {};  // empty: none
  std::int64_t begin = 0;  // in the flat buffers

  std::int64_t elements() const;
};

// Parameters that a model declares, in the order of PyTorch's state_dict, named "<layer>.weight" and "<layer>.bias".
struct Declaration {
  std::vector<Parameter> parameters = {};

  // `shape` is the weight's, [out, in, ...]. `zero`: weight and bias begin as zeros. `group`: the group of the bias.
  void conv(const std::string& name, std::vector<std::int64_t> shape, bool zero = false, const std::string& group = {});
  void linear(const std::string& name, std::int64_t in, std::int64_t out, const std::string& group = {});
  void normalisation(const std::string& name, std::int64_t channels);
};

class Parameters {
 public:
  explicit Parameters(Declaration declared);

  // All parameters, in the order of declaration.
  const std::vector<Parameter>& all() const { return all_; }
  const Parameter& operator[](std::string_view name) const;  // throws Failure

  std::int64_t count() const;                                  // learned elements, without padding
  std::int64_t size() const { return size_; }                  // elements of a flat buffer
  std::int64_t matrices_end() const { return matrices_end_; }  // the end of the range `matrices`
  std::int64_t vectors_begin() const { return vectors_begin_; }

  // Byte offset of element `begin` in a buffer of gradients as layers write them: those of matrices in `stored`, the
  // model's storage dtype, then the others in fp32. gradient_offset(size(), stored) is the size of the buffer in bytes.
  std::size_t gradient_offset(std::int64_t begin, Dtype stored) const;

  // A group of layers as one layer: weights [rows, columns] and bias [rows]. A group of biases sets only bias_begin.
  struct Group {
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    std::int64_t weights_begin = 0;
    std::int64_t bias_begin = 0;
    std::map<std::string, std::int64_t, std::less<>> row;  // layer name to its first row
  };
  const Group& group(std::string_view name) const;  // throws Failure

  // Initial values as a flat buffer: PyTorch's default initialisation drawn from `seed`, or zeros or ones where so
  // declared.
  std::vector<float> initial(std::uint64_t seed) const;

 private:
  void place_range(Parameter::Range range);
  void place_groups(Parameter::Range range);

  std::vector<Parameter> all_;
  std::unordered_map<std::string, std::size_t> by_name_;
  std::map<std::string, Group, std::less<>> groups_;
  std::int64_t size_ = 0;
  std::int64_t matrices_end_ = 0;
  std::int64_t vectors_begin_ = 0;
};

}  // namespace ladder::nn
