// NCCL's collectives (core/communicator.h). Its library is loaded at first use; a build without its header fails there.
#include "core/communicator.h"

#include <fmt/format.h>

#include "core/error.h"

#ifdef LADDER_NCCL_LIBRARY  // full path, of the library beside the header

#include <dlfcn.h>
#include <nccl.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace ladder {
namespace {

using Exchange = std::function<std::vector<std::string>(std::string_view)>;

constexpr int kOldestNccl = 22700;  // 2.27.0 as ncclGetVersion() writes it
constexpr std::chrono::seconds kTimeout{300};
constexpr std::chrono::microseconds kTick{100};

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

// The functions of libnccl that this file calls.
class Nccl {
  std::string file_;
  void* library_ = open();  // never unloaded: NCCL has threads of its own

 public:
  decltype(&ncclGetVersion) get_version = find<decltype(&ncclGetVersion)>("ncclGetVersion");
  int version = checked_version();
  decltype(&ncclGetErrorString) error_string = find<decltype(&ncclGetErrorString)>("ncclGetErrorString");
  decltype(&ncclGetLastError) last_error = find<decltype(&ncclGetLastError)>("ncclGetLastError");
  decltype(&ncclGetUniqueId) get_unique_id = find<decltype(&ncclGetUniqueId)>("ncclGetUniqueId");
  decltype(&ncclCommInitRankConfig) init = find<decltype(&ncclCommInitRankConfig)>("ncclCommInitRankConfig");
  decltype(&ncclCommGetAsyncError) async_error = find<decltype(&ncclCommGetAsyncError)>("ncclCommGetAsyncError");
  decltype(&ncclCommFinalize) finalize = find<decltype(&ncclCommFinalize)>("ncclCommFinalize");
  decltype(&ncclCommDestroy) destroy = find<decltype(&ncclCommDestroy)>("ncclCommDestroy");
  decltype(&ncclCommAbort) abort = find<decltype(&ncclCommAbort)>("ncclCommAbort");
  decltype(&ncclGroupStart) group_start = find<decltype(&ncclGroupStart)>("ncclGroupStart");
  decltype(&ncclGroupEnd) group_end = find<decltype(&ncclGroupEnd)>("ncclGroupEnd");
  decltype(&ncclAllReduce) all_reduce = find<decltype(&ncclAllReduce)>("ncclAllReduce");
  decltype(&ncclReduceScatter) reduce_scatter = find<decltype(&ncclReduceScatter)>("ncclReduceScatter");
  decltype(&ncclAllGather) all_gather = find<decltype(&ncclAllGather)>("ncclAllGather");
  decltype(&ncclBroadcast) broadcast = find<decltype(&ncclBroadcast)>("ncclBroadcast");

 private:
  void* open() {
    // NVIDIA's maintainers: sums of NVLink SHARP differ from call to call. NCCL reads its variables at its first call.
    setenv("NCCL_NVLS_ENABLE", "0", 0);
    const char* const folder = std::getenv("LADDER_NCCL");
    std::vector<std::string> files;
    if (folder && *folder) {
      files = {fmt::format("{}/lib/libnccl.so.2", folder), fmt::format("{}/lib64/libnccl.so.2", folder)};
    } else {
      files = {LADDER_NCCL_LIBRARY, "libnccl.so.2"};
    }
    std::string errors;
    for (const std::string& file : files) {
      if (void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) {
        file_ = file;
        return library;
      }
      const char* const error = dlerror();
      errors += fmt::format("; {}", error ? error : file.c_str());
    }
    throw Failure(
        fmt::format("NCCL cannot be loaded: run ./ladder setup --preset cuda, or set LADDER_NCCL to a folder "
                    "with include/ and lib/{}",
                    errors));
  }

  template <class F>
  F find(const char* name) const {
    void* const found = dlsym(library_, name);
    if (!found) throw Failure(fmt::format("NCCL: {} has no {}: version 2.27 or newer is right", file_, name));
    return reinterpret_cast<F>(found);
  }

  int checked_version() const {
    int found = 0;
    if (get_version(&found) != ncclSuccess || found < kOldestNccl) {
      throw Failure(fmt::format("NCCL {} of {} is too old: {} or newer is right, and {} was there when this was built",
                                version_text(found), file_, version_text(kOldestNccl),
                                version_text(NCCL_VERSION_CODE)));
    }
    return found;
  }
};

const Nccl& nccl() {
  static const Nccl loaded;
  return loaded;
}

// A non-blocking communicator, as only such a one can be aborted: a call that returns ncclInProgress goes on on a thread
// of NCCL, and must end before the next call.
//
// NOTE: ncclCommDestroy() waits until no graph holds the communicator, for ever if need be: destroy graphs first.
class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(int rank, int size, const Exchange& exchange) : rank_(rank), size_(size) {
    LADDER_CHECK(0 <= rank && rank < size);
    const ncclUniqueId id = shared_id(exchange);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    try {
      finish(nccl().init(&communicator_, size, id, rank, &config), "connecting");
    } catch (...) {
      close();
      throw;
    }
  }

