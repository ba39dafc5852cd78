// Layers of a network: each appends its forward pass to a tape and, where the network trains, registers its backward
// pass. Images are [n, h, w, c] and sequences [n, l, c] in the model's storage dtype, rows [n, c] in fp32. Sizes come
// from the values. `name` is the name of the layer's parameters, without ".weight" and ".bias".
#pragma once

#include <functional>
#include <map>
#include <string>

#include "dev/conv1d/conv1d.h"
#include "dev/conv3x3/conv3x3.h"
#include "dev/gemm/gemm.h"
#include "dev/groupnorm/groupnorm.h"
#include "nn/state.h"
#include "runtime/tape.h"

namespace ladder::nn {

// A Tape::Addition of values [n, h, w, c], [n, h, c], [n, c] or [c]; dimensions between h and c count as columns.
void append_addition(Tape& tape, const std::string& name, ValueId a, ValueId b, ValueId y);

class Layers {
 public:
  // The Layers object must live until the tape's backward().
  Layers(Tape& tape, const Binding& binding) : tape_(tape), net_(binding) {}

  bool trains() const { return net_.gradients != nullptr; }
  Dtype stored() const { return storage_dtype(net_.dtype); }
  void set_side_stream(bool on) { tape_.set_side_stream(on); }  // see Tape

  // 3x3 convolution with padding 1. Returns [n, h, w, out], stored in `result` if given.
  ValueId conv3x3(const std::string& name, ValueId x, int out, const Region* result = nullptr);

  // 3x3 convolution followed by add_rows() or residual() of the block `name`: one operation where a version of the
  // convolution fuses the addition. conv3x3_add_rows(): where set_rows() was given `biases`, the convolution's bias is
  // in that group and gets its gradient there.
  ValueId conv3x3_add_rows(const std::string& conv, ValueId x, int out, const std::string& name,
                           const std::string& group, const std::string& layer);
  ValueId conv3x3_residual(const std::string& conv, ValueId x, int out, const std::string& name, ValueId residual);

  // 1x1 convolution of images, plus `residual` if given.
  ValueId conv1x1(const std::string& name, ValueId x, int out, ValueId residual = kNoValue);

  // 1x1 convolution in two parts: layers that compute the residual from x are appended in between. Backward computes
  // the convolution's input gradient after those layers' gradients of x, and adds them in the same operation.
  ValueId begin_conv1x1(const std::string& name, ValueId x, int out);
  void finish_conv1x1(ValueId y, const std::string& name, ValueId x, ValueId residual);

  ValueId group_norm(const std::string& name, ValueId x, int groups,
                     groupnorm::Activation activation = groupnorm::Activation::identity);

  // Attention over qkv [n, h, w, 3 c], whose channels are q, k, v of each head in turn. Returns [n, h, w, c].
  ValueId attention(const std::string& name, ValueId qkv, int head_size);

  ValueId residual(const std::string& name, ValueId a, ValueId b);

  // Concatenation of channels, a then b, as input of group_norm() and conv1x1(). They read a and b directly where a
  // version supports it, and append the copy that joins them otherwise. A 1x1 convolution that reads the concatenation
  // computes its gradient.
  ValueId concat(const std::string& name, ValueId a, ValueId b);

  ValueId pool(const std::string& name, ValueId x);      // mean of 2x2 pixels
  ValueId upsample(const std::string& name, ValueId x);  // each pixel as 2x2

  // Layers of rows, fp32 throughout.
  ValueId linear(const std::string& name, ValueId x, int out);
  ValueId silu(const std::string& name, ValueId x);
  ValueId sinusoids(const std::string& name, ValueId t, int channels);  // of time steps [n], int32 or fp32

  // All linear layers of a group as one product. Returns [n, rows], stored in `result` if given.
  ValueId linear_group(const std::string& group, ValueId x, const Region* result = nullptr);

  // set_rows() makes `rows`, the output of linear_group() or some rows of it, the rows that add_rows() uses for
  // `group`. add_rows() adds the slice of one layer to every pixel of x. `biases` is the group of biases of the
  // convolutions that slices are added to, in the same order. Their gradients are the slices' gradients summed over the
  // images, in one operation.
  void set_rows(const std::string& group, ValueId rows, const std::string& biases = {});
  ValueId add_rows(const std::string& name, ValueId x, const std::string& group, const std::string& layer);

  // Layers of sequences: forward pass only.

  // Input of an operation: x, or the concatenation of x and `x_rest` along the channels.
  struct Input {
    ValueId x, x_rest = kNoValue;
  };
  // FiLM: scales and shifts of channels, or shifts alone, computed by a group of linear layers. They are the sum of row
  // `step` of `table` [steps, rows of the group], shared by all samples, and of `rows` [n, rows of the group]. A
  // layer's slice holds its scales, then its shifts.
  struct Film {
    std::string group = {};
    const Region* table = nullptr;
    int step = 0;
    const Region* rows = nullptr;
    bool scales = true;
  };
  void set_film(const Film& film) { film_ = film; }

