// cuDNN's instance normalisation, where it can pose the problem: cuDNN's graphs have no group normalisation. Instance
// normalisation is the same for g == c. Without gamma and beta it is the same for other g too: in NCHW a group is
// contiguous and counts as one channel with c/g times as many rows. Layer normalisation differs even for g == 1: its
// scale and bias are per element, not per channel. No normalisation graph fuses an activation, and a second graph would
// read and write y again.
#include "core/backend.h"
#include "core/error.h"
#include "dev/groupnorm/groupnorm.h"
#include "reference/baseline_cudnn.h"

namespace ladder::groupnorm {
namespace {

namespace fe = cudnn_frontend;

enum Uid : std::int64_t { kX = 1, kDy, kScale, kBias, kMean, kRstd, kImage, kDscale, kDbias };

using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

// The problem as an instance normalisation of images [n, channels, rows, columns].
struct Instance {
  std::int64_t n, channels, rows, columns;
  bool channels_last;

  std::vector<std::int64_t> dim() const { return {n, channels, rows, columns}; }
  std::vector<std::int64_t> stride() const { return cudnn_strides(channels, rows, columns, channels_last); }
};

void require_supported(const Problem& p) {
  if (p.activation != Activation::identity)
    throw Failure("no cuDNN: its graphs have no normalisation with an activation");
  if (p.affine && p.g != p.c) throw Failure("no cuDNN: its graphs have no group normalisation with gamma and beta");
  if (plain_dx_only(p)) throw Failure("no cuDNN: its normalisations neither add to dx nor sum it");
  if (one_x_only(p)) throw Failure("no cuDNN: its normalisations take x as one tensor");
  if (fp32_parameters_only(p)) throw Failure("no cuDNN: its normalisations take gamma and beta as fp32");
}

Instance instance(const Problem& p, bool channels_last) {
  return {p.n, p.g, std::int64_t{p.channels_per_group()} * p.h, p.w, channels_last};
}

std::shared_ptr<void> filled(std::int64_t count, float value) {
  const std::vector<float> values(static_cast<std::size_t>(count), value);
  std::shared_ptr<void> buffer = device_buffer(values.size() * sizeof(float));
  backend::copy_in(buffer.get(), values.data(), values.size() * sizeof(float));
  return buffer;
}

// Builder of the forward and backward graphs.
class Maker {
 public:
  Maker(const Problem& p, bool channels_last)
      : p_(p), instance_(instance(p, channels_last)), out_(cudnn_graph(p.dtype, channels_last)) {}

  Tensor image(const char* name, Uid uid, const void* memory) {
    out_.pointers[uid] = instance_.channels_last ? const_cast<void*>(memory) : nchw_copy(memory);
    return tensor(name, uid, cudnn_type(p_.dtype), instance_.dim(), instance_.stride());
  }
  // A null `memory` stands for a parameter filled with `otherwise`.
  Tensor parameter(const char* name, Uid uid, const float* memory, float otherwise) {
    if (memory) return floats(name, uid, 1, memory);
    out_.owned.push_back(filled(instance_.channels, otherwise));
    return floats(name, uid, 1, static_cast<const float*>(out_.owned.back().get()));
  }
  Tensor statistic(const char* name, Uid uid, const float* memory) { return floats(name, uid, instance_.n, memory); }

  Tensor epsilon() { return out_.graph->tensor(p_.eps); }

  void image_output(const Tensor& tensor, void* memory) {
    tensor->set_output(true)
        .set_uid(kImage)
        .set_dim(instance_.dim())
        .set_stride(instance_.stride())
        .set_data_type(cudnn_type(p_.dtype));
    if (instance_.channels_last) {
      out_.pointers[kImage] = memory;
      return;
    }
    out_.owned.push_back(device_buffer(static_cast<std::size_t>(p_.elements()) * size_of(p_.dtype)));
    out_.pointers[kImage] = out_.owned.back().get();
    out_.finish = [p = p_, from = out_.owned.back().get(), to = memory] {
      transpose(to, from, p.n, p.c, p.pixels(), size_of(p.dtype));
    };
  }
  // A null `memory` stands for an output that nobody asked for.
  void float_output(const Tensor& tensor, Uid uid, std::int64_t outer, float* memory) {
    tensor->set_output(true).set_uid(uid).set_data_type(fe::DataType_t::FLOAT);
    if (!memory) out_.owned.push_back(filled(outer * instance_.channels, 0));
    out_.pointers[uid] = memory ? memory : out_.owned.back().get();
  }

