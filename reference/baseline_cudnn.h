// cuDNN as a baseline: a case posed as one or more graphs (a graph for each layout worth trying), every engine
// configuration cuDNN has for them built and timed, the fastest kept.
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
  std::unordered_map<std::int64_t, void*> pointers = {};     // device memory of its tensors, by their uid
  std::function<void()> finish = {};                         // brings outputs to ours; empty where they are ours
  std::set<std::string> outputs = {};                        // names of the tensors it makes; empty for all
  std::vector<std::shared_ptr<void>> owned = {};             // device memory that lives as long as the graph
};

// Device memory that frees itself, filled with NaN bytes.
std::shared_ptr<void> device_buffer(std::size_t bytes);

// `outer` matrices of rows x columns elements in device memory, each transposed: images with the channels last, of pixels x
// channels, as cuDNN's NCHW, or back. By way of the host: never timed.
void transpose(void* to, const void* from, std::int64_t outer, std::int64_t rows, std::int64_t columns,
               std::size_t element_bytes);
std::shared_ptr<void> transposed_copy(const void* from, std::int64_t outer, std::int64_t rows, std::int64_t columns,
                                      std::size_t element_bytes);

// Strides of an (outer, channels, rows, columns) tensor, which is the order cuDNN gives dimensions in.
std::vector<std::int64_t> cudnn_strides(std::int64_t channels, std::int64_t rows, std::int64_t columns,
                                        bool channels_last);

// A graph without operations, whose tensors are in `dtype` and intermediates in fp32.
CudnnGraph cudnn_graph(Dtype dtype, bool channels_last);

// How cuDNN stores `dtype`. tf32 is stored as fp32; whether an engine may round to it is the search's business.
cudnn_frontend::DataType_t cudnn_type(Dtype dtype);

// Builds and times the plans of all graphs; graphs[0] is the one whose heuristic counts. Engines that sum in less than
// fp32 are left out, for fp32 those on tensor cores as well. Throws Failure if nothing runs.
std::unique_ptr<Baseline> make_cudnn_baseline(Dtype dtype, std::vector<CudnnGraph> graphs, const Search& search,
                                              const Measure& measure);

}  // namespace ladder
