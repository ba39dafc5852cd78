// core/kernel_records.h on a GPU.
#include "core/kernel_records.h"

#include "core/error.h"

#if __has_include(<cupti.h>)

#include <cupti.h>
#include <dlfcn.h>

#include <cstdlib>
#include <mutex>
#include <string>
#include <unordered_map>

#include <fmt/format.h>

#include "core/cuda_check.h"

namespace ladder {
namespace {

// The functions of libcupti that this file calls.
class Cupti {
  void* library_ = open();  // never unloaded: CUPTI has threads of its own

 public:
  decltype(&cuptiGetResultString) result_string = find<decltype(&cuptiGetResultString)>("cuptiGetResultString");
  decltype(&cuptiSubscribe) subscribe = find<decltype(&cuptiSubscribe)>("cuptiSubscribe");
  decltype(&cuptiUnsubscribe) unsubscribe = find<decltype(&cuptiUnsubscribe)>("cuptiUnsubscribe");
  decltype(&cuptiEnableCallback) enable_callback = find<decltype(&cuptiEnableCallback)>("cuptiEnableCallback");
  decltype(&cuptiGetGraphNodeId) graph_node_id = find<decltype(&cuptiGetGraphNodeId)>("cuptiGetGraphNodeId");
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks =
      find<decltype(&cuptiActivityRegisterCallbacks)>("cuptiActivityRegisterCallbacks");
  decltype(&cuptiActivityEnable) enable = find<decltype(&cuptiActivityEnable)>("cuptiActivityEnable");
  decltype(&cuptiActivityDisable) disable = find<decltype(&cuptiActivityDisable)>("cuptiActivityDisable");
  decltype(&cuptiActivityFlushAll) flush = find<decltype(&cuptiActivityFlushAll)>("cuptiActivityFlushAll");
  decltype(&cuptiActivityGetNextRecord) next_record =
      find<decltype(&cuptiActivityGetNextRecord)>("cuptiActivityGetNextRecord");

  // Throws Failure unless `result` is CUPTI_SUCCESS.
  void check(CUptiResult result, const char* what) const {
    if (result == CUPTI_SUCCESS) return;
    const char* text = nullptr;
    result_string(result, &text);
    throw Failure(fmt::format("CUPTI: {} failed: {}", what, text ? text : "of an unknown error"));
  }

 private:
  static void* open() {
    // Library of this toolkit's major version, which also determines the layout of records.
    const std::string name = fmt::format("libcupti.so.{}", CUDART_VERSION / 1000);
    for (const std::string& file : {name, std::string(LADDER_CUPTI_FOLDER) + "/" + name}) {
      if (void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    }
    throw Failure(fmt::format("no CUPTI: {} is not installed", name));
  }

  template <class F>
  F find(const char* name) const {
    void* const found = dlsym(library_, name);
    if (!found) throw Failure(fmt::format("no CUPTI: its library has no {}", name));
    return reinterpret_cast<F>(found);
  }
};

const Cupti& cupti() {
  static const Cupti loaded;
  return loaded;
}

constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                         CUPTI_ACTIVITY_KIND_MEMSET};

// State written by CUPTI's callbacks, some of which run on CUPTI's own threads.
struct Kept {
  std::mutex mutex;
  CUpti_SubscriberHandle subscriber = nullptr;
  std::vector<NodeRecord> records;
  std::unordered_map<std::uint64_t, std::uint64_t> captured;  // captured node's id by the id of its copy
};
Kept kept;

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
  *bytes = std::size_t{4} << 20;
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, *bytes));
  *most_records = 0;
}

template <class Activity>
NodeRecord record_of(const CUpti_Activity* activity) {
  const auto& a = *reinterpret_cast<const Activity*>(activity);
  return {.node = a.graphNodeId,
          .begin_ns = static_cast<std::int64_t>(a.start),
          .end_ns = static_cast<std::int64_t>(a.end)};
}

void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid) {
  {
    const std::lock_guard lock(kept.mutex);
    CUpti_Activity* activity = nullptr;
    while (valid > 0 && cupti().next_record(buffer, valid, &activity) == CUPTI_SUCCESS) {
      NodeRecord record;
      if (activity->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) record = record_of<CUpti_ActivityKernel9>(activity);
      if (activity->kind == CUPTI_ACTIVITY_KIND_MEMCPY) record = record_of<CUpti_ActivityMemcpy5>(activity);
      if (activity->kind == CUPTI_ACTIVITY_KIND_MEMSET) record = record_of<CUpti_ActivityMemset4>(activity);
      if (record.node != 0) kept.records.push_back(record);  // 0: not in a graph
    }
  }
  std::free(buffer);
}

// Note that a captured node was copied: instantiating a graph copies its nodes, and records name the copies.
void CUPTIAPI node_was_copied(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void* data) {
  const auto& resource = *static_cast<const CUpti_ResourceData*>(data);
  const auto& graph = *static_cast<const CUpti_GraphData*>(resource.resourceDescriptor);
  std::uint64_t captured = 0;
  std::uint64_t copy = 0;
  if (cupti().graph_node_id(graph.originalNode, &captured) != CUPTI_SUCCESS) return;
  if (cupti().graph_node_id(graph.node, &copy) != CUPTI_SUCCESS) return;
  const std::lock_guard lock(kept.mutex);
  if (copy != captured) kept.captured[copy] = captured;
}

}  // namespace

KernelRecords::KernelRecords() {
  const Cupti& api = cupti();
  api.check(api.subscribe(&kept.subscriber, node_was_copied, nullptr), "subscribing (is another profiler running?)");
  try {
    api.check(api.enable_callback(1, kept.subscriber, CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED),
              "following graphs");
    api.check(api.register_callbacks(give_buffer, take_buffer), "receiving records");
    for (const CUpti_ActivityKind kind : kKinds) api.check(api.enable(kind), "keeping records");
  } catch (...) {
    (void)api.unsubscribe(kept.subscriber);
    throw;
  }
}

KernelRecords::~KernelRecords() {
  for (const CUpti_ActivityKind kind : kKinds) (void)cupti().disable(kind);
  (void)cupti().flush(0);
  (void)cupti().unsubscribe(kept.subscriber);
}

std::uint64_t KernelRecords::id_of(const void* captured_node) const {
  std::uint64_t id = 0;
  auto* const node = static_cast<CUgraphNode>(const_cast<void*>(captured_node));
  cupti().check(cupti().graph_node_id(node, &id), "naming a node");
  return id;
}

std::vector<NodeRecord> KernelRecords::take() {
  LADDER_CUDA(cudaDeviceSynchronize());
  cupti().check(cupti().flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "flushing records");
  const std::lock_guard lock(kept.mutex);
  std::vector<NodeRecord> taken;
  taken.swap(kept.records);
  for (NodeRecord& record : taken) {
    // Follow copies of copies back to the captured node.
    for (auto it = kept.captured.find(record.node); it != kept.captured.end(); it = kept.captured.find(record.node)) {
      record.node = it->second;
    }
  }
  return taken;
}

}  // namespace ladder

#else

namespace ladder {

KernelRecords::KernelRecords() { throw Failure("no CUPTI: the headers were missing when this was built (cupti.h)"); }
KernelRecords::~KernelRecords() = default;
std::uint64_t KernelRecords::id_of(const void*) const { return 0; }
std::vector<NodeRecord> KernelRecords::take() { return {}; }

}  // namespace ladder

#endif
