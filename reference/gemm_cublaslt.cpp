// cuBLASLt's matrix product as gemm's baseline: every algorithm that its heuristics name is timed, the fastest kept. Bias,
// residual, the gradient that dgrad adds to and the bias's gradient are part of the same call, where it has them.
//
// cuBLASLt's matrices have their columns contiguous, so ours are their own transposes to it: y^T = w x^T, dx^T = w^T dy^T,
// dw^T = x^T dy.
#include <cublasLt.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/backend.h"
#include "core/error.h"
#include "dev/gemm/gemm.h"
#include "reference/baseline.h"

namespace ladder::gemm {
namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t{64} << 20;
constexpr int kMaxAlgorithms = 256;
constexpr const char* kOneMatrix = "cuBLASLt takes x and dx as one matrix";

// Algorithms of the first round that are measured once more, so that one lucky sample does not decide.
constexpr std::size_t kFinalists = 5;

void require(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) throw Failure(fmt::format("{}: {}", call, cublasLtGetStatusString(status)));
}
#define REQUIRE(call) require(call, #call)

// A cuBLASLt object that destroys itself.
template <class T, cublasStatus_t (*destroy)(T)>
class Owned {
 public:
  Owned() = default;
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, T{})) {}
  Owned& operator=(Owned&&) = delete;
  ~Owned() {
    if (handle_) destroy(handle_);
  }
  T* address() { return &handle_; }
  operator T() const { return handle_; }  // NOLINT(google-explicit-constructor): as the library wants it

 private:
  T handle_{};
};
using Library = Owned<cublasLtHandle_t, cublasLtDestroy>;
using Description = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

// Device memory that frees itself.
std::shared_ptr<void> device_buffer(std::size_t bytes) {
  std::shared_ptr<void> buffer(backend::allocate(bytes), backend::release);
  backend::set_bytes(buffer.get(), 0xFF, bytes);
  return buffer;
}

cudaDataType_t cuda_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::bf16:
      return CUDA_R_16BF;
    case Dtype::f16:
      return CUDA_R_16F;
    default:
      return CUDA_R_32F;
  }
}

// A matrix in our memory as cuBLASLt sees it, and whether it is to be transposed.
struct Matrix {
  const void* memory;
  int rows;  // contiguous
  int cols;
  bool transposed = false;
};

// A pass as D = op(A) op(B) + C: C is null, or lies as D does.
struct Posed {
  Dtype dtype;
  bool tf32;  // whether products may be rounded to TF32
  Matrix a, b, d;
  const void* c = nullptr;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;                   // of the epilogue: added, or made
  Dtype bias_dtype = Dtype::f32;          // as it lies in `bias`
  std::vector<std::string> outputs = {};  // of ours that it makes; empty for all
  std::shared_ptr<void> owned = {};
};

template <class T>
int config(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute) {
  T value{};
  std::size_t written = 0;
  if (cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof value, &written) !=
      CUBLAS_STATUS_SUCCESS) {
    return -1;
  }
  return static_cast<int>(value);
}

