// cuDNN's scaled dot product attention (SDPA), forward and backward. Strides describe q, k and v in place, so the
// baseline copies nothing. cuDNN's softmax statistics are our lse.
#include "core/error.h"
#include "dev/attention/attention.h"
#include "reference/baseline_cudnn.h"

namespace ladder::attention {
namespace {

namespace fe = cudnn_frontend;

enum Uid : std::int64_t { kQ = 1, kK, kV, kO, kLse, kDo, kDq, kDk, kDv };

using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

void require_supported(const Problem& p) {
  if (p.dtype != Dtype::bf16 && p.dtype != Dtype::f16)
    throw Failure("no cuDNN: its attention takes bf16 and fp16 alone");
}

// Builder of the forward and backward graphs. Dimensions are in cuDNN's order: n, heads, t, d.
class Maker {
 public:
  Maker(const Problem& p, const char* layout) : p_(p), out_(cudnn_graph(p.dtype, true)) { out_.layout = layout; }

  // Input tensor [n, heads, t, d]: q, k or v (packed in qkv or separate), o or d_o.
  Tensor heads(const char* name, Uid uid, const void* memory, const HeadsView& view) {
    return input(fe::graph::Tensor_attributes().set_name(name).set_uid(uid).set_dim(dim()).set_stride(
        described(uid, const_cast<void*>(memory), view)));
  }
  Tensor statistics(const float* lse) {
    out_.pointers[kLse] = const_cast<float*>(lse);
    return input(fe::graph::Tensor_attributes()
                     .set_name("lse")
                     .set_uid(kLse)
                     .set_data_type(fe::DataType_t::FLOAT)
                     .set_dim({p_.n, p_.heads, p_.t, 1})
                     .set_stride(statistics_stride()));
  }

  void output(const Tensor& tensor, Uid uid, void* memory, const HeadsView& view) {
    tensor->set_output(true).set_uid(uid).set_dim(dim()).set_stride(described(uid, memory, view));
  }
  void statistics_output(const Tensor& tensor, float* lse) {
    tensor->set_output(true)
        .set_uid(kLse)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim({p_.n, p_.heads, p_.t, 1})
        .set_stride(statistics_stride());
    out_.pointers[kLse] = lse;
  }

  fe::graph::Graph& graph() { return *out_.graph; }
  CudnnGraph take() { return std::move(out_); }

 private:
  std::vector<std::int64_t> dim() const { return {p_.n, p_.heads, p_.t, p_.d}; }
  std::vector<std::int64_t> statistics_stride() const { return {std::int64_t{p_.heads} * p_.t, p_.t, 1, 1}; }

  // Returns the strides of a [n, heads, t, d] tensor and records its device pointer under `uid`.
  std::vector<std::int64_t> described(Uid uid, void* memory, const HeadsView& view) {
    out_.pointers[uid] = static_cast<char*>(memory) + view.offset * size_of(p_.dtype);
    return {view.strides.image, view.strides.head, view.strides.token, 1};
  }
  Tensor input(const fe::graph::Tensor_attributes& attributes) { return out_.graph->tensor(attributes); }

  Problem p_;
  CudnnGraph out_;
};

CudnnGraph forward_graph(const Problem& p, const Forward::Tensors& t) {
  Maker make(p, "interleaved");
  Tensor q = make.heads("q", kQ, p.packed() ? t.qkv : t.q, heads_of_part(p, 0));
  Tensor k = make.heads("k", kK, p.packed() ? t.qkv : t.k, heads_of_part(p, 1));
  Tensor v = make.heads("v", kV, p.packed() ? t.qkv : t.v, heads_of_part(p, 2));
  auto [o, lse] = make.graph().sdpa(
      q, k, v, fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(true).set_attn_scale(scale_of(p)));
  make.output(o, kO, t.o, heads_of_o(p));
  make.statistics_output(lse, t.lse);
  return make.take();
}

CudnnGraph backward_graph(const Problem& p, const Backward::Tensors& t, bool deterministic) {
  Maker make(p, deterministic ? "interleaved deterministic" : "interleaved");
  Tensor q = make.heads("q", kQ, p.packed() ? t.qkv : t.q, heads_of_part(p, 0));
  Tensor k = make.heads("k", kK, p.packed() ? t.qkv : t.k, heads_of_part(p, 1));
  Tensor v = make.heads("v", kV, p.packed() ? t.qkv : t.v, heads_of_part(p, 2));
  Tensor o = make.heads("o", kO, t.o, heads_of_o(p));
  Tensor d_o = make.heads("d_o", kDo, t.d_o, heads_of_d_o(p));
  Tensor lse = make.statistics(t.lse);
  auto [dq, dk, dv] = make.graph().sdpa_backward(q, k, v, o, d_o, lse,
                                                 fe::graph::SDPA_backward_attributes()
                                                     .set_name("attention_backward")
                                                     .set_attn_scale(scale_of(p))
                                                     .set_deterministic_algorithm(deterministic));
  make.output(dq, kDq, p.packed() ? t.dqkv : t.dq, heads_of_gradient(p, 0));
  make.output(dk, kDk, p.packed() ? t.dqkv : t.dk, heads_of_gradient(p, 1));
  make.output(dv, kDv, p.packed() ? t.dqkv : t.dv, heads_of_gradient(p, 2));
  return make.take();
}

std::unique_ptr<Baseline> forward(const Case& c, const Pointers& pointers, const Search& search,
                                  const Measure& measure) {
  const Problem& p = problem_of<Forward>(c);
  require_supported(p);
  std::vector<CudnnGraph> graphs;
  graphs.push_back(forward_graph(p, Forward::bind(pointers)));
  return make_cudnn_baseline(p.dtype, std::move(graphs), search, measure);
}

// Two graphs: dq summed in any order, and in a fixed order as in our kernels.
std::unique_ptr<Baseline> backward(const Case& c, const Pointers& pointers, const Search& search,
                                   const Measure& measure) {
  const Problem& p = problem_of<Backward>(c);
  require_supported(p);
  std::vector<CudnnGraph> graphs;
  for (const bool deterministic : {false, true})
    graphs.push_back(backward_graph(p, Backward::bind(pointers), deterministic));
  return make_cudnn_baseline(p.dtype, std::move(graphs), search, measure);
}

}  // namespace
}  // namespace ladder::attention

LADDER_BASELINE(ladder::attention::Forward, "cuDNN", 1, ladder::attention::forward)
LADDER_BASELINE(ladder::attention::Backward, "cuDNN", 1, ladder::attention::backward)
