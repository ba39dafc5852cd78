// cuDNN's convolution of conv1d, as one of images of height 1, with bias and residual added in the same graph. A block's
// normalisation and the transposed convolution are no part of it: their baseline is reference/pytorch/conv1d.py.
#include "core/error.h"
#include "dev/conv1d/conv1d.h"
#include "reference/baseline_cudnn.h"

namespace ladder::conv1d {
namespace {

namespace fe = cudnn_frontend;

enum Uid : std::int64_t { kX = 1, kW, kBias, kResidual, kY };

using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

fe::graph::Conv_fprop_attributes geometry(const Problem& p) {
  const std::int64_t padding = p.stride2 ? 1 : p.taps / 2;
  const std::int64_t stride = p.stride2 ? 2 : 1;
  return fe::graph::Conv_fprop_attributes().set_padding({0, padding}).set_stride({1, stride}).set_dilation({1, 1});
}

CudnnGraph make_graph(const Problem& p) {
  CudnnGraph made = cudnn_graph(p.dtype, true);
  const auto& graph = made.graph;
  const auto shaped = [](Tensor tensor, std::int64_t outer, std::int64_t channels, std::int64_t length) {
    tensor->set_dim({outer, channels, 1, length}).set_stride(cudnn_strides(channels, 1, length, true));
    return tensor;
  };
  const auto input = [&](const char* name, Uid uid, std::int64_t outer, std::int64_t channels, std::int64_t length) {
    return shaped(graph->tensor(fe::graph::Tensor_attributes().set_name(name).set_uid(uid)), outer, channels, length);
  };
  const auto output = [&](Tensor tensor) { return shaped(std::move(tensor), p.n, p.k, p.out_l()); };
  const auto plus = [&](const Tensor& y, const Tensor& addend) {
    return output(graph->pointwise(y, addend, fe::graph::Pointwise_attributes().set_mode(fe::PointwiseMode_t::ADD)));
  };
  const Tensor x = input("x", kX, p.n, p.c, p.l);
  const Tensor w = input("w", kW, p.k, p.c, p.taps);
  Tensor y = output(graph->conv_fprop(x, w, geometry(p)));
  if (p.bias) {
    const auto bias = fe::graph::Tensor_attributes()
                          .set_name("bias")
                          .set_uid(kBias)
                          .set_data_type(fe::DataType_t::FLOAT)
                          .set_dim({1, p.k, 1, 1})
                          .set_stride({p.k, 1, p.k, p.k});
    y = plus(y, graph->tensor(bias));
  }
  if (p.residual) y = plus(y, input("residual", kResidual, p.n, p.k, p.out_l()));
  y->set_output(true).set_uid(kY).set_data_type(cudnn_type(p.dtype));
  return made;
}

std::unique_ptr<Baseline> fprop(const Case& c, const Pointers& pointers, const Search& search, const Measure& measure) {
  const Problem& p = problem_of<Fprop>(c);
  // It would be a gradient with respect to the input, whose weights lie as [c, taps, k]; ours do not.
  if (p.transposed) throw Failure("no cuDNN: a transposed convolution is PyTorch's to compare with");
  const Fprop::Tensors t = Fprop::bind(pointers);
  std::vector<CudnnGraph> graphs;
  graphs.push_back(make_graph(p));
  graphs[0].pointers = {{kX, const_cast<void*>(t.x)}, {kW, const_cast<void*>(t.w)}, {kY, t.y}};
  if (p.bias) graphs[0].pointers[kBias] = const_cast<float*>(t.bias);
  if (p.residual) graphs[0].pointers[kResidual] = const_cast<void*>(t.residual);
  return make_cudnn_baseline(p.dtype, std::move(graphs), search, measure);
}

}  // namespace
}  // namespace ladder::conv1d

LADDER_BASELINE(ladder::conv1d::Fprop, "cuDNN", 1, ladder::conv1d::fprop)
