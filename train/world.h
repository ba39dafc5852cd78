// Processes of one training: their number, this one's rank, and small messages among them over TCP through rank 0.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/communicator.h"
#include "core/error.h"
#include "train/rendezvous.h"

namespace ladder::train {

// Returns a variable's text, or null: std::getenv.
using Environment = std::function<const char*(const char* name)>;

struct RankNumbers {
  int rank = 0;
  int size = 1;
  int local_rank = 0;             // among the ranks of its host
  std::optional<int> local_size;  // ranks of its host, where the launcher says it
  bool of_slurm = false;
};

// Takes the first complete set of variables: RANK/WORLD_SIZE/LOCAL_RANK, Open MPI's, MPICH's, Slurm's; without one, a
// world of one. Slurm's set counts only in a step that srun started: a batch script has it too.
RankNumbers find_rank(const Environment& environment);

// Returns LADDER_RENDEZVOUS, else MASTER_ADDR and the 16 ports after MASTER_PORT.
RendezvousAddress find_address(const Environment& environment, const RankNumbers& numbers);

// Returns the token that keeps runs apart, 32 characters: a digest of LADDER_RUN, else of torchrun's or Slurm's id with its
// restart count, else of the address and the flags' digest.
std::string find_token(const Environment& environment, const RankNumbers& numbers, const std::string& flags_digest);

// Another rank ended: this one has nothing to add.
struct RankEnded : Failure {
  RankEnded(int ended_rank, const std::string& message, bool has_last_words)
      : Failure(message), rank(ended_rank), last_words(has_last_words) {}
  int rank;
  bool last_words;  // the rank said why; else its connection closed
};

// A rank's sign of life.
struct Sign {
  std::chrono::steady_clock::time_point at;
  std::optional<std::int64_t> step;  // 0: outside of steps
};

class World {
 public:
  World() = default;  // of one
  // Waits for all ranks.
  World(const Environment& environment, const std::string& flags_digest, double start_timeout_s = 600);

  int rank() const { return numbers_.rank; }
  int size() const { return numbers_.size; }
  int local_rank() const { return numbers_.local_rank; }
  const std::string& host(int rank) const { return hosts_.at(static_cast<std::size_t>(rank)); }

  // Any thread may call the functions below; collectives of several threads wait for each other.

  // Returns the bytes of all ranks in their order; collective. Throws RankEnded.
  std::vector<std::string> exchange(std::string_view bytes);
  // Returns rank 0's combination of the bytes of all ranks; collective. Throws RankEnded.
  std::string reduce(std::string bytes, const Combine& combine);
  // Throws RankEnded if a rank has ended or sent last words; leaves it to a collective that is under way.
  // Rank 0 passes this on to the others.
  void check();
  // Asks the ranks that this one is connected to (rank 0: all) for a sign of life, which check() and collectives answer and
  // take. Never waits for one.
  void ask();
  // The step that this rank is at, for its answers; 0: outside of steps.
  void set_step(std::int64_t step);
  // Latest answers by rank; the entry of a rank that gave none has no step.
  std::vector<Sign> signs() const;
  // Throws RankEnded of `rank`, which takes no part any more. Rank 0 passes this on to the others.
  [[noreturn]] void end(int rank, const std::string& words, bool last_words);

  // Tells the others why this rank ends. Nothing may be exchanged after it.
  void send_last_words(std::string_view words) noexcept;

 private:
  using Texts = std::vector<std::string>;

  struct Shared {                               // among threads
    std::mutex collective;                      // held for the whole of one
    std::vector<std::deque<std::string>> data;  // by rank: frames read ahead of take(), by whoever holds `collective`
    std::timed_mutex sends;                     // held while frames are sent: a frame ends before the next begins
    std::mutex end_mutex;
    std::optional<RankEnded> ended;  // the first that this rank has seen
    std::atomic<std::int64_t> step = 0;
    std::mutex signs_mutex;
    std::vector<Sign> signs;  // by rank
  };

  Texts collect(std::string bytes, std::size_t num_results, const std::function<Texts(Texts)>& combine);
  Texts gather(std::string bytes);
  std::string take(int from);
  void read(int from);
  void send_sign(const Socket& connection, FrameKind kind, std::string_view text);
  void tell_all(std::string_view message) noexcept;

  RankNumbers numbers_;
  std::vector<std::string> hosts_{"this host"};
  std::vector<Peer> peers_;  // rank 0: by rank; others: rank 0 alone
  std::unique_ptr<Shared> shared_ = std::make_unique<Shared>();
};

// Facts that must agree over ranks before a kernel runs, except host and GPU, whose pair must not.
struct Greeting {
  std::string commit, size, data_digest, promotions, flags_digest, host, gpu_uuid;
};

// Throws Failure on every rank, with the first differing field, both ranks and both values. Collective.
void compare_greetings(World& world, const Greeting& greeting, bool may_share_gpu = false);

}  // namespace ladder::train
