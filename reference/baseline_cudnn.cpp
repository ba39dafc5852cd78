#include "reference/baseline_cudnn.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/backend.h"
#include "core/error.h"

namespace ladder {
namespace fe = cudnn_frontend;

namespace {

// A plan may not take more memory than this; cuDNN's own frameworks stop at similar sizes.
constexpr std::int64_t kMaxWorkspaceBytes = std::int64_t{1} << 30;

// Number of plans measured a second time, so that one lucky sample does not decide.
constexpr std::size_t kFinalists = 5;

// Limit on knob combinations: an engine with more runs with its default knobs and the heuristics' configurations alone.
constexpr std::int64_t kMaxKnobChoices = 8;

void require(fe::error_t status) {
  if (status.is_bad()) throw Failure("cuDNN: " + one_line(status.get_message()));
}

class Handle {
 public:
  Handle() {
    const cudnnStatus_t status = cudnnCreate(&handle_);
    if (status != CUDNN_STATUS_SUCCESS) throw Failure(std::string("cudnnCreate: ") + cudnnGetErrorString(status));
  }
  ~Handle() { cudnnDestroy(handle_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  operator cudnnHandle_t() const { return handle_; }

 private:
  cudnnHandle_t handle_ = nullptr;
};

std::string version_string() {
  const std::size_t v = cudnnGetVersion();  // of the library loaded at run time, not of the headers
  return fmt::format("cuDNN {}.{}.{}", v / 10000, v / 100 % 100, v % 100);
}

// All combinations of an engine's knobs, or its default knobs alone if there are more than kMaxKnobChoices.
std::vector<std::unordered_map<fe::KnobType_t, std::int64_t>> knob_choices(fe::graph::Graph& graph,
                                                                           std::int64_t engine) {
  std::vector<std::unordered_map<fe::KnobType_t, std::int64_t>> choices = {{}};
  std::vector<fe::Knob> knobs;
  if (graph.get_knobs_for_engine(engine, knobs).is_bad()) return choices;
  std::int64_t count = 1;
  for (const fe::Knob& knob : knobs) {
    if (knob.stride <= 0 || knob.maxValue < knob.minValue) return choices;
    count *= (knob.maxValue - knob.minValue) / knob.stride + 1;
    if (count > kMaxKnobChoices) return choices;
  }
  for (const fe::Knob& knob : knobs) {
    std::vector<std::unordered_map<fe::KnobType_t, std::int64_t>> longer;
    for (const auto& choice : choices) {
      for (std::int64_t value = knob.minValue; value <= knob.maxValue; value += knob.stride) {
        longer.push_back(choice);
        longer.back()[knob.type] = value;
      }
    }
    choices = std::move(longer);
  }
  return choices;
}

class CudnnBaseline final : public Baseline {
 public:
  CudnnBaseline(Dtype dtype, std::vector<CudnnGraph> graphs, Search::Extent extent, const std::string& kept,
                const Measure& measure)
      : graphs_(std::move(graphs)) {
    std::string refusal;
    for (CudnnGraph& g : graphs_) {
      fe::error_t status = list_plans(g, dtype, extent, kept);
      if (status.is_bad()) refusal = one_line(status.get_message());
    }
    const bool selective = extent == Search::heuristic || !kept.empty();
    for (std::size_t i = 0; i < tried_.size();) {
      if (selective && found_ && tried_[i].name != kept) {
        candidates_.erase(candidates_.begin() + static_cast<std::ptrdiff_t>(i));
        tried_.erase(tried_.begin() + static_cast<std::ptrdiff_t>(i));
        continue;
      }
      time_plan(i, measure);
      if (!found_ && candidates_[i].advised && tried_[i].seconds > 0) {
        heuristic_ = i;  // heuristics rank their lists, so the first that runs is their choice
        found_ = true;
      }
      ++i;
    }
    if (!choose_best(measure)) {
      for (const BaselinePlan& plan : tried_) {
        if (refusal.empty()) refusal = plan.reason;
      }
      throw Failure(version_string() + " has no plan that runs: " + refusal);
    }
    if (!found_) heuristic_ = best_;
  }

  std::string library() const override { return version_string(); }
  const std::vector<BaselinePlan>& tried() const override { return tried_; }
  const BaselinePlan& plan(Choice choice) const override { return tried_[index(choice)]; }
  std::size_t workspace_bytes() const override { return static_cast<std::size_t>(candidates_[best_].workspace_bytes); }

  bool makes(const TensorSpec& output) const override {
    const CudnnGraph& graph = *candidates_[best_].graph;
    return graph.outputs.empty() || graph.outputs.contains(output.name);
  }

  std::function<void(Stream)> work(Choice choice) override {
    return [this, i = index(choice)](Stream stream) { execute(candidates_[i], stream); };
  }

  void answer() override {
    execute(candidates_[best_], backend::check_stream());
    backend::synchronize();
    if (const CudnnGraph& graph = *candidates_[best_].graph; graph.finish) graph.finish();
  }

 private:
  struct Candidate {
    CudnnGraph* graph = nullptr;
    std::int64_t index = 0;  // of the plan in its graph
    bool advised = false;    // suggested by heuristic mode A
    std::int64_t workspace_bytes = 0;
  };

  std::size_t index(Choice choice) const { return choice == Choice::best ? best_ : heuristic_; }

  // Append a candidate for each distinct configuration of the graph, heuristic mode A's first. With the name of a kept
  // plan the list ends early: a graph of another layout needs its heuristic's plans alone.
  fe::error_t list_plans(CudnnGraph& g, Dtype dtype, Search::Extent extent, const std::string& kept) {
    fe::graph::Graph& graph = *g.graph;
    if (auto status = graph.validate(); status.is_bad()) return status;
    if (auto status = graph.build_operation_graph(handle_); status.is_bad()) return status;
    fe::error_t advice = graph.create_execution_plans({fe::HeurMode_t::A});
    const std::int64_t num_advised = advice.is_good() ? graph.get_execution_plan_count() : 0;
    if (!kept.empty()) extent = kept.ends_with(" " + g.layout) ? Search::all : Search::heuristic;
    // Ignore a mode or an engine that cannot serve the problem: the others remain.
    if (extent != Search::heuristic && !has_plan(g, kept)) {
      (void)graph.create_execution_plans({fe::HeurMode_t::B});
      (void)graph.create_execution_plans({fe::HeurMode_t::FALLBACK});
    }
    if (extent == Search::all && !has_plan(g, kept)) {
      std::int64_t num_engines = 0;
      (void)graph.get_engine_count(num_engines);
      for (std::int64_t engine = 0; engine < num_engines; ++engine) {
        for (const auto& knobs : knob_choices(graph, engine)) (void)graph.create_execution_plan(engine, knobs);
      }
    }
    graph.deselect_numeric_notes(forbidden(dtype));

    std::set<std::string> names;
    for (std::int64_t i = 0; i < graph.get_execution_plan_count(); ++i) {
      const std::string name = plan_name(g, i);
      if (name.empty() || !names.insert(name).second) continue;
      candidates_.push_back({.graph = &g, .index = i, .advised = i < num_advised});
      tried_.push_back({.name = name});
    }
    return graph.get_execution_plan_count() > 0 ? fe::error_t{fe::error_code_t::OK, ""} : advice;
  }

  static std::string plan_name(const CudnnGraph& g, std::int64_t index) {
    std::string name;
    return g.graph->get_plan_name_at_index(index, name).is_bad() ? "" : name + " " + g.layout;
  }

  static bool has_plan(const CudnnGraph& g, const std::string& name) {
    if (name.empty()) return false;
    for (std::int64_t i = 0; i < g.graph->get_execution_plan_count(); ++i) {
      if (plan_name(g, i) == name) return true;
    }
    return false;
  }

  // Numerical notes that exclude an engine, for a fair comparison with kernels that accumulate in fp32: accumulation in
  // less than fp32; rounded inputs, unless the problem is tf32; tensor cores, if the problem is fp32.
  static std::vector<fe::NumericalNote_t> forbidden(Dtype dtype) {
    std::vector<fe::NumericalNote_t> notes = {fe::NumericalNote_t::REDUCED_PRECISION_REDUCTION};
    if (dtype != Dtype::tf32) notes.push_back(fe::NumericalNote_t::DOWN_CONVERT_INPUTS);
    if (dtype == Dtype::f32) notes.push_back(fe::NumericalNote_t::TENSOR_CORE);
    return notes;
  }

  void time_plan(std::size_t i, const Measure& measure) {
    Candidate& candidate = candidates_[i];
    try {
      require(candidate.graph->graph->build_plan_at_index(candidate.index));
      require(candidate.graph->graph->get_workspace_size_plan_at_index(candidate.index, candidate.workspace_bytes));
      if (candidate.workspace_bytes > kMaxWorkspaceBytes) {
        throw Failure(fmt::format("skipped: wants {:.1f} GiB of workspace",
                                  static_cast<double>(candidate.workspace_bytes) / (1 << 30)));
      }
      reserve_workspace(candidate.workspace_bytes);
      tried_[i].seconds = measure([&](Stream stream) { execute(candidate, stream); });
    } catch (const std::exception& error) {
      tried_[i].reason = one_line(error.what());
    }
  }

  bool choose_best(const Measure& measure) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < tried_.size(); ++i) {
      if (tried_[i].seconds > 0) order.push_back(i);
    }
    if (order.empty()) return false;
    const auto faster = [&](std::size_t a, std::size_t b) { return tried_[a].seconds < tried_[b].seconds; };
    std::sort(order.begin(), order.end(), faster);
    if (order.size() > kFinalists) order.erase(order.begin() + kFinalists, order.end());
    if (order.size() > 1) {
      for (std::size_t i : order) time_plan(i, measure);
    }
    std::erase_if(order, [&](std::size_t i) { return tried_[i].seconds == 0; });
    if (order.empty()) return false;
    best_ = *std::min_element(order.begin(), order.end(), faster);
    return true;
  }

