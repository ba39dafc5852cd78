// The parameters of a model: their names and shapes, as a model declares them, and where each lies in the flat buffers
// that hold all of them (values, gradients, Adam's moments, the moving average, the copy that tensor cores read).
//
// A buffer has three ranges, so that what is done to many tensors alike is one launch:
//     matrices       weights of convolutions, 1x1 convolutions included: kernels read a copy in the model's dtype, and
//                    their gradients come in that dtype
//     fp32_matrices  weights of linear layers that are fp32 throughout
//     vectors        biases, gamma, beta: fp32
// Linear layers with the same input can be a group: their weights form one matrix [rows of all, columns], their biases one
// vector, so that one product serves all. Biases of convolutions can be a group of vectors, in the order of declaration as
// those of linear layers are. Every tensor begins at a multiple of kAlignment elements; elements in between
// are zero and stay zero.
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

// What a model learns, in the order of PyTorch's state_dict. Names are those of layers: "<name>.weight", "<name>.bias".
struct Declaration {
  std::vector<Parameter> parameters = {};

  // shape is [out, in, ...]. `zero`: both begin as zeros. `group`: of the bias.
  void conv(const std::string& name, std::vector<std::int64_t> shape, bool zero = false, const std::string& group = {});
  void linear(const std::string& name, std::int64_t in, std::int64_t out, const std::string& group = {});
  void normalisation(const std::string& name, std::int64_t channels);
};

class Parameters {
 public:
  explicit Parameters(Declaration declared);

  // In the order of their declaration.
  const std::vector<Parameter>& all() const { return all_; }
  const Parameter& operator[](std::string_view name) const;  // throws Failure

  std::int64_t count() const;                  // of numbers that are learned
  std::int64_t size() const { return size_; }  // elements of a flat buffer
  std::int64_t matrices_end() const { return matrices_end_; }

  // Where element `begin` lies in a buffer of gradients as layers leave them: those of matrices in `stored`, which is the
  // model's dtype, then the others in fp32. Of size(): the bytes of all.
  std::size_t gradient_offset(std::int64_t begin, Dtype stored) const;

  // The layers of a group as one: weights [rows, columns] and bias [rows]. Of one of biases alone only bias_begin counts.
  struct Group {
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    std::int64_t weights_begin = 0;
    std::int64_t bias_begin = 0;
    std::map<std::string, std::int64_t, std::less<>> row;  // by layer: where its rows begin
  };
  const Group& group(std::string_view name) const;  // throws Failure

  // A flat buffer as training begins: PyTorch's default initialisation, drawn from `seed`, or what was declared.
  std::vector<float> initial(std::uint64_t seed) const;

 private:
  void place_range(Parameter::Range range);
  void place_groups(Parameter::Range range);

  std::vector<Parameter> all_;
  std::unordered_map<std::string, std::size_t> by_name_;
  std::map<std::string, Group, std::less<>> groups_;
  std::int64_t size_ = 0;
  std::int64_t matrices_end_ = 0;
};

}  // namespace ladder::nn
