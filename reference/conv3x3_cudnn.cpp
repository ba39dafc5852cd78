// cuDNN's forward 3x3 convolution with padding 1 and stride 1, bias added in the same graph.
#include "core/backend.h"
#include "dev/conv3x3/conv3x3.h"
#include "reference/opponent_cudnn.h"

namespace ladder::conv3x3 {
namespace {

namespace fe = cudnn_frontend;

enum Uid : std::int64_t { kX = 1, kW, kBias, kY };

// Strides of an (outer, channels, rows, columns) tensor, which is the order cuDNN gives dimensions in.
std::vector<std::int64_t> strides(std::int64_t c, std::int64_t h, std::int64_t w, bool channels_last) {
  if (channels_last) return {h * w * c, 1, w * c, c};
  return {c * h * w, h * w, w, 1};
}

CudnnGraph make_graph(const Problem& p, bool channels_last) {
  auto graph = std::make_shared<fe::graph::Graph>();
  graph->set_io_data_type(cudnn_type(p.dtype))
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  auto x = graph->tensor(fe::graph::Tensor_attributes()
                             .set_name("x")
                             .set_uid(kX)
                             .set_dim({p.n, p.c, p.h, p.w})
                             .set_stride(strides(p.c, p.h, p.w, channels_last)));
  auto w = graph->tensor(fe::graph::Tensor_attributes()
                             .set_name("w")
                             .set_uid(kW)
                             .set_dim({p.k, p.c, 3, 3})
                             .set_stride(strides(p.c, 3, 3, channels_last)));
  auto y = graph->conv_fprop(
      x, w, fe::graph::Conv_fprop_attributes().set_padding({1, 1}).set_stride({1, 1}).set_dilation({1, 1}));
  const std::vector<std::int64_t> y_dim = {p.n, p.k, p.h, p.w};
  const std::vector<std::int64_t> y_stride = strides(p.k, p.h, p.w, channels_last);
  y->set_dim(y_dim).set_stride(y_stride);
  if (p.bias) {
    auto bias = graph->tensor(fe::graph::Tensor_attributes()
                                  .set_name("bias")
                                  .set_uid(kBias)
                                  .set_data_type(fe::DataType_t::FLOAT)
                                  .set_dim({1, p.k, 1, 1})
                                  .set_stride({p.k, 1, p.k, p.k}));
    y = graph->pointwise(y, bias, fe::graph::Pointwise_attributes().set_mode(fe::PointwiseMode_t::ADD));
    y->set_dim(y_dim).set_stride(y_stride);
  }
  y->set_output(true).set_uid(kY).set_data_type(cudnn_type(p.dtype));
  return {.layout = channels_last ? "nhwc" : "nchw", .graph = graph};
}

// [n, pixels, channels] to [n, channels, pixels]; with the last two sizes exchanged, the way back.
std::vector<float> transposed(const std::vector<float>& in, std::int64_t n, std::int64_t rows, std::int64_t columns) {
  std::vector<float> out(in.size());
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        out[static_cast<std::size_t>((i * columns + c) * rows + r)] =
            in[static_cast<std::size_t>((i * rows + r) * columns + c)];
      }
    }
  }
  return out;
}

std::vector<float> read_floats(const void* device_pointer, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  backend::copy_out(values.data(), device_pointer, values.size() * sizeof(float));
  return values;
}

std::shared_ptr<void> transposed_copy(const void* device_pointer, std::int64_t n, std::int64_t rows,
                                      std::int64_t columns) {
  const std::vector<float> values = transposed(read_floats(device_pointer, n * rows * columns), n, rows, columns);
  std::shared_ptr<void> copy = device_buffer(values.size() * sizeof(float));
  backend::copy_in(copy.get(), values.data(), values.size() * sizeof(float));
  return copy;
}

// The graph on NCHW copies of x and w, made here and never timed; y is brought back to NHWC by finish().
CudnnGraph make_nchw_graph(const Problem& p, const Fprop::Tensors& t) {
  CudnnGraph g = make_graph(p, false);
  const std::int64_t pixels = std::int64_t{p.h} * p.w;
  std::shared_ptr<void> x = transposed_copy(t.x, p.n, pixels, p.c);
  std::shared_ptr<void> w = transposed_copy(t.w, p.k, 9, p.c);
  std::shared_ptr<void> y = device_buffer(static_cast<std::size_t>(p.pixels() * p.k) * sizeof(float));
  g.pointers = {{kX, x.get()}, {kW, w.get()}, {kY, y.get()}};
  g.owned = {x, w, y};
  g.finish = [p, pixels, from = y.get(), to = t.y] {
    const std::vector<float> values = transposed(read_floats(from, p.pixels() * p.k), p.n, p.k, pixels);
    backend::copy_in(to, values.data(), values.size() * sizeof(float));
  };
  return g;
}

std::unique_ptr<Opponent> make_opponent(const Case& c, void* const* pointers, Search search, const Measure& measure) {
  const Problem& p = detail::problem_of<Fprop>(c);
  const Fprop::Tensors t = Fprop::bind(p, pointers);
  std::vector<CudnnGraph> graphs;
  graphs.push_back(make_graph(p, true));
  graphs[0].pointers = {{kX, const_cast<void*>(t.x)}, {kW, const_cast<void*>(t.w)}, {kY, t.y}};
  // Without tensor cores most of cuDNN's kernels want NCHW, which is what an FP32 framework gives them.
  if (p.dtype == Dtype::f32) graphs.push_back(make_nchw_graph(p, t));
  if (p.bias) {
    for (CudnnGraph& g : graphs) g.pointers[kBias] = const_cast<float*>(t.bias);
  }
  return make_cudnn_opponent(p.dtype, std::move(graphs), search, measure);
}

}  // namespace
}  // namespace ladder::conv3x3

LADDER_OPPONENT(ladder::conv3x3::Fprop, ladder::conv3x3::make_opponent)