  void execute(Candidate& candidate, Stream stream) {
    if (const cudnnStatus_t status = cudnnSetStream(handle_, stream); status != CUDNN_STATUS_SUCCESS) {
      throw Failure(std::string("cudnnSetStream: ") + cudnnGetErrorString(status));
    }
    require(candidate.graph->graph->execute_plan_at_index(handle_, candidate.graph->pointers, workspace_.get(),
                                                          candidate.index));
  }

  void reserve_workspace(std::int64_t bytes) {
    if (bytes <= reserved_bytes_) return;
    workspace_ = device_buffer(static_cast<std::size_t>(bytes));
    reserved_bytes_ = bytes;
  }

  Handle handle_;  // declared first: outlives the graphs' plans
  std::vector<CudnnGraph> graphs_;
  std::vector<Candidate> candidates_;  // parallel to tried_
  std::vector<BaselinePlan> tried_;
  std::size_t best_ = 0;
  std::size_t heuristic_ = 0;
  bool found_ = false;  // heuristic_ is set
  std::shared_ptr<void> workspace_;
  std::int64_t reserved_bytes_ = 0;
};

}  // namespace

std::shared_ptr<void> device_buffer(std::size_t bytes) {
  std::shared_ptr<void> buffer(backend::allocate(bytes), backend::release);
  backend::set_bytes(buffer.get(), 0xFF, bytes);
  return buffer;
}

void transpose(void* to, const void* from, std::int64_t outer, std::int64_t rows, std::int64_t columns,
               std::size_t element_bytes) {
  std::vector<char> in(static_cast<std::size_t>(outer * rows * columns) * element_bytes);
  std::vector<char> out(in.size());
  backend::copy_out(in.data(), from, in.size());
  const char* next = in.data();
  for (std::int64_t i = 0; i < outer; ++i) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c, next += element_bytes) {
        const auto element_idx = static_cast<std::size_t>((i * columns + c) * rows + r);
        std::copy_n(next, element_bytes, out.data() + element_idx * element_bytes);
      }
    }
  }
  backend::copy_in(to, out.data(), out.size());
}