  // 1-D convolution, plus `residual` if given. halving: 3 taps, stride 2. doubling: transposed, 4 taps.
  enum class Conv1d { plain, halving, doubling };
  ValueId conv1d(const std::string& name, ValueId x, Conv1d kind, ValueId residual = kNoValue);
  // Returns `sum` plus a plain convolution of x without bias: x holds further input channels of the convolution `name`,
  // whose weights are the parameter `name`.weight`suffix`.
  ValueId conv1d_more(const std::string& name, const std::string& suffix, ValueId x, ValueId sum);

  // Mish(GroupNorm(convolution)), with parameters `name`.block.0 and `name`.block.1. The result is scaled and shifted
  // by the rows of `layer` in the group of set_film() if `layer` is given, then `residual` is added if given.
  ValueId conv1d_block(const std::string& name, const Input& in, int groups, const std::string& layer,
                       ValueId residual);

 private:
  struct Concatenation {
    ValueId a, b;
    bool joined = false;  // an operation has written the concatenated value
  };
  struct GroupRows {
    ValueId y = kNoValue;   // [n, rows of the group]
    ValueId dy = kNoValue;  // [n, rows of the group]: one operation per layer writes its slice
    std::string biases = {};
  };
  // Rows added to all pixels of a value.
  struct RowsAdded {
    ValueId dy;  // [n, pitch]: gradient of the rows, from column `first` on
    int pitch, first;
    ValueId summed_in = kNoValue;  // the value's gradient that is already summed over pixels into dy
  };
  // Operations fused into a normalisation's backward pass: adding addends to dx, or summing dx over pixels into de.
  struct GroupNormNeighbours {
    groupnorm::Problem problem;
    ValueId addend = kNoValue, addend2 = kNoValue, de = kNoValue;
  };
  // A linear layer's parameters and, where the network trains, their gradients.
  struct Linear {
    ValueId w, b, dw, db;
  };

  // Addends fused into a convolution's epilogue.
  struct Epilogue {
    ValueId e = kNoValue, de = kNoValue;  // rows of a group, and their gradient
    int pitch = 0, first = 0;
    ValueId residual = kNoValue;
    bool accumulates_bias_gradient = false;  // the bias gradient is computed from the rows' gradient
  };

  // y = x w^T + bias over all rows or pixels of x.
  static gemm::Problem product_of(const Value& x, const Value& y, Dtype dtype);
  conv3x3::Problem problem_of_conv(ValueId x, int out, const Epilogue& epilogue) const;
  conv1d::Problem problem_of_conv1d(const Input& in, const Parameter& weight, ValueId residual) const;
  ValueId append_conv1d(const std::string& name, conv1d::Problem problem, ValueId x, ValueId w, ValueId bias,
                        ValueId residual);
  ValueId append_conv3x3(const std::string& name, ValueId x, int out, const Epilogue& epilogue, const Region* result);
  Epilogue rows_of(const std::string& group, const std::string& layer) const;
  bool accumulates_bias_gradient(const std::string& conv, const std::string& group, const Epilogue& rows) const;
  void on_backward_of_rows(const std::string& name, ValueId y, const Epilogue& rows);

  ValueId output(const std::string& name, Dtype dtype, std::vector<std::int64_t> shape, const Region* region = nullptr);
  ValueId parameter(const std::string& name);  // a matrix in the model's dtype, a vector or fp32 matrix in fp32
  ValueId parameter_gradient(const std::string& name);
  ValueId like(ValueId id);  // a value of the same dtype and shape, for the gradient of `id`
  ValueId gradient(ValueId id) { return tape_.gradient(id, append_addition); }
  int extent(ValueId id, int dimension) const;
  void append_linear(const std::string& name, ValueId x, ValueId y, const Linear& layer);
  void conv1x1_input_gradient(const std::string& name, ValueId x, ValueId y);
  // Returns the input of an operation of P: the parts of a concatenation, and sets problem.split, where a version reads
  // them; else the joined value.
  template <class P>
  Input input_of(typename P::Problem& problem, ValueId x);
  GroupNormNeighbours neighbours_of_group_norm(const groupnorm::Problem& plain, ValueId x, ValueId dx);
  template <class P>
  bool serves(const typename P::Problem& problem) const {
    return net_.promotions != nullptr && net_.promotions->serves(case_of<P>(problem));
  }

  Tape& tape_;
  Binding net_;
  std::map<std::string, GroupRows, std::less<>> groups_;
  Film film_;
  std::map<ValueId, Concatenation> concatenations_;
  std::map<ValueId, RowsAdded> rows_added_;  // by the value that holds the sum
};

}  // namespace ladder::nn
