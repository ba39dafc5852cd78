// cuDNN's convolution of conv_stem, with the bias added in the same graph. relu_pool's pooling is no part of it: its baseline
// is reference/pytorch/conv_stem.py.
#include "core/error.h"
#include "dev/conv_stem/conv_stem.h"
#include "reference/baseline_cudnn.h"

namespace ladder::conv_stem {
namespace {

namespace fe = cudnn_frontend;

enum Uid : std::int64_t { kX = 1, kW, kBias, kY };

// One tensor as cuDNN sees it.
struct StemTensor {
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

StemTensor x_shape(const Problem& p) { return {p.n, p.c, p.h, p.w}; }
StemTensor w_shape(const Problem& p) { return {p.k, p.c, p.r, p.r}; }
StemTensor y_shape(const Problem& p) { return {p.n, p.k, p.out_h(), p.out_w()}; }

// TF32 is stored as fp32; whether an engine may round to it is the search's business.
Dtype product_dtype(const Problem& p) { return p.allow_tf32 ? Dtype::tf32 : Dtype::f32; }

CudnnGraph make_graph(const Problem& p, bool channels_last) {
  CudnnGraph made = cudnn_graph(product_dtype(p), channels_last);
  const auto& graph = made.graph;
  const auto input = [&](const char* name, Uid uid, const StemTensor& shape) {
    return graph->tensor(fe::graph::Tensor_attributes()
                             .set_name(name)
                             .set_uid(uid)
                             .set_dim(shape.dim())
                             .set_stride(shape.stride(channels_last)));
  };
  auto x = input("x", kX, x_shape(p));
  auto w = input("w", kW, w_shape(p));
  auto y = graph->conv_fprop(x, w,
                             fe::graph::Conv_fprop_attributes()
                                 .set_padding({p.pad, p.pad})
                                 .set_stride({p.stride, p.stride})
                                 .set_dilation({1, 1}));
  y->set_dim(y_shape(p).dim()).set_stride(y_shape(p).stride(channels_last));
  if (p.bias) {
    auto bias = graph->tensor(fe::graph::Tensor_attributes()
                                  .set_name("bias")
                                  .set_uid(kBias)
                                  .set_dim({1, p.k, 1, 1})
                                  .set_stride({p.k, 1, p.k, p.k}));
    y = graph->pointwise(y, bias, fe::graph::Pointwise_attributes().set_mode(fe::PointwiseMode_t::ADD));
    y->set_dim(y_shape(p).dim()).set_stride(y_shape(p).stride(channels_last));
  }
  y->set_output(true).set_uid(kY).set_data_type(fe::DataType_t::FLOAT);
  return made;
}

// The graph on NCHW copies of the inputs, made here and never timed; finish() brings the output back to NHWC.
CudnnGraph make_nchw_graph(const Problem& p, const Fprop::Tensors& t) {
  CudnnGraph g = make_graph(p, false);
  const auto copy = [](const float* memory, const StemTensor& shape) {
    return transposed_copy(memory, shape.outer, shape.rows * shape.columns, shape.channels, sizeof(float));
  };
  const StemTensor shape = y_shape(p);
  std::shared_ptr<void> x = copy(t.x, x_shape(p));
  std::shared_ptr<void> w = copy(t.w, w_shape(p));
  std::shared_ptr<void> y = device_buffer(static_cast<std::size_t>(shape.elements()) * sizeof(float));
  g.pointers = {{kX, x.get()}, {kW, w.get()}, {kY, y.get()}};
  g.owned = {x, w, y};
  g.finish = [shape, from = y.get(), to = t.y] {
    transpose(to, from, shape.outer, shape.channels, shape.rows * shape.columns, sizeof(float));
  };
  return g;
}

std::unique_ptr<Baseline> fprop(const Case& c, const Pointers& pointers, const Search& search, const Measure& measure) {
  const Problem& p = problem_of<Fprop>(c);
  const Fprop::Tensors t = Fprop::bind(pointers);
  std::vector<CudnnGraph> graphs;
  graphs.push_back(make_graph(p, true));
  graphs[0].pointers = {{kX, const_cast<float*>(t.x)}, {kW, const_cast<float*>(t.w)}, {kY, t.y}};
  graphs.push_back(make_nchw_graph(p, t));
  if (p.bias) {
    for (CudnnGraph& g : graphs) g.pointers[kBias] = const_cast<float*>(t.bias);
  }
  return make_cudnn_baseline(product_dtype(p), std::move(graphs), search, measure);
}

}  // namespace
}  // namespace ladder::conv_stem

LADDER_BASELINE(ladder::conv_stem::Fprop, "cuDNN", 1, ladder::conv_stem::fprop)