// The numbers are those of cublasLt.h's enumerations.
std::string name_of(const cublasLtMatmulAlgo_t& a) {
  return fmt::format("algo {} tile {} stages {} split-K {} reduction {} swizzle {} custom {} inner {} cluster {}",
                     config<int>(a, CUBLASLT_ALGO_CONFIG_ID), config<std::uint32_t>(a, CUBLASLT_ALGO_CONFIG_TILE_ID),
                     config<std::uint32_t>(a, CUBLASLT_ALGO_CONFIG_STAGES_ID),
                     config<int>(a, CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
                     config<std::uint32_t>(a, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME),
                     config<std::uint32_t>(a, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING),
                     config<std::uint32_t>(a, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION),
                     config<std::uint16_t>(a, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID),
                     config<std::uint16_t>(a, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID));
}

class CublasLtBaseline final : public Baseline {
 public:
  CublasLtBaseline(Posed posed, const Search& search, const Measure& measure) : posed_(std::move(posed)) {
    describe();
    const std::string kept = search.kept_plan(library());
    list_algorithms(search.extent == Search::heuristic && kept.empty() ? 1 : kMaxAlgorithms);
    const auto runs = [](const BaselinePlan& plan) { return plan.seconds > 0; };
    for (std::size_t i = 0; i < tried_.size();) {
      if (!kept.empty() && tried_[i].name != kept && std::ranges::any_of(tried_, runs)) {
        algorithms_.erase(algorithms_.begin() + static_cast<std::ptrdiff_t>(i));
        tried_.erase(tried_.begin() + static_cast<std::ptrdiff_t>(i));
        continue;
      }
      time_plan(i++, measure);
    }
    const auto first = std::find_if(tried_.begin(), tried_.end(), runs);  // heuristics rank their list
    if (first == tried_.end()) throw Failure(library() + " has no algorithm that runs: " + tried_.front().reason);
    heuristic_ = static_cast<std::size_t>(first - tried_.begin());
    choose_best(measure);
  }

  std::string library() const override {
    const std::size_t v = cublasLtGetVersion();
    return fmt::format("cuBLASLt {}.{}.{}", v / 10000, v / 100 % 100, v % 100);
  }
  const std::vector<BaselinePlan>& tried() const override { return tried_; }
  const BaselinePlan& plan(Choice choice) const override { return tried_[index(choice)]; }
  std::size_t workspace_bytes() const override { return algorithms_[best_].workspaceSize; }
  bool makes(const TensorSpec& output) const override {
    return posed_.outputs.empty() || std::ranges::count(posed_.outputs, output.name) > 0;
  }
  Dtype takes(const TensorSpec& input) const override { return input.name == "bias" ? posed_.bias_dtype : input.dtype; }
  std::function<void(Stream)> work(Choice choice) override {
    return [this, i = index(choice)](Stream stream) { execute(i, stream); };
  }
  void answer() override {
    execute(best_, backend::check_stream());
    backend::synchronize();
  }

 private:
  std::size_t index(Choice choice) const { return choice == Choice::best ? best_ : heuristic_; }

  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    REQUIRE(cublasLtMatmulDescSetAttribute(description_, attribute, &value, sizeof value));
  }

  void describe() {
    const cudaDataType_t type = cuda_type(posed_.dtype);
    REQUIRE(cublasLtCreate(library_.address()));
    // Plain fp32 means no tensor cores; 16-bit products are summed in fp32.
    const auto compute = posed_.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    REQUIRE(cublasLtMatmulDescCreate(description_.address(), compute, CUDA_R_32F));
    set(CUBLASLT_MATMUL_DESC_TRANSA, posed_.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, posed_.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, posed_.epilogue);
    if (posed_.bias) {
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, posed_.bias);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, cuda_type(posed_.bias_dtype));
    }
    const auto layout = [&](Layout& to, const Matrix& m) {
      REQUIRE(cublasLtMatrixLayoutCreate(to.address(), type, m.rows, m.cols, m.rows));
    };
    layout(a_, posed_.a);
    layout(b_, posed_.b);
    layout(d_, posed_.d);
  }

  void list_algorithms(int most) {
    Preference preference;
    REQUIRE(cublasLtMatmulPreferenceCreate(preference.address()));
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      REQUIRE(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value));
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
    // Partial sums in the output's dtype would be fewer bits than fp32.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           std::uint32_t{CUBLASLT_REDUCTION_SCHEME_MASK & ~CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE});
    algorithms_.resize(most);
    int found = 0;
    REQUIRE(cublasLtMatmulAlgoGetHeuristic(library_, description_, a_, b_, d_, d_, preference, most, algorithms_.data(),
                                           &found));
    algorithms_.resize(found);
    if (algorithms_.empty()) throw Failure(library() + "'s heuristics name no algorithm");
    const std::string bias =
        posed_.bias && posed_.bias_dtype != Dtype::f32 ? fmt::format(", {} bias", name(posed_.bias_dtype)) : "";
    for (const auto& algorithm : algorithms_) tried_.push_back({.name = name_of(algorithm.algo) + bias});
    workspace_ = device_buffer(kWorkspaceBytes);
  }

  void time_plan(std::size_t i, const Measure& measure) {
    try {
      REQUIRE(algorithms_[i].state);
      tried_[i].seconds = measure([&](Stream stream) { execute(i, stream); });
    } catch (const std::exception& error) {
      tried_[i].seconds = 0;
      tried_[i].reason = one_line(error.what());
    }
  }

  void choose_best(const Measure& measure) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < tried_.size(); ++i) {
      if (tried_[i].seconds > 0) order.push_back(i);
    }
    const auto faster = [&](std::size_t a, std::size_t b) { return tried_[a].seconds < tried_[b].seconds; };
    std::ranges::sort(order, faster);
    if (order.size() > kFinalists) order.resize(kFinalists);
    if (order.size() > 1) {
      for (const std::size_t i : order) time_plan(i, measure);
    }
    std::erase_if(order, [&](std::size_t i) { return tried_[i].seconds == 0; });
    best_ = order.empty() ? heuristic_ : *std::ranges::min_element(order, faster);
  }

  void execute(std::size_t i, Stream stream) {
    const float one = 1, beta = posed_.c ? 1 : 0;
    void* const d = const_cast<void*>(posed_.d.memory);
    REQUIRE(cublasLtMatmul(library_, description_, &one, posed_.a.memory, a_, posed_.b.memory, b_, &beta,
                           posed_.c ? posed_.c : d, d_, d, d_, &algorithms_[i].algo, workspace_.get(), kWorkspaceBytes,
                           stream));
  }

  Posed posed_;
  Library library_;
  Description description_;
  Layout a_, b_, d_;
  std::vector<cublasLtMatmulHeuristicResult_t> algorithms_;  // in step with tried_
  std::vector<BaselinePlan> tried_;
  std::size_t best_ = 0;
  std::size_t heuristic_ = 0;
  std::shared_ptr<void> workspace_;
};

