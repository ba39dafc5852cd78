// cuDNN's softmax and its gradient as baselines, by the calls that it has beside its graphs: a graph knows a softmax within
// attention alone. Plans are its two readings of a matrix, a row as the channels of an image or as all of an image. Its
// algorithm that subtracts no max is no fair one.
#include <cudnn.h>
#include <fmt/format.h>

#include "core/backend.h"
#include "core/error.h"
#include "dev/softmax/softmax.h"
#include "reference/baseline.h"

namespace ladder::softmax {
namespace {

void require(cudnnStatus_t status, const char* call) {
  if (status != CUDNN_STATUS_SUCCESS) throw Failure(fmt::format("{}: {}", call, cudnnGetErrorString(status)));
}
#define REQUIRE(call) require(call, #call)

// The library's handle, and a description of every tensor: they all have the same shape and type.
class Library {
 public:
  explicit Library(const Problem& p) {
    const cudnnDataType_t type = p.dtype == Dtype::bf16  ? CUDNN_DATA_BFLOAT16
                                 : p.dtype == Dtype::f16 ? CUDNN_DATA_HALF
                                                         : CUDNN_DATA_FLOAT;
    REQUIRE(cudnnCreate(&handle_));
    REQUIRE(cudnnCreateTensorDescriptor(&matrix_));
    REQUIRE(cudnnSetTensor4dDescriptor(matrix_, CUDNN_TENSOR_NCHW, type, p.m, p.n, 1, 1));
  }
  ~Library() {
    if (matrix_) cudnnDestroyTensorDescriptor(matrix_);
    if (handle_) cudnnDestroy(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  void use(Stream stream) const { REQUIRE(cudnnSetStream(handle_, stream)); }

  void run(const Forward::Tensors& t, cudnnSoftmaxMode_t mode) const {
    REQUIRE(cudnnSoftmaxForward(handle_, CUDNN_SOFTMAX_ACCURATE, mode, &kOne, matrix_, t.x, &kZero, matrix_, t.y));
  }
  void run(const Backward::Tensors& t, cudnnSoftmaxMode_t mode) const {
    REQUIRE(cudnnSoftmaxBackward(handle_, CUDNN_SOFTMAX_ACCURATE, mode, &kOne, matrix_, t.y, matrix_, t.dy, &kZero,
                                 matrix_, t.dx));
  }

 private:
  static constexpr float kOne = 1;
  static constexpr float kZero = 0;
  cudnnHandle_t handle_ = nullptr;
  cudnnTensorDescriptor_t matrix_ = nullptr;
};

template <class P>
class CudnnSoftmax final : public Baseline {
 public:
  CudnnSoftmax(const Problem& p, const typename P::Tensors& tensors, const Search& search, const Measure& measure)
      : library_(p), tensors_(tensors) {
    if (search.extent == Search::heuristic && search.kept_plan(library()).empty()) tried_.resize(1);
    for (std::size_t i = 0; i < tried_.size(); ++i) {
      try {
        tried_[i].seconds = measure([&](Stream stream) { execute(i, stream); });
      } catch (const std::exception& error) {
        tried_[i].reason = one_line(error.what());
        continue;
      }
      if (tried_[best_].seconds == 0 || tried_[i].seconds < tried_[best_].seconds) best_ = i;
      if (tried_[heuristic_].seconds == 0) heuristic_ = i;
    }
    if (tried_[best_].seconds == 0) throw Failure(library() + " has no softmax that runs: " + tried_[0].reason);
  }

  std::string library() const override {
    const std::size_t v = cudnnGetVersion();
    return fmt::format("cuDNN {}.{}.{}", v / 10000, v / 100 % 100, v % 100);
  }
  const std::vector<BaselinePlan>& tried() const override { return tried_; }
  const BaselinePlan& plan(Choice choice) const override { return tried_[index(choice)]; }
  std::size_t workspace_bytes() const override { return 0; }
  std::function<void(Stream)> work(Choice choice) override {
    return [this, i = index(choice)](Stream stream) { execute(i, stream); };
  }
  void answer() override {
    execute(best_, backend::check_stream());
    backend::synchronize();
  }

 private:
  static constexpr cudnnSoftmaxMode_t kModes[] = {CUDNN_SOFTMAX_MODE_CHANNEL, CUDNN_SOFTMAX_MODE_INSTANCE};

  std::size_t index(Choice choice) const { return choice == Choice::best ? best_ : heuristic_; }

  void execute(std::size_t i, Stream stream) const {
    library_.use(stream);
    library_.run(tensors_, kModes[i]);
  }

  Library library_;
  typename P::Tensors tensors_;
  std::vector<BaselinePlan> tried_{{.name = "softmax accurate channel"}, {.name = "softmax accurate instance"}};
  std::size_t best_ = 0;
  std::size_t heuristic_ = 0;
};

template <class P>
std::unique_ptr<Baseline> baseline(const Case& c, const Pointers& pointers, const Search& search,
                                   const Measure& measure) {
  return std::make_unique<CudnnSoftmax<P>>(problem_of<P>(c), P::bind(pointers), search, measure);
}

}  // namespace
}  // namespace ladder::softmax

LADDER_BASELINE(ladder::softmax::Forward, "cuDNN", 1, ladder::softmax::baseline<ladder::softmax::Forward>)
LADDER_BASELINE(ladder::softmax::Backward, "cuDNN", 1, ladder::softmax::baseline<ladder::softmax::Backward>)
