// cuDNN as a baseline: poses a case as one or more graphs (one for each layout worth trying), builds and times every
// engine configuration that cuDNN has for them, and keeps the fastest.
#pragma once

#include <cudnn_frontend.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "reference/baseline.h"

namespace ladder {

// One way of posing a case to cuDNN.
struct CudnnGraph {
  std::string layout = {};                                   // "nhwc": shown after a plan's name
  std::shared_ptr<cudnn_frontend::graph::Graph> graph = {};  // operations and tensors, not yet validated
  std::unordered_map<std::int64_t, void*> pointers = {};     // device memory of the tensors, by uid
  std::function<void()> finish = {};                         // converts outputs to our layout; empty if not needed
  std::set<std::string> outputs = {};                        // names of the tensors it computes; empty for all
  std::vector<std::shared_ptr<void>> owned = {};             // device memory that lives as long as the graph
};

// Allocate device memory filled with 0xFF bytes (NaN), freed with the last pointer.
std::shared_ptr<void> device_buffer(std::size_t bytes);

// Transpose `outer` matrices of rows x columns elements in device memory: images [pixels][channels] to cuDNN's NCHW, or
// back. Goes through the host; never timed.
void transpose(void* to, const void* from, std::int64_t outer, std::int64_t rows, std::int64_t columns,
               std::size_t element_bytes);
std::shared_ptr<void> transposed_copy(const void* from, std::int64_t outer, std::int64_t rows, std::int64_t columns,
                                      std::size_t element_bytes);

// Strides, in elements, of an (outer, channels, rows, columns) tensor: cuDNN's order of dimensions.
std::vector<std::int64_t> cudnn_strides(std::int64_t channels, std::int64_t rows, std::int64_t columns,
                                        bool channels_last);

// Empty graph with tensors in `dtype` and intermediates in fp32.
CudnnGraph cudnn_graph(Dtype dtype, bool channels_last);

// cuDNN's storage type of `dtype`. tf32 is stored as fp32; the search decides if an engine may round to tf32.
cudnn_frontend::DataType_t cudnn_type(Dtype dtype);

// Build and time the plans of all graphs. The heuristic plan is that of graphs[0]. Leave out engines that accumulate
// in less than fp32, and for fp32 problems tensor-core engines too. Throws Failure if nothing runs.
std::unique_ptr<Baseline> make_cudnn_baseline(Dtype dtype, std::vector<CudnnGraph> graphs, const Search& search,
                                              const Measure& measure);

}  // namespace ladder
