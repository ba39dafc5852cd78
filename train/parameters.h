// The parameters of a U-Net: names and shapes as in guided-diffusion's state_dict, and where each lies in the flat
// buffers that hold all of them (values, gradients, Adam's moments, the moving average, the copy that tensor cores
// read).
//
// A buffer has three ranges, so that what is done to many tensors alike is one launch:
//     matrices     weights of convolutions, 1x1 convolutions included: kernels read a copy in the model's dtype, and their
//                  gradients come in that dtype
//     embedding    weights of the time embedding's linear layers, fp32 throughout; those of the residual blocks form one
//                  matrix [rows of all blocks, embedding channels]
//     vectors      biases, gamma, beta: fp32
// Every tensor begins at a multiple of kAlignment elements; elements in between are zero and stay zero.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "train/architecture.h"

namespace ladder::train {

inline constexpr std::int64_t kAlignment = 64;  // elements: 128 bytes of a 16-bit type

inline std::int64_t aligned(std::int64_t elements) { return (elements + kAlignment - 1) / kAlignment * kAlignment; }

struct Parameter {
  enum class Range { matrices, embedding, vectors };
  enum class Start { uniform, zeros, ones };

  std::string name;
  std::vector<std::int64_t>
      shape;  // PyTorch's: [out, in, 3, 3] of a convolution, which lies in memory as [out, 3, 3, in]
  Range range = Range::vectors;
  Start start = Start::uniform;  // uniform: from -1 / sqrt(fan_in) to 1 / sqrt(fan_in)
  std::int64_t fan_in = 1;
  std::int64_t begin = 0;  // in the flat buffers

  std::int64_t elements() const;
  bool is_conv3x3() const { return shape.size() == 4 && shape[2] == 3; }
};

class Parameters {
 public:
  explicit Parameters(const ModelConfig& config);

  // In the order of PyTorch's state_dict.
  const std::vector<Parameter>& all() const { return all_; }
  const Parameter& operator[](std::string_view name) const;  // throws Failure

  std::int64_t count() const;                  // of numbers that are learned
  std::int64_t size() const { return size_; }  // elements of a flat buffer
  std::int64_t matrices_end() const { return matrices_end_; }
  std::int64_t embedding_end() const { return embedding_end_; }

  // The linear layers of all residual blocks as one: weights [embedding_rows, embedding channels] and bias
  // [embedding_rows]. A block's rows begin at embedding_row(its name).
  std::int64_t embedding_rows() const { return embedding_rows_; }
  std::int64_t embedding_row(std::string_view res_block) const;
  std::int64_t embedding_weights_begin() const { return embedding_weights_begin_; }
  std::int64_t embedding_bias_begin() const { return embedding_bias_begin_; }

  // A flat buffer as training begins: PyTorch's default initialisation, drawn from `seed`, and zeros in the last layer
  // of every branch, as guided-diffusion has it.
  std::vector<float> initial(std::uint64_t seed) const;

 private:
  std::vector<Parameter> all_;
  std::unordered_map<std::string, std::size_t> by_name_;
  std::unordered_map<std::string, std::int64_t> embedding_row_;
  std::int64_t size_ = 0;
  std::int64_t matrices_end_ = 0;
  std::int64_t embedding_end_ = 0;
  std::int64_t embedding_rows_ = 0;
  std::int64_t embedding_weights_begin_ = 0;
  std::int64_t embedding_bias_begin_ = 0;
};

}  // namespace ladder::train
