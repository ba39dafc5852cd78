// cuDNN's 3x3 convolution with padding 1 and stride 1: forward with the bias added in the same graph, and both gradients.
#include "core/error.h"
#include "dev/conv3x3/conv3x3.h"
#include "reference/baseline_cudnn.h"

namespace ladder::conv3x3 {
namespace {

namespace fe = cudnn_frontend;

enum Uid : std::int64_t { kFirst = 1, kSecond, kBias, kOutput };  // the two factors, fprop's bias, the result

// One tensor as cuDNN sees it, and as ours lies in memory.
struct ConvTensor {
  const char* name;
  std::int64_t outer;  // n, or k of weights
  std::int64_t channels;
  std::int64_t rows;
  std::int64_t columns;

  std::vector<std::int64_t> dim() const { return {outer, channels, rows, columns}; }
  std::vector<std::int64_t> stride(bool channels_last) const {
    return cudnn_strides(channels, rows, columns, channels_last);
  }
  std::int64_t elements() const { return outer * channels * rows * columns; }
};

ConvTensor images(const char* name, const Problem& p, int channels) { return {name, p.n, channels, p.h, p.w}; }
ConvTensor weights(const char* name, const Problem& p) { return {name, p.k, p.c, 3, 3}; }

enum class Operation { fprop, dgrad, wgrad };

// A pass as cuDNN's operation on two tensors, with our memory for each.
struct Posed {
  Operation operation;
  Problem p;
  ConvTensor first, second, output;
  const void* first_memory;
  const void* second_memory;
  const float* bias;
  void* output_memory;
};

using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

// All three attribute types of the frontend have the same setters.
template <class Attributes>
Attributes same_padding() {
  return Attributes().set_padding({1, 1}).set_stride({1, 1}).set_dilation({1, 1});
}

Tensor operate(fe::graph::Graph& graph, Operation operation, const Tensor& first, const Tensor& second) {
  switch (operation) {
    case Operation::fprop:
      return graph.conv_fprop(first, second, same_padding<fe::graph::Conv_fprop_attributes>());
    case Operation::dgrad:
      return graph.conv_dgrad(first, second, same_padding<fe::graph::Conv_dgrad_attributes>());
    case Operation::wgrad:
      break;
  }
  return graph.conv_wgrad(first, second, same_padding<fe::graph::Conv_wgrad_attributes>());
}

CudnnGraph make_graph(const Posed& posed, bool channels_last) {
  const Problem& p = posed.p;
  CudnnGraph made = cudnn_graph(p.dtype, channels_last);
  const auto& graph = made.graph;
  const auto input = [&](const ConvTensor& shape, Uid uid) {
    return graph->tensor(fe::graph::Tensor_attributes()
                             .set_name(shape.name)
                             .set_uid(uid)
                             .set_dim(shape.dim())
                             .set_stride(shape.stride(channels_last)));
  };
  Tensor first = input(posed.first, kFirst);
  Tensor second = input(posed.second, kSecond);
  Tensor y = operate(*graph, posed.operation, first, second);
  y->set_dim(posed.output.dim()).set_stride(posed.output.stride(channels_last));
  if (posed.bias) {
    auto bias = graph->tensor(fe::graph::Tensor_attributes()
                                  .set_name("bias")
                                  .set_uid(kBias)
                                  .set_data_type(cudnn_type(p.parameter_dtype()))
                                  .set_dim({1, p.k, 1, 1})
                                  .set_stride({p.k, 1, p.k, p.k}));
    y = graph->pointwise(y, bias, fe::graph::Pointwise_attributes().set_mode(fe::PointwiseMode_t::ADD));
    y->set_dim(posed.output.dim()).set_stride(posed.output.stride(channels_last));
  }
  y->set_output(true).set_uid(kOutput).set_data_type(cudnn_type(p.dtype));
  return made;
}

// The graph on NCHW copies of the inputs, made here and never timed; the output is brought back to NHWC by finish().
CudnnGraph make_nchw_graph(const Posed& posed) {
  CudnnGraph g = make_graph(posed, false);
  const auto copy = [](const void* memory, const ConvTensor& shape) {
    return transposed_copy(memory, shape.outer, shape.rows * shape.columns, shape.channels, sizeof(float));
  };
  std::shared_ptr<void> first = copy(posed.first_memory, posed.first);
  std::shared_ptr<void> second = copy(posed.second_memory, posed.second);
  std::shared_ptr<void> output = device_buffer(static_cast<std::size_t>(posed.output.elements()) * sizeof(float));
  g.pointers = {{kFirst, first.get()}, {kSecond, second.get()}, {kOutput, output.get()}};
  g.owned = {first, second, output};
  g.finish = [shape = posed.output, from = output.get(), to = posed.output_memory] {
    transpose(to, from, shape.outer, shape.channels, shape.rows * shape.columns, sizeof(float));
  };
  return g;
}

std::unique_ptr<Baseline> make_baseline(const Posed& posed, const Search& search, const Measure& measure) {
  std::vector<CudnnGraph> graphs;
  graphs.push_back(make_graph(posed, true));
  graphs[0].pointers = {{kFirst, const_cast<void*>(posed.first_memory)},
                        {kSecond, const_cast<void*>(posed.second_memory)},
                        {kOutput, posed.output_memory}};
  // Without tensor cores most of cuDNN's kernels want NCHW, which is what an FP32 framework gives them.
  if (posed.p.dtype == Dtype::f32) graphs.push_back(make_nchw_graph(posed));
  if (posed.bias) {
    for (CudnnGraph& g : graphs) g.pointers[kBias] = const_cast<float*>(posed.bias);
  }
  return make_cudnn_baseline(posed.p.dtype, std::move(graphs), search, measure);
}

std::unique_ptr<Baseline> fprop(const Case& c, const Pointers& pointers, const Search& search, const Measure& measure) {
  const Problem& p = problem_of<Fprop>(c);
  if (const char* const why = bias_only(p)) throw Failure(std::string("no cuDNN: ") + why);
  const Fprop::Tensors t = Fprop::bind(pointers);
  return make_baseline(
      {Operation::fprop, p, images("x", p, p.c), weights("w", p), images("y", p, p.k), t.x, t.w, t.bias, t.y}, search,
      measure);
}

std::unique_ptr<Baseline> dgrad(const Case& c, const Pointers& pointers, const Search& search, const Measure& measure) {
  const Problem& p = problem_of<Dgrad>(c);
  const Dgrad::Tensors t = Dgrad::bind(pointers);
  return make_baseline(
      {Operation::dgrad, p, images("dy", p, p.k), weights("w", p), images("dx", p, p.c), t.dy, t.w, nullptr, t.dx},
      search, measure);
}

std::unique_ptr<Baseline> wgrad(const Case& c, const Pointers& pointers, const Search& search, const Measure& measure) {
  const Problem& p = problem_of<Wgrad>(c);
  if (p.bias) throw Failure("cuDNN has no operation for dw and dbias together: compare without bias");
  const Wgrad::Tensors t = Wgrad::bind(pointers);
  return make_baseline(
      {Operation::wgrad, p, images("dy", p, p.k), images("x", p, p.c), weights("dw", p), t.dy, t.x, nullptr, t.dw},
      search, measure);
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_BASELINE(ladder::conv3x3::Fprop, "cuDNN", 1, ladder::conv3x3::fprop)
LADDER_BASELINE(ladder::conv3x3::Dgrad, "cuDNN", 1, ladder::conv3x3::dgrad)
LADDER_BASELINE(ladder::conv3x3::Wgrad, "cuDNN", 1, ladder::conv3x3::wgrad)
