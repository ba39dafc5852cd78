// cuDNN's scaled dot product attention, forward and backward, on qkv as it lies in memory: strides say where a head's rows
// are, so nothing is copied for it. Its statistics are our lse.
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

// What the graphs of both passes are made of. cuDNN gives dimensions in the order n, heads, t, d.
class Maker {
 public:
  Maker(const Problem& p, const char* layout) : p_(p), out_(cudnn_graph(p.dtype, true)) { out_.layout = layout; }

  // `part` of qkv or dqkv: 0, 1 or 2.
  Tensor part(const char* name, Uid uid, const void* qkv, int part) {
    return input(described(name, uid, part_pointer(qkv, part), part_stride()));
  }
  Tensor tokens(const char* name, Uid uid, const void* memory) {
    return input(described(name, uid, const_cast<void*>(memory), tokens_stride()));
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

  void part_output(const Tensor& tensor, Uid uid, void* dqkv, int part) {
    output(tensor, uid, part_pointer(dqkv, part), part_stride());
  }
  void tokens_output(const Tensor& tensor, Uid uid, void* memory) { output(tensor, uid, memory, tokens_stride()); }
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
  std::vector<std::int64_t> part_stride() const {
    const std::int64_t pitch = 3 * p_.c();
    return {p_.t * pitch, 3 * p_.d, pitch, 1};
  }
  std::vector<std::int64_t> tokens_stride() const { return {std::int64_t{p_.t} * p_.c(), p_.d, p_.c(), 1}; }
  std::vector<std::int64_t> statistics_stride() const { return {std::int64_t{p_.heads} * p_.t, p_.t, 1, 1}; }

  void* part_pointer(const void* qkv, int part) const {
    return static_cast<char*>(const_cast<void*>(qkv)) + std::size_t(part) * p_.d * size_of(p_.dtype);
  }

  fe::graph::Tensor_attributes described(const char* name, Uid uid, void* memory,
                                         const std::vector<std::int64_t>& stride) {
    out_.pointers[uid] = memory;
    return fe::graph::Tensor_attributes().set_name(name).set_uid(uid).set_dim(dim()).set_stride(stride);
  }
  Tensor input(const fe::graph::Tensor_attributes& attributes) { return out_.graph->tensor(attributes); }
  void output(const Tensor& tensor, Uid uid, void* memory, const std::vector<std::int64_t>& stride) {
    tensor->set_output(true).set_uid(uid).set_dim(dim()).set_stride(stride);
    out_.pointers[uid] = memory;
  }

  Problem p_;
  CudnnGraph out_;
};

CudnnGraph forward_graph(const Problem& p, const Forward::Tensors& t) {
  Maker make(p, "interleaved");
  Tensor q = make.part("q", kQ, t.qkv, 0);
  Tensor k = make.part("k", kK, t.qkv, 1);
  Tensor v = make.part("v", kV, t.qkv, 2);
  auto [o, lse] = make.graph().sdpa(
      q, k, v, fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(true).set_attn_scale(scale_of(p)));
  make.tokens_output(o, kO, t.o);
  make.statistics_output(lse, t.lse);
  return make.take();
}

CudnnGraph backward_graph(const Problem& p, const Backward::Tensors& t, bool deterministic) {
  Maker make(p, deterministic ? "interleaved deterministic" : "interleaved");
  Tensor q = make.part("q", kQ, t.qkv, 0);
  Tensor k = make.part("k", kK, t.qkv, 1);
  Tensor v = make.part("v", kV, t.qkv, 2);
  Tensor o = make.tokens("o", kO, t.o);
  Tensor d_o = make.tokens("d_o", kDo, t.d_o);
  Tensor lse = make.statistics(t.lse);
  auto [dq, dk, dv] = make.graph().sdpa_backward(q, k, v, o, d_o, lse,
                                                 fe::graph::SDPA_backward_attributes()
                                                     .set_name("attention_backward")
                                                     .set_attn_scale(scale_of(p))
                                                     .set_deterministic_algorithm(deterministic));
  make.part_output(dq, kDq, t.dqkv, 0);
  make.part_output(dk, kDk, t.dqkv, 1);
  make.part_output(dv, kDv, t.dqkv, 2);
  return make.take();
}

std::unique_ptr<Baseline> forward(const Case& c, const Pointers& at, Search search, const Measure& measure) {
  const Problem& p = problem_of<Forward>(c);
  require_supported(p);
  std::vector<CudnnGraph> graphs;
  graphs.push_back(forward_graph(p, Forward::bind(at)));
  return make_cudnn_baseline(p.dtype, std::move(graphs), search, measure);
}

// Sums of dq in any order, and in a fixed one, as ours are.
std::unique_ptr<Baseline> backward(const Case& c, const Pointers& at, Search search, const Measure& measure) {
  const Problem& p = problem_of<Backward>(c);
  require_supported(p);
  std::vector<CudnnGraph> graphs;
  for (const bool deterministic : {false, true}) graphs.push_back(backward_graph(p, Backward::bind(at), deterministic));
  return make_cudnn_baseline(p.dtype, std::move(graphs), search, measure);
}

}  // namespace
}  // namespace ladder::attention

LADDER_BASELINE(ladder::attention::Forward, "cuDNN", 1, ladder::attention::forward)
LADDER_BASELINE(ladder::attention::Backward, "cuDNN", 1, ladder::attention::backward)
