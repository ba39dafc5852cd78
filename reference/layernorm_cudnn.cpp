// cuDNN's layer normalisation. A row of x [m, n] is posed as the n channels of one pixel.
#include "core/error.h"
#include "dev/layernorm/layernorm.h"
#include "reference/baseline_cudnn.h"

namespace ladder::layernorm {
namespace {

namespace fe = cudnn_frontend;

enum Uid : std::int64_t { kX = 1, kDy, kScale, kBias, kMean, kRstd, kMatrix, kDscale, kDbias };

using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

// Builder of the forward and backward graphs.
class Maker {
 public:
  explicit Maker(const Problem& p) : p_(p), out_(cudnn_graph(p.dtype, true)) {}

  Tensor matrix(const char* name, Uid uid, const void* memory) {
    return input(name, uid, cudnn_type(p_.dtype), {p_.m, p_.n, 1, 1}, p_.n, memory);
  }
  Tensor parameter(const char* name, Uid uid, const float* memory) {
    return input(name, uid, fe::DataType_t::FLOAT, {1, p_.n, 1, 1}, p_.n, memory);
  }
  Tensor statistic(const char* name, Uid uid, const float* memory) {
    return input(name, uid, fe::DataType_t::FLOAT, {p_.m, 1, 1, 1}, 1, memory);
  }
  Tensor epsilon() { return out_.graph->tensor(p_.eps); }

  void output(const Tensor& tensor, Uid uid, fe::DataType_t type, void* memory) {
    tensor->set_output(true).set_uid(uid).set_data_type(type);
    out_.pointers[uid] = memory;
  }

  fe::graph::Graph& graph() { return *out_.graph; }
  CudnnGraph take() { return std::move(out_); }

 private:
  Tensor input(const char* name, Uid uid, fe::DataType_t type, const std::vector<std::int64_t>& dim, std::int64_t pitch,
               const void* memory) {
    out_.pointers[uid] = const_cast<void*>(memory);
    return out_.graph->tensor(
        fe::graph::Tensor_attributes().set_name(name).set_uid(uid).set_data_type(type).set_dim(dim).set_stride(
            {pitch, 1, pitch, pitch}));
  }

  Problem p_;
  CudnnGraph out_;
};

CudnnGraph forward_graph(const Problem& p, const Forward::Tensors& t) {
  Maker make(p);
  Tensor x = make.matrix("x", kX, t.x);
  Tensor scale = make.parameter("gamma", kScale, t.gamma);
  Tensor bias = make.parameter("beta", kBias, t.beta);
  Tensor epsilon = make.epsilon();
  auto [y, mean, rstd] = make.graph().layernorm(
      x, scale, bias,
      fe::graph::Layernorm_attributes().set_forward_phase(fe::NormFwdPhase_t::TRAINING).set_epsilon(epsilon));
  make.output(y, kMatrix, cudnn_type(p.dtype), t.y);
  make.output(mean, kMean, fe::DataType_t::FLOAT, t.mean);
  make.output(rstd, kRstd, fe::DataType_t::FLOAT, t.rstd);
  return make.take();
}

CudnnGraph backward_graph(const Problem& p, const Backward::Tensors& t) {
  Maker make(p);
  Tensor dy = make.matrix("dy", kDy, t.dy);
  Tensor x = make.matrix("x", kX, t.x);
  Tensor scale = make.parameter("gamma", kScale, t.gamma);
  Tensor mean = make.statistic("mean", kMean, t.mean);
  Tensor rstd = make.statistic("rstd", kRstd, t.rstd);
  auto [dx, dscale, dbias] = make.graph().layernorm_backward(
      dy, x, scale, fe::graph::Layernorm_backward_attributes().set_saved_mean_and_inv_variance(mean, rstd));
  make.output(dx, kMatrix, cudnn_type(p.dtype), t.dx);
  make.output(dscale, kDscale, fe::DataType_t::FLOAT, t.dgamma);
  make.output(dbias, kDbias, fe::DataType_t::FLOAT, t.dbeta);
  return make.take();
}

template <class P, auto kMakeGraph>
std::unique_ptr<Baseline> baseline(const Case& c, const Pointers& pointers, const Search& search,
                                   const Measure& measure) {
  std::vector<CudnnGraph> graphs;
  graphs.push_back(kMakeGraph(problem_of<P>(c), P::bind(pointers)));
  return make_cudnn_baseline(c.dtype, std::move(graphs), search, measure);
}

}  // namespace
}  // namespace ladder::layernorm

LADDER_BASELINE(ladder::layernorm::Forward, "cuDNN", 1,
                (ladder::layernorm::baseline<ladder::layernorm::Forward, ladder::layernorm::forward_graph>))
LADDER_BASELINE(ladder::layernorm::Backward, "cuDNN", 1,
                (ladder::layernorm::baseline<ladder::layernorm::Backward, ladder::layernorm::backward_graph>))