std::shared_ptr<void> transposed_copy(const void* from, std::int64_t outer, std::int64_t rows, std::int64_t columns,
                                      std::size_t element_bytes) {
  std::shared_ptr<void> copy = device_buffer(static_cast<std::size_t>(outer * rows * columns) * element_bytes);
  transpose(copy.get(), from, outer, rows, columns, element_bytes);
  return copy;
}

std::vector<std::int64_t> cudnn_strides(std::int64_t channels, std::int64_t rows, std::int64_t columns,
                                        bool channels_last) {
  if (channels_last) return {rows * columns * channels, 1, columns * channels, channels};
  return {channels * rows * columns, rows * columns, columns, 1};
}

CudnnGraph cudnn_graph(Dtype dtype, bool channels_last) {
  CudnnGraph g{.layout = channels_last ? "nhwc" : "nchw", .graph = std::make_shared<fe::graph::Graph>()};
  g.graph->set_io_data_type(cudnn_type(dtype))
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  return g;
}

fe::DataType_t cudnn_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::bf16:
      return fe::DataType_t::BFLOAT16;
    case Dtype::f16:
      return fe::DataType_t::HALF;
    case Dtype::i32:
      return fe::DataType_t::INT32;
    case Dtype::i64:
      return fe::DataType_t::INT64;
    case Dtype::u8:
      return fe::DataType_t::UINT8;
    case Dtype::f32:
    case Dtype::tf32:
      break;
  }
  return fe::DataType_t::FLOAT;
}

std::unique_ptr<Baseline> make_cudnn_baseline(Dtype dtype, std::vector<CudnnGraph> graphs, const Search& search,
                                              const Measure& measure) {
  const std::string kept = search.kept_plan(version_string());
  return std::make_unique<CudnnBaseline>(dtype, std::move(graphs), search.extent, kept, measure);
}

}  // namespace ladder
