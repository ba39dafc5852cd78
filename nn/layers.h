// Layers of a network: each appends its forward pass to a tape and, where the network trains, says what its gradients are.
// Images are [n, h, w, c] and sequences [n, l, c] in the model's storage dtype, rows [n, c] in fp32; sizes come from the
// values. `name` is that of the layer's parameters, without ".weight" and ".bias".
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
  // Must live until the tape's backward().
  Layers(Tape& tape, const Binding& binding) : tape_(tape), net_(binding) {}

  bool trains() const { return net_.gradients != nullptr; }
  Dtype stored() const { return storage_dtype(net_.dtype); }
  void set_beside(bool on) { tape_.set_beside(on); }  // see Tape

  // 3x3 convolution with padding 1; [n, h, w, out], in `result` if that is given.
  ValueId conv3x3(const std::string& name, ValueId x, int out, const Region* result = nullptr);

  // And add_rows() or residual() of the block `name` after it: one operation where a version of the convolution adds them.
  // With the biases that set_rows() was given, the convolution's is one of them, and has its gradient from there.
  ValueId conv3x3_add_rows(const std::string& conv, ValueId x, int out, const std::string& name,
                           const std::string& group, const std::string& layer);
  ValueId conv3x3_residual(const std::string& conv, ValueId x, int out, const std::string& name, ValueId residual);

  // 1x1 convolution of images; plus `residual` where one is given.
  ValueId conv1x1(const std::string& name, ValueId x, int out, ValueId residual = kNoValue);

  // The same with other layers in between, that make the residual of x: the input's gradient is then the last of theirs
  // and added to what x has by then, in the same operation.
  ValueId begin_conv1x1(const std::string& name, ValueId x, int out);
  void finish_conv1x1(ValueId y, const std::string& name, ValueId x, ValueId residual);

  ValueId group_norm(const std::string& name, ValueId x, int groups,
                     groupnorm::Activation activation = groupnorm::Activation::identity);

  // qkv [n, h, w, 3 c], per head q, k and v one after the other; [n, h, w, c].
  ValueId attention(const std::string& name, ValueId qkv, int head_size);

  ValueId residual(const std::string& name, ValueId a, ValueId b);

  // The channels of a, then those of b, for group_norm() and conv1x1(): they read the two where a version can, else have
  // them joined. Its gradient is that of a 1x1 convolution which reads it.
  ValueId concat(const std::string& name, ValueId a, ValueId b);

  ValueId pool(const std::string& name, ValueId x);      // mean of 2x2 pixels
  ValueId upsample(const std::string& name, ValueId x);  // each pixel as 2x2

  // Rows, fp32 throughout.
  ValueId linear(const std::string& name, ValueId x, int out);
  ValueId silu(const std::string& name, ValueId x);
  ValueId sinusoids(const std::string& name, ValueId t, int channels);  // of time steps [n], int32 or fp32

  // All layers of a group at once, [n, rows], in `result` if that is given.
  ValueId linear_group(const std::string& group, ValueId x, const Region* result = nullptr);

  // Such rows, or some of them, are those of the group from now on; and its slice for one layer added to every pixel of x.
  // `biases`: those of the convolutions that slices are added to, a group in the same order. Their gradients are those of
  // the slices summed over the images, one operation for all.
  void set_rows(const std::string& group, ValueId rows, const std::string& biases = {});
  ValueId add_rows(const std::string& name, ValueId x, const std::string& group, const std::string& layer);

  // Sequences, of which there is the forward pass alone.

  // What an operation reads: a value, or two of which the second one's channels come after the first one's.
  struct Input {
    ValueId x, rest = kNoValue;
  };
  // Scales and shifts of channels, or shifts alone, of a group of linear layers: a row for all samples, of a table of time
  // steps [steps, rows of the group], plus a row a sample [n, rows of the group]. Each layer's rows are its scales, then
  // its shifts.
  struct Film {
    std::string group = {};
    const Region* table = nullptr;
    int step = 0;
    const Region* rows = nullptr;
    bool scales = true;
  };
  void set_film(const Film& film) { film_ = film; }

  // Convolution, plus `residual` where one is given. halving: 3 taps, every other position. doubling: transposed, 4 taps.
  enum class Conv1d { plain, halving, doubling };
  ValueId conv1d(const std::string& name, ValueId x, Conv1d kind, ValueId residual = kNoValue);
  // What more channels of a plain convolution's input add to it; their weights are the parameter `name`.weight`suffix`.
  ValueId conv1d_more(const std::string& name, const std::string& suffix, ValueId x, ValueId sum);

  // Mish of the normalised convolution: parameters `name`.block.0 and `name`.block.1. Scaled and shifted by the rows of a
  // `layer` of the group of set_film(), if that is given, then plus `residual`, if that is.
  ValueId conv1d_block(const std::string& name, const Input& in, int groups, const std::string& layer,
                       ValueId residual);

 private:
  struct Concatenation {
    ValueId a, b;
    bool joined = false;  // whether its own value has been written
  };
  struct Rows {
    ValueId y = kNoValue;   // [n, rows of the group]
    ValueId dy = kNoValue;  // likewise, each layer's slice by its own operation
    std::string biases = {};
  };
  // Rows that were added to all pixels of a value.
  struct RowsAdded {
    ValueId dy;  // [n, pitch]: where their gradient goes, from column `first` on
    int pitch, first;
    ValueId summed_in = kNoValue;  // the gradient of the value whose sum is there already
  };
  // What a normalisation's backward pass does besides its own work.
  struct GroupNormNeighbours {
    groupnorm::Problem problem;
    ValueId addend = kNoValue, addend2 = kNoValue, de = kNoValue;
  };
  // Of a linear layer: parameters and, where the network trains, their gradients.
  struct Linear {
    ValueId w, b, dw, db;
  };

  // What a convolution's own operation adds to it.
  struct Added {
    ValueId e = kNoValue, de = kNoValue;  // rows of a group, and where their gradient goes
    int pitch = 0, first = 0;
    ValueId residual = kNoValue;
    bool sums_bias = false;  // the bias' gradient is made of that of the rows
  };

  // y = x w' + bias over all rows or pixels of x.
  static gemm::Problem product_of(const Value& x, const Value& y, Dtype dtype);
  conv3x3::Problem problem_of_conv(ValueId x, int out, const Added& added) const;
  conv1d::Problem problem_of_conv1d(const Input& in, const Parameter& weight, ValueId residual) const;
  ValueId append_conv1d(const std::string& name, conv1d::Problem problem, ValueId x, ValueId w, ValueId bias,
                        ValueId residual);
  ValueId append_conv3x3(const std::string& name, ValueId x, int out, const Added& added, const Region* result);
  Added rows_of(const std::string& group, const std::string& layer) const;
  bool sums_bias(const std::string& conv, const std::string& group, const Added& rows) const;
  void on_backward_of_rows(const std::string& name, ValueId y, const Added& rows);

  ValueId output(const std::string& name, Dtype dtype, std::vector<std::int64_t> shape, const Region* region = nullptr);
  ValueId parameter(const std::string& name);  // a matrix in the model's dtype, a vector or fp32 matrix in fp32
  ValueId parameter_gradient(const std::string& name);
  ValueId like(ValueId id);  // for its gradient
  ValueId gradient(ValueId id) { return tape_.gradient(id, append_addition); }
  int extent(ValueId id, int dimension) const;
  void append_linear(const std::string& name, ValueId x, ValueId y, const Linear& layer);
  void conv1x1_input_gradient(const std::string& name, ValueId x, ValueId y);
  // For an operation of P: a concatenation's parts, as the problem then says, or joined where no version reads these.
  template <class P>
  Input input_of(typename P::Problem& problem, ValueId x);
  GroupNormNeighbours neighbours_of_group_norm(const groupnorm::Problem& plain, ValueId x, ValueId dx);
  template <class P>
  bool serves(const typename P::Problem& problem) const {
    return net_.promotions != nullptr && net_.promotions->serves(case_of<P>(problem));
  }

  Tape& tape_;
  Binding net_;
  std::map<std::string, Rows, std::less<>> groups_;
  Film film_;
  std::map<ValueId, Concatenation> concatenations_;
  std::map<ValueId, RowsAdded> rows_added_;  // by the sum
};

}  // namespace ladder::nn
