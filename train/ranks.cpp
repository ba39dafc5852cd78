#include "train/ranks.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include <fmt/ranges.h>

#include "build_info.h"
#include "core/backend.h"
#include "core/error.h"
#include "core/program.h"

namespace ladder::train {
namespace {

std::string bytes_of(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

// Returns the floats of several texts, one after the other.
std::vector<float> floats_in(const std::vector<std::string>& texts) {
  std::vector<float> values;
  for (const std::string& text : texts) {
    const std::size_t before = values.size();
    values.resize(before + text.size() / sizeof(float));
    std::memcpy(values.data() + before, text.data(), text.size());
  }
  return values;
}

}  // namespace

Ranks::Ranks(const Environment& environment, const RanksOptions& options, std::string flags_digest)
    : options_(options), flags_digest_(std::move(flags_digest)) {
  const RankNumbers numbers = find_rank(environment);
  if (numbers.size == 1) return;
  world_ = std::make_unique<World>(environment, flags_digest_, options_.start_timeout_s);
  if (const char* pipe = environment("LADDER_PARENT_PIPE")) parent_pipe_ = std::atoi(pipe);
  if (backend::unavailable() == nullptr) backend::use_device(backend::num_devices() > 1 ? numbers.local_rank : 0);
}

void Ranks::compare(const std::string& data_digest, const std::string& promotions) {
  if (size() == 1) return;
  compare_greetings(*world_,
                    {.commit = build_info::kCommit,
                     .size = std::to_string(size()),
                     .data_digest = data_digest,
                     .promotions = promotions,
                     .flags_digest = flags_digest_,
                     .host = world_->host(rank()),
                     .gpu_uuid = backend::device().uuid},
                    on_host());
}

void Ranks::connect() {
  if (size() == 1) return;
  if (on_host()) {
    communicator_ = make_host_communicator(rank(), size(), [this](std::string bytes, const Combine& combine) {
      return world_->reduce(std::move(bytes), combine);
    });
  } else {
    communicator_ =
        make_nccl_communicator(rank(), size(), [this](std::string_view bytes) { return world_->exchange(bytes); });
  }
}

bool Ranks::on_host() const { return backend::kind() == backend::Kind::emulator || options_.collectives_on_host; }

std::string Ranks::hosts() const {
  std::vector<std::string> hosts;
  for (int r = 0; world_ && r < size(); ++r) {
    if (std::ranges::find(hosts, world_->host(r)) == hosts.end()) hosts.push_back(world_->host(r));
  }
  return fmt::format("{}", fmt::join(hosts, ", "));
}

std::vector<std::string> Ranks::exchange(std::string bytes) {
  if (!world_) return {std::move(bytes)};
  return world_->exchange(bytes);
}

std::vector<float> Ranks::exchange(const std::vector<float>& values) { return floats_in(exchange(bytes_of(values))); }

std::vector<float> Ranks::gather(std::vector<float> values) {
  if (!world_) return values;
  std::vector<float> all;
  world_->reduce(bytes_of(values), [&](const std::vector<std::string>& of_ranks) {
    all = floats_in(of_ranks);
    return std::string();
  });
  return all;
}

int Ranks::run(std::string_view program, const std::function<int()>& body) {
  if (!world_) return body();
  std::jthread watcher([&](const std::stop_token& stopped) { watch(program, stopped); });
  try {
    const int status = body();
    // A rank that has ended in order closes its connections, which the others' watchers must not see.
    finished_ = true;
    exchange(std::string("done"));
    return status;
  } catch (const UsageError& error) {
    leave(program, error, 2);
  } catch (const std::exception& error) {
    leave(program, error, 1);
  }
}

// Sees what the main thread cannot while it waits for a step in which another rank no longer takes part.
void Ranks::watch(std::string_view program, const std::stop_token& stopped) {
  constexpr int kIntervalMs = 100;
  for (; !stopped.stop_requested(); poll(nullptr, 0, kIntervalMs)) {
    if (finished_) continue;
    pollfd parent{.fd = parent_pipe_, .events = POLLIN, .revents = 0};  // a negative fd is passed over
    if (poll(&parent, 1, 0) > 0) _exit(1);
    try {
      world_->check();
      if (communicator_) communicator_->check();
      check_progress();
    } catch (const std::exception& error) {
      if (!finished_) leave(program, error, 1);
    }
  }
}

void Ranks::set_step(std::int64_t step) {
  step_ = step;
  set_paused(false);
}

void Ranks::set_paused(bool on) {
  paused_ = on;
  progress_ = std::chrono::steady_clock::now();
  if (world_) world_->set_step(on ? 0 : step_.load());
}

// Throws RankEnded, if no step has come for too long, of a rank that gives no sign of life, else, on rank 0, of the rank that is
// behind. A rank above 0 is connected to rank 0 alone, and leaves the others to it.
void Ranks::check_progress() {
  constexpr std::chrono::seconds kAnswer{10};
  const auto now = std::chrono::steady_clock::now();
  if (step_ == 0 || paused_ || now - progress_.load() < std::chrono::duration<double>(options_.rank_timeout_s)) {
    asked_.reset();
    return;
  }
  if (!asked_) asked_ = now;
  const std::vector<Sign> signs = world_->signs();
  const std::string words = fmt::format("no step for {:g} s", options_.rank_timeout_s);
  std::vector<std::int64_t> steps(static_cast<std::size_t>(leads() ? size() : 1), step_);
  for (std::size_t r = leads() ? 1 : 0; r < steps.size(); ++r) {
    if (!signs[r].step || signs[r].at < *asked_) {
      if (now - *asked_ < kAnswer) return world_->ask();
      world_->end(static_cast<int>(r), words, false);
    }
    steps[r] = *signs[r].step;
  }
  const auto [first, last] = std::ranges::minmax_element(steps);
  if (!leads() || *first == 0) {  // a pause elsewhere: it counts for all
    progress_ = now;
    return;
  }
  if (first != steps.begin()) world_->end(static_cast<int>(first - steps.begin()), words, false);
  throw Failure(*first < *last ? words : fmt::format("no rank has made a step for {:g} s", options_.rank_timeout_s));
}

void Ranks::leave(std::string_view program, const std::exception& error, int status) {
  if (leaving_.exchange(true)) {
    for (;;) pause();  // the other thread is leaving
  }
  const auto* const ended = dynamic_cast<const RankEnded*>(&error);
  if (!ended) world_->send_last_words(error.what());
  const int lowest_alive = ended && ended->rank == 0 && !ended->last_words ? 1 : 0;
  if (rank() == lowest_alive) {
    const std::string step = ended && step_ > 0 ? fmt::format(" (step {})", step_.load()) : "";
    print_error(program, error.what() + step);
  }
  std::fflush(nullptr);
  _exit(status);  // not in order: the device may wait for the rank that has ended
}

int run_ranks(std::string_view program, const Environment& environment, const RanksOptions& options,
              const std::string& flags_digest, const std::function<int(Ranks&)>& body) {
  std::unique_ptr<Ranks> ranks;
  try {
    ranks = std::make_unique<Ranks>(environment, options, flags_digest);
  } catch (const RankEnded&) {
    return 1;  // the rank that has ended printed why
  }
  return ranks->run(program, [&] { return body(*ranks); });
}

}  // namespace ladder::train
