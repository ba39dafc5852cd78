// core/graph.h on a GPU.
#include "core/graph.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "core/cuda_check.h"

namespace ladder {

OwnedStream::OwnedStream() { LADDER_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
OwnedStream::~OwnedStream() { (void)cudaStreamDestroy(stream_); }
void OwnedStream::synchronize() const {
  LADDER_CUDA(cudaGetLastError());
  LADDER_CUDA(cudaStreamSynchronize(stream_));
}

struct Event::Impl {
  cudaEvent_t event = nullptr;
};

Event::Event() : impl_(std::make_unique<Impl>()) { LADDER_CUDA(cudaEventCreate(&impl_->event)); }
Event::~Event() { (void)cudaEventDestroy(impl_->event); }
void Event::record(Stream stream) { LADDER_CUDA(cudaEventRecord(impl_->event, stream)); }
void Event::mark(Stream stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  LADDER_CUDA(cudaStreamIsCapturing(stream, &status));
  const bool captured = status != cudaStreamCaptureStatusNone;
  LADDER_CUDA(
      cudaEventRecordWithFlags(impl_->event, stream, captured ? cudaEventRecordExternal : cudaEventRecordDefault));
}
void Event::hold_back(Stream stream) const { LADDER_CUDA(cudaStreamWaitEvent(stream, impl_->event, 0)); }
void Event::synchronize() const { LADDER_CUDA(cudaEventSynchronize(impl_->event)); }
double Event::seconds_since(const Event& before) const {
  float milliseconds = 0;
  LADDER_CUDA(cudaEventElapsedTime(&milliseconds, before.impl_->event, impl_->event));
  return 1e-3 * milliseconds;
}

PinnedBuffer::PinnedBuffer(std::size_t bytes) : bytes_(bytes) {
  LADDER_CUDA(cudaHostAlloc(&data_, bytes > 0 ? bytes : 1, cudaHostAllocDefault));
}
PinnedBuffer::~PinnedBuffer() { (void)cudaFreeHost(data_); }

void copy_in_async(void* device, const void* host, std::size_t bytes, Stream stream) {
  LADDER_CUDA(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream));
}
void copy_out_async(void* host, const void* device, std::size_t bytes, Stream stream) {
  LADDER_CUDA(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream));
}
void copy_async(void* to, const void* from, std::size_t bytes, Stream stream) {
  LADDER_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
}
void set_bytes_async(void* device, int byte, std::size_t bytes, Stream stream) {
  LADDER_CUDA(cudaMemsetAsync(device, byte, bytes, stream));
}

namespace {

// Returns the graph that `stream` is being captured into, or null.
cudaGraph_t graph_of(Stream stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t graph = nullptr;
#if CUDART_VERSION >= 13000
  LADDER_CUDA(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph));
#else
  LADDER_CUDA(cudaStreamGetCaptureInfo_v2(stream, &status, nullptr, &graph));
#endif
  return status == cudaStreamCaptureStatusActive ? graph : nullptr;
}

using HostFunction = std::function<void()>;

void CUDART_CB run_host_function(void* function) noexcept { (*static_cast<HostFunction*>(function))(); }
void CUDART_CB delete_host_function(void* function) noexcept { delete static_cast<HostFunction*>(function); }
void CUDART_CB run_and_delete(void* function) noexcept {
  run_host_function(function);
  delete_host_function(function);
}

}  // namespace

void run_on_host_async(std::function<void()> function, Stream stream) {
  auto kept = std::make_unique<HostFunction>(std::move(function));
  if (cudaGraph_t graph = graph_of(stream)) {
    cudaUserObject_t object = nullptr;
    LADDER_CUDA(cudaUserObjectCreate(&object, kept.get(), delete_host_function, 1, cudaUserObjectNoDestructorSync));
    HostFunction* const owned = kept.release();
    LADDER_CUDA(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
    LADDER_CUDA(cudaLaunchHostFunc(stream, run_host_function, owned));
    return;
  }
  LADDER_CUDA(cudaLaunchHostFunc(stream, run_and_delete, kept.get()));
  (void)kept.release();  // run_and_delete() deletes it
}

std::vector<const void*> captured_nodes(Stream stream) {
  cudaGraph_t graph = graph_of(stream);
  LADDER_CHECK(graph != nullptr, "the stream is not being captured");
  std::size_t count = 0;
  LADDER_CUDA(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  LADDER_CUDA(cudaGraphGetNodes(graph, nodes.data(), &count));
  return {nodes.begin(), nodes.end()};
}

struct Graph::Impl {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;

  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    if (executable) (void)cudaGraphExecDestroy(executable);
    if (graph) (void)cudaGraphDestroy(graph);
  }
};

Graph::Graph(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;
Graph::~Graph() = default;

Graph Graph::capture(const std::function<void(Stream)>& enqueue) {
  const OwnedStream stream;
  auto impl = std::make_unique<Impl>();
  // Thread-local: what other threads do meanwhile is none of the capture's business.
  LADDER_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  try {
    enqueue(stream);
  } catch (...) {
    (void)cudaStreamEndCapture(stream, &impl->graph);
    (void)cudaGetLastError();
    throw;
  }
  LADDER_CUDA(cudaStreamEndCapture(stream, &impl->graph));
  LADDER_CUDA(cudaGraphInstantiate(&impl->executable, impl->graph, 0));
  return Graph(std::move(impl));
}

void Graph::replay(Stream stream) const { LADDER_CUDA(cudaGraphLaunch(impl_->executable, stream)); }

std::size_t Graph::num_nodes() const {
  std::size_t count = 0;
  LADDER_CUDA(cudaGraphGetNodes(impl_->graph, nullptr, &count));
  return count;
}

Graph::Edges Graph::edges() const {
#if CUDART_VERSION >= 13000
  constexpr auto get_edges = cudaGraphGetEdges;
#else
  constexpr auto get_edges = cudaGraphGetEdges_v2;
#endif
  std::size_t count = 0;
  LADDER_CUDA(get_edges(impl_->graph, nullptr, nullptr, nullptr, &count));
  std::vector<cudaGraphNode_t> from(count);
  std::vector<cudaGraphNode_t> to(count);
  std::vector<cudaGraphEdgeData> data(count);
  LADDER_CUDA(get_edges(impl_->graph, from.data(), to.data(), data.data(), &count));
  Edges edges;
  for (const cudaGraphEdgeData& edge : data) {
    ++(edge.type == cudaGraphDependencyTypeProgrammatic ? edges.programmatic : edges.plain);
  }
  return edges;
}

}  // namespace ladder