  ~NcclCommunicator() override { close(); }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void all_reduce(std::span<const Array> arrays, Stream stream) override {
    finish(nccl().group_start(), "group_start");
    ncclResult_t failure = ncclSuccess;  // ncclInProgress is none: the calls end with the group
    for (const Array& a : arrays) {
      if (a.count == 0) continue;
      const ncclResult_t result = nccl().all_reduce(a.data, a.data, a.count, type_of(a.dtype),
                                                    a.mean ? ncclAvg : ncclSum, communicator_, stream);
      if (result != ncclSuccess && result != ncclInProgress) failure = result;
    }
    const ncclResult_t end = nccl().group_end();
    finish(failure == ncclSuccess ? end : failure, "all_reduce");
  }
  void reduce_scatter(const void* from, void* to, std::size_t count, Dtype dtype, Stream stream) override {
    const ncclDataType_t type = type_of(dtype);
    if (count == 0) return;
    finish(nccl().reduce_scatter(from, to, count, type, ncclSum, communicator_, stream), "reduce_scatter");
  }
  void all_gather(const void* from, void* to, std::size_t bytes, Stream stream) override {
    if (bytes > 0) finish(nccl().all_gather(from, to, bytes, ncclUint8, communicator_, stream), "all_gather");
  }
  void broadcast(void* data, std::size_t bytes, int root, Stream stream) override {
    LADDER_CHECK(0 <= root && root < size_);
    if (bytes == 0) return;
    finish(nccl().broadcast(data, data, bytes, ncclUint8, root, communicator_, stream), "broadcast");
  }

  void check() override {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t query = nccl().async_error(communicator_, &state);
    if (query != ncclSuccess) fail(query, "asking for errors");
    if (state != ncclSuccess && state != ncclInProgress) fail(state, "a collective");
  }

 private:
  static ncclDataType_t type_of(Dtype dtype) {
    LADDER_CHECK(dtype == Dtype::f32 || dtype == Dtype::bf16, name(dtype));
    return dtype == Dtype::f32 ? ncclFloat32 : ncclBfloat16;
  }

  // Returns rank 0's id on all ranks. Throws Failure if their libraries differ.
  ncclUniqueId shared_id(const Exchange& exchange) const {
    ncclUniqueId id{};
    if (rank_ == 0) {
      const ncclResult_t result = nccl().get_unique_id(&id);
      if (result != ncclSuccess) fail(result, "making an id");
    }
    std::string mine(sizeof(int) + sizeof(id), '\0');
    std::memcpy(mine.data(), &nccl().version, sizeof(int));
    std::memcpy(mine.data() + sizeof(int), &id, sizeof(id));
    const std::vector<std::string> all = exchange(mine);
    LADDER_CHECK(all.size() == static_cast<std::size_t>(size_));
    std::vector<int> versions(all.size());
    for (std::size_t r = 0; r < all.size(); ++r) {
      LADDER_CHECK(all[r].size() == mine.size());
      std::memcpy(&versions[r], all[r].data(), sizeof(int));
      if (versions[r] == versions[0]) continue;
      throw Failure(fmt::format("ranks differ in NCCL: rank 0 has {}, rank {} has {}", version_text(versions[0]), r,
                                version_text(versions[r])));
    }
    std::memcpy(&id, all[0].data() + sizeof(int), sizeof(id));
    return id;
  }

  [[noreturn]] void fail(ncclResult_t result, const char* call) const {
    const char* const words = nccl().last_error(communicator_);
    throw Failure(fmt::format("rank {}: NCCL {}: {} failed: {}{}{}", rank_, version_text(nccl().version), call,
                              nccl().error_string(result), words && *words ? ": " : "",
                              one_line(words ? words : "", 1000)));
  }

  // Waits until a call that returned `result` has ended. Returns its last result.
  ncclResult_t wait(ncclResult_t result) const noexcept {
    const auto deadline = std::chrono::steady_clock::now() + kTimeout;
    while (result == ncclInProgress && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(kTick);
      const ncclResult_t query = nccl().async_error(communicator_, &result);
      if (query != ncclSuccess) return query;
    }
    return result;
  }

  void finish(ncclResult_t result, const char* call) {
    result = wait(result);
    if (result == ncclSuccess) return;
    broken_ = true;
    if (result != ncclInProgress) fail(result, call);
    throw Failure(fmt::format("rank {}: NCCL {}: {} has not ended within {} s", rank_, version_text(nccl().version),
                              call, kTimeout.count()));
  }

  void close() noexcept {
    if (!communicator_) return;
    ncclResult_t state = ncclSuccess;
    const bool good = !broken_ && nccl().async_error(communicator_, &state) == ncclSuccess && state == ncclSuccess;
    if (good && wait(nccl().finalize(communicator_)) == ncclSuccess) {
      (void)nccl().destroy(communicator_);
    } else {
      (void)nccl().abort(communicator_);
    }
    communicator_ = nullptr;
  }

  int rank_, size_;
  ncclComm_t communicator_ = nullptr;
  bool broken_ = false;  // a call failed or did not end
};

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(int rank, int size, const Exchange& exchange) {
  return std::make_unique<NcclCommunicator>(rank, size, exchange);
}

}  // namespace ladder

#else

namespace ladder {

std::unique_ptr<Communicator> make_nccl_communicator(int, int,
                                                     const std::function<std::vector<std::string>(std::string_view)>&) {
  throw Failure(
      "no NCCL: nccl.h and libnccl.so.2 of version 2.27 or newer were missing when this was built, in the folder "
      "LADDER_NCCL, beside the CUDA toolkit, where the compiler looks and in .ladder/nccl: run ./ladder setup --preset "
      "cuda "
      "and build again");
}

}  // namespace ladder

#endif
