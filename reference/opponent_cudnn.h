// cuDNN as an opponent: a case posed as one or more graphs (a graph for each layout worth trying), every engine
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

#include "reference/opponent.h"

namespace ladder {

// One way of posing a case to cuDNN.
struct CudnnGraph {
  std::string layout = {};                                   // "nhwc": shown behind a plan's name
  std::shared_ptr<cudnn_frontend::graph::Graph> graph = {};  // operations and tensors, not yet validated
  std::unordered_map<std::int64_t, void*> pointers = {};     // device memory of its tensors, by their uid
  std::function<void()> finish = {};                         // brings outputs to ours; empty where they are ours
  std::set<std::string> outputs = {};                        // names of the tensors it makes; empty for all
  std::vector<std::shared_ptr<void>> owned = {};             // device memory that lives as long as the graph
};

// Device memory that frees itself, filled with NaN bytes.
std::shared_ptr<void> device_buffer(std::size_t bytes);

// How cuDNN stores `dtype`. tf32 is stored as fp32; whether an engine may round to it is the search's business.
cudnn_frontend::DataType_t cudnn_type(Dtype dtype);

// Builds and times the plans of all graphs; graphs[0] is the one whose heuristic counts. Engines that sum in less than
// fp32 are left out, for fp32 those on tensor cores as well. Throws Failure if nothing runs.
std::unique_ptr<Opponent> make_cudnn_opponent(Dtype dtype, std::vector<CudnnGraph> graphs, Search search,
                                              const Measure& measure);

}  // namespace ladder