// The first of several ways to pose a case that cuBLASLt runs.
std::unique_ptr<Baseline> first_that_runs(std::vector<Posed> ways, const Search& search, const Measure& measure) {
  std::string refusal;
  for (Posed& way : ways) {
    try {
      return std::make_unique<CublasLtBaseline>(std::move(way), search, measure);
    } catch (const Failure& failure) {
      if (refusal.empty()) refusal = failure.what();
    }
  }
  throw Failure(refusal);
}

// `bias` [count] in another dtype, made here and never timed.
std::shared_ptr<void> rounded_bias(const float* bias, int count, Dtype dtype) {
  std::vector<float> values(count);
  backend::copy_out(values.data(), bias, count * sizeof(float));
  std::vector<unsigned char> stored(count * size_of(dtype));
  encode(dtype, values.data(), count, stored.data());
  std::shared_ptr<void> copy = device_buffer(stored.size());
  backend::copy_in(copy.get(), stored.data(), stored.size());
  return copy;
}

bool in_tf32(const Problem& p) { return p.dtype == Dtype::tf32 || p.rounded_terms() == Dtype::tf32; }

std::unique_ptr<Baseline> fprop(const Case& c, const Pointers& pointers, const Search& search, const Measure& measure) {
  const Problem& p = problem_of<Fprop>(c);
  if (p.silu) throw Failure("cuBLASLt has no epilogue with SiLU");
  if (p.split > 0) throw Failure(kOneMatrix);
  const Fprop::Tensors t = Fprop::bind(pointers);
  Posed posed{.dtype = p.dtype,
              .tf32 = in_tf32(p),
              .a = {t.w, p.k, p.n, true},
              .b = {t.x, p.k, p.m},
              .d = {t.y, p.n, p.m},
              .c = t.r};
  if (!t.bias) return first_that_runs({posed}, search, measure);
  posed.epilogue = CUBLASLT_EPILOGUE_BIAS;
  posed.bias = const_cast<float*>(t.bias);
  posed.bias_dtype = p.parameter_dtype();
  std::vector<Posed> ways = {posed};
  if (size_of(p.dtype) == 2 && !p.params16) {  // most of its kernels want the bias in the output's dtype
    posed.owned = rounded_bias(t.bias, p.n, p.dtype);
    posed.bias = posed.owned.get();
    posed.bias_dtype = p.dtype;
    ways.push_back(posed);
  }
  return first_that_runs(std::move(ways), search, measure);
}

std::unique_ptr<Baseline> dgrad(const Case& c, const Pointers& pointers, const Search& search, const Measure& measure) {
  const Problem& p = problem_of<Dgrad>(c);
  if (p.split > 0) throw Failure(kOneMatrix);
  const Dgrad::Tensors t = Dgrad::bind(pointers);
  return first_that_runs({{.dtype = p.dtype,
                           .tf32 = in_tf32(p),
                           .a = {t.w, p.k, p.n},
                           .b = {t.dy, p.n, p.m},
                           .d = {t.dx, p.k, p.m},
                           .c = t.r}},
                         search, measure);
}

std::unique_ptr<Baseline> wgrad(const Case& c, const Pointers& pointers, const Search& search, const Measure& measure) {
  const Problem& p = problem_of<Wgrad>(c);
  if (p.split > 0) throw Failure(kOneMatrix);
  const Wgrad::Tensors t = Wgrad::bind(pointers);
  const Posed weights{.dtype = p.dtype,
                      .tf32 = in_tf32(p),
                      .a = {t.x, p.k, p.m},
                      .b = {t.dy, p.n, p.m, true},
                      .d = {t.dw, p.k, p.n},
                      .outputs = {"dw"}};
  if (!t.dbias) return first_that_runs({weights}, search, measure);
  // dbias in the same call: as ours, else in the dtype of dw, else not at all.
  Posed both = weights;
  both.epilogue = CUBLASLT_EPILOGUE_BGRADB;
  both.bias = t.dbias;
  both.bias_dtype = p.parameter_dtype();
  both.outputs = {};
  std::vector<Posed> ways = {both};
  if (size_of(p.dtype) == 2 && !p.params16) {
    both.owned = device_buffer(p.n * size_of(p.dtype));
    both.bias = both.owned.get();
    both.bias_dtype = p.dtype;
    both.outputs = {"dw"};
    ways.push_back(both);
  }
  ways.push_back(weights);
  return first_that_runs(std::move(ways), search, measure);
}

}  // namespace
}  // namespace ladder::gemm

LADDER_BASELINE(ladder::gemm::Fprop, "cuBLASLt", 1, ladder::gemm::fprop)
LADDER_BASELINE(ladder::gemm::Dgrad, "cuBLASLt", 1, ladder::gemm::dgrad)
LADDER_BASELINE(ladder::gemm::Wgrad, "cuBLASLt", 1, ladder::gemm::wgrad)