  fe::graph::Graph& graph() { return *out_.graph; }
  CudnnGraph take() { return std::move(out_); }

 private:
  void* nchw_copy(const void* memory) {
    out_.owned.push_back(transposed_copy(memory, p_.n, p_.pixels(), p_.c, size_of(p_.dtype)));
    return out_.owned.back().get();
  }

  Tensor floats(const char* name, Uid uid, std::int64_t outer, const float* memory) {
    out_.pointers[uid] = const_cast<float*>(memory);
    return tensor(name, uid, fe::DataType_t::FLOAT, {outer, instance_.channels, 1, 1},
                  {instance_.channels, 1, instance_.channels, instance_.channels});
  }

  Tensor tensor(const char* name, Uid uid, fe::DataType_t type, const std::vector<std::int64_t>& dim,
                const std::vector<std::int64_t>& stride) {
    return out_.graph->tensor(
        fe::graph::Tensor_attributes().set_name(name).set_uid(uid).set_data_type(type).set_dim(dim).set_stride(stride));
  }

  Problem p_;
  Instance instance_;
  CudnnGraph out_;
};

CudnnGraph forward_graph(const Problem& p, const Forward::Tensors& t, bool channels_last) {
  Maker make(p, channels_last);
  Tensor x = make.image("x", kX, t.x);
  Tensor scale = make.parameter("gamma", kScale, t.gamma, 1);
  Tensor bias = make.parameter("beta", kBias, t.beta, 0);
  Tensor epsilon = make.epsilon();
  auto [y, mean, rstd] = make.graph().instancenorm(
      x, scale, bias,
      fe::graph::Instancenorm_attributes().set_forward_phase(fe::NormFwdPhase_t::TRAINING).set_epsilon(epsilon));
  make.image_output(y, t.y);
  make.float_output(mean, kMean, p.n, t.mean);
  make.float_output(rstd, kRstd, p.n, t.rstd);
  return make.take();
}

CudnnGraph backward_graph(const Problem& p, const Backward::Tensors& t, bool channels_last) {
  Maker make(p, channels_last);
  Tensor dy = make.image("dy", kDy, t.dy);
  Tensor x = make.image("x", kX, t.x);
  Tensor scale = make.parameter("gamma", kScale, t.gamma, 1);
  Tensor mean = make.statistic("mean", kMean, t.mean);
  Tensor rstd = make.statistic("rstd", kRstd, t.rstd);
  auto [dx, dscale, dbias] = make.graph().instancenorm_backward(
      dy, x, scale, fe::graph::Instancenorm_backward_attributes().set_saved_mean_and_inv_variance(mean, rstd));
  make.image_output(dx, t.dx);
  make.float_output(dscale, kDscale, 1, t.dgamma);
  make.float_output(dbias, kDbias, 1, t.dbeta);
  return make.take();
}

template <class P, class MakeGraph>
std::unique_ptr<Baseline> baseline(const Case& c, const Pointers& pointers, const Search& search,
                                   const Measure& measure, const MakeGraph& make_graph) {
  const Problem& p = problem_of<P>(c);
  require_supported(p);
  std::vector<CudnnGraph> graphs;
  if (p.g == p.c) graphs.push_back(make_graph(p, P::bind(pointers), true));
  graphs.push_back(make_graph(p, P::bind(pointers), false));
  return make_cudnn_baseline(p.dtype, std::move(graphs), search, measure);
}

std::unique_ptr<Baseline> forward(const Case& c, const Pointers& pointers, const Search& search,
                                  const Measure& measure) {
  return baseline<Forward>(c, pointers, search, measure, forward_graph);
}

std::unique_ptr<Baseline> backward(const Case& c, const Pointers& pointers, const Search& search,
                                   const Measure& measure) {
  return baseline<Backward>(c, pointers, search, measure, backward_graph);
}

}  // namespace
}  // namespace ladder::groupnorm

LADDER_BASELINE(ladder::groupnorm::Forward, "cuDNN", 1, ladder::groupnorm::forward)
LADDER_BASELINE(ladder::groupnorm::Backward, "cuDNN", 1, ladder::groupnorm::backward)
