#include "core/simt/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "core/cluster_shape.h"
#include "core/simt/access.h"
#include "core/simt/block.h"
#include "core/simt/early_start.h"
#include "core/simt/order.h"
#include "core/simt/sanitizer.h"
#include "core/simt/watchdog.h"

namespace ladder::simt {

namespace detail {

constinit thread_local Thread* current = nullptr;

Block& active(const char* what, Where where) {
  if (current == nullptr) throw Fault(fmt::format("{}:{}: {} outside a kernel", where.file, where.line, what));
  return *running().block;
}

void join(const Collective& collective, unsigned mask, void* operands, Where where) {
  active(collective.name, where).join(collective, mask, operands, where);
}

int join_block(Reduction reduction, int predicate, Where where) {
  return active("__syncthreads", where).join_block(reduction, predicate, where);
}

void sleep(Where where) { active("__nanosleep", where).sleep(where); }

unsigned active_mask() { return active("__activemask", {}).active_mask(); }

void* shared_variable(const char* const* key, std::size_t bytes, std::size_t alignment) {
  Block& block = active("a shared variable", {});
  void* variable = block.shared_variable(key, bytes, alignment);
  if (variable == nullptr) {
    block.fault(fmt::format("no room for the {} bytes of shared array {}: {} static bytes are allowed, {} in all",
                            bytes, *key, SharedMemory::kMaxStaticBytes, SharedMemory::kMaxBytes),
                {});
  }
  return variable;
}

bool is_shared(const void* address, std::size_t bytes) {
  return active("cp.async", {}).shared().contains(address, bytes);
}

void fault(const char* what, Where where) { active(what, where).fault(what, where); }

void begin_copy(const Copy& copy, Where where) { active("cp.async", where).begin_copy(copy, where); }
void commit_copies() { active("cp.async.commit_group", {}).commit_copies(); }
const Copy* land_copy(int pending) { return active("cp.async.wait_group", {}).land_copy(pending); }

void release_fence() { order::release_fence(); }
void acquire_fence() { order::acquire_fence(); }

}  // namespace detail

namespace {

// Pool of clusters. Blocks are expensive (stacks, shared memory), so that launches reuse them, the largest cluster
// first: all clusters together then hold little more than one launch ever needed.
class ClusterPool {
 public:
  std::unique_ptr<BlockCluster> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<BlockCluster>();
    const auto largest = std::max_element(
        free_.begin(), free_.end(), [](const auto& a, const auto& b) { return a->num_stacks() < b->num_stacks(); });
    std::swap(*largest, free_.back());
    auto cluster = std::move(free_.back());
    free_.pop_back();
    return cluster;
  }
  void give(std::unique_ptr<BlockCluster> cluster) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(cluster));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<BlockCluster>> free_;
};

ClusterPool& pool() {
  static ClusterPool clusters;
  return clusters;
}

// The limits of compute capability 9.0 (CUDA C++ Programming Guide, table "Technical Specifications").
void check(const Launch& launch) {
  auto fail = [](const std::string& what) { throw Fault("invalid launch: " + what); };
  const auto [grid, block, smem, cluster, overlaps, cooperative] = launch;
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > 1024 || block.x > 1024 || block.y > 1024 || block.z > 64) {
    fail(fmt::format("a block of ({},{},{}) threads; 1 to 1024 are allowed, z at most 64", block.x, block.y, block.z));
  }
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 2147483647u || grid.y > 65535 || grid.z > 65535) {
    fail(fmt::format("a grid of ({},{},{}) blocks; at most (2147483647,65535,65535) are allowed, none is 0", grid.x,
                     grid.y, grid.z));
  }
  if (smem > SharedMemory::kMaxBytes) {
    fail(fmt::format("{} bytes of dynamic shared memory; at most {} are allowed", smem, SharedMemory::kMaxBytes));
  }
  if (const std::string refusal = cluster_refusal(grid, cluster); !refusal.empty()) throw Fault(refusal);
}

// Start order of a launch's clusters: a GPU promises none.
class ClusterOrder {
 public:
  ClusterOrder(std::uint64_t count, const Options& options) : count_(count), schedule_(options.schedule) {
    if (schedule_ == Schedule::ascending || schedule_ == Schedule::descending) return;
    shuffled_.resize(count);
    for (std::uint64_t i = 0; i < count; ++i) shuffled_[i] = i;
    Random random(options.seed);
    for (std::uint64_t i = count; i > 1; --i) std::swap(shuffled_[i - 1], shuffled_[random.next() % i]);
  }
  std::uint64_t operator[](std::uint64_t i) const {
    if (!shuffled_.empty()) return shuffled_[i];
    return schedule_ == Schedule::descending ? count_ - 1 - i : i;
  }

 private:
  std::uint64_t count_;
  Schedule schedule_;
  std::vector<std::uint64_t> shuffled_;
};

// Most OS threads that can run clusters of this launch at once.
std::uint64_t most_workers(const Launch& launch) {
  if (order::kChecked) return 1;
  constexpr unsigned kMaxFibers = 16 * 1024;  // every stack takes two of the 65530 mappings that Linux allows a process
  auto count = [](dim3 d) { return std::uint64_t{d.x} * d.y * d.z; };
  return std::max<std::uint64_t>(1, kMaxFibers / (count(launch.cluster) * count(launch.block)));
}

}  // namespace

void run(const Launch& requested, void (*body)(void*), void* context) {
  LADDER_CHECK(detail::current == nullptr, "a kernel launched a kernel");
  check(requested);
  Launch launch = requested;
  if (launch.cooperative) launch.cluster = launch.grid;  // run as one: see grid_barrier.h
  static std::atomic<std::uint64_t> num_launches{0};
  std::atomic<bool> waited{!launch.overlaps_previous};
  std::atomic<bool> starts_next_early{false};
  const BlockCluster::Kernel kernel{.body = body,
                                    .context = context,
                                    .launch = launch,
                                    .number = ++num_launches,
                                    .options = options(),
                                    .waited = &waited,
                                    .starts_next_early = &starts_next_early,
                                    .started_early = started_early()};
  const dim3 grid(launch.grid.x / launch.cluster.x, launch.grid.y / launch.cluster.y, launch.grid.z / launch.cluster.z);
  const std::uint64_t num_clusters = std::uint64_t{grid.x} * grid.y * grid.z;
  const ClusterOrder start_order(num_clusters, kernel.options);
  order::begin_launch(launch);

  std::mutex error_mutex;
  std::exception_ptr error;
  std::uint64_t error_at = num_clusters;  // of several failures the first in this order is reported
  // Run the clusters at positions [first, last) of the order.
  const auto run_clusters = [&](std::uint64_t first, std::uint64_t last, bool watched) {
    if (first >= last || error) return;
    std::atomic<std::uint64_t> next{first};
    const auto work = [&] {
      catch_bad_accesses();
      watch_this_thread();
      std::unique_ptr<BlockCluster> cluster = pool().take();
      for (std::uint64_t i = next++; i < last; i = next++) {
        const std::uint64_t c = start_order[i];
        try {
          cluster->run(kernel,
                       {static_cast<unsigned>(c % grid.x), static_cast<unsigned>(c / grid.x % grid.y),
                        static_cast<unsigned>(c / grid.x / grid.y)},
                       watched);
        } catch (...) {
          const std::lock_guard lock(error_mutex);
          if (i < error_at) {
            error_at = i;
            error = std::current_exception();
          }
          next = last;
        }
      }
      pool().give(std::move(cluster));
    };
    const int wanted = kernel.options.threads > 0 ? kernel.options.threads
                                                  : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    const int num_workers = static_cast<int>(std::min({std::uint64_t(wanted), last - first, most_workers(launch)}));
    std::vector<std::jthread> helpers;
    for (int i = 1; i < num_workers; ++i) helpers.emplace_back(work);
    work();
  };
  if (launch.overlaps_previous && !sanitizer::kHandlesSignals) {
    run_clusters(0, 1, true);
    run_clusters(1, num_clusters - 1, false);
    run_clusters(std::max<std::uint64_t>(1, num_clusters - 1), num_clusters, true);
  } else {
    run_clusters(0, num_clusters, false);
  }
  note_early_start(starts_next_early);
  if (error) std::rethrow_exception(error);
  if (!waited) {
    throw Fault(
        fmt::format("no thread executes griddepcontrol.wait: the grid may end before the one in front of it, and "
                    "the next one will not wait for that [schedule {}]",
                    kernel.options.str()));
  }
}

}  // namespace ladder::simt
