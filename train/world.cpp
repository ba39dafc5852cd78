#include "train/world.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <map>
#include <mutex>
#include <utility>

#include <nlohmann/json.hpp>

#include "io/digest.h"

namespace ladder::train {
namespace {

struct VariableSet {
  const char *rank, *size, *local_rank, *local_size;
};

constexpr std::string_view kSlurmRank = "SLURM_PROCID";
constexpr VariableSet kSets[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    // SLURM_NTASKS is the job's number of tasks under srun --preserve-env.
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr}};
constexpr std::int64_t kMaxSlurmStep = 0xfffffff0;  // larger: batch script, interactive step, other steps without srun
constexpr int kPorts = 16, kMasterPort = 29500, kMaxPort = 65535;
constexpr int kMaxRanks = 65536;

std::string text_of(const Environment& environment, const char* name) {
  const char* text = environment(name);
  return text ? text : "";
}

std::optional<std::int64_t> parse_number(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size() || value < 0) return {};
  return value;
}

int number_of(const Environment& environment, const char* name, std::int64_t least, std::int64_t most) {
  const std::string text = text_of(environment, name);
  const std::optional<std::int64_t> value = parse_number(text);
  if (!value || *value < least || *value > most) {
    throw UsageError(
        fmt::format("{}={}: a whole number from {} to {} is right", name, one_line(text, 40), least, most));
  }
  return static_cast<int>(*value);
}

// Returns whether srun started this process: a step with a normal number.
bool is_slurm_step(const Environment& environment) {
  const std::optional<std::int64_t> step = parse_number(text_of(environment, "SLURM_STEP_ID"));
  return step && *step <= kMaxSlurmStep;
}

bool is_loopback(const std::string& host) {
  return host.empty() || host == "localhost" || host == "::1" || host.starts_with("127.");
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
}

}  // namespace

RankNumbers find_rank(const Environment& environment) {
  const auto given = [&](const char* name) { return environment(name) != nullptr; };
  for (const VariableSet& set : kSets) {
    const bool of_slurm = set.rank == kSlurmRank;
    if (!given(set.rank) || (of_slurm && !is_slurm_step(environment))) continue;
    if (!given(set.size) || !given(set.local_rank)) {
      if (set.rank != kSets[0].rank) continue;
      throw UsageError(
          fmt::format("RANK={} without {}: set RANK, WORLD_SIZE and LOCAL_RANK, as torchrun does, or none of "
                      "them",
                      environment("RANK"), given(set.size) ? set.local_rank : set.size));
    }
    RankNumbers numbers{.size = number_of(environment, set.size, 1, kMaxRanks), .of_slurm = of_slurm};
    for (const auto& [name, member] :
         {std::pair(set.rank, &RankNumbers::rank), {set.local_rank, &RankNumbers::local_rank}}) {
      numbers.*member = number_of(environment, name, 0, kMaxRanks);
      if (numbers.*member >= numbers.size) {
        throw UsageError(fmt::format("{}={} with {}={}: the first must be smaller, from 0 to {}", name, numbers.*member,
                                     set.size, numbers.size, numbers.size - 1));
      }
    }
    if (set.local_size && given(set.local_size)) {
      numbers.local_size = number_of(environment, set.local_size, 1, numbers.size);
    } else if (of_slurm && text_of(environment, "SLURM_STEP_NUM_NODES") == "1") {
      numbers.local_size = numbers.size;
    }
    return numbers;
  }
  return {};
}

RendezvousAddress find_address(const Environment& environment, const RankNumbers& numbers) {
  const std::string rendezvous = text_of(environment, "LADDER_RENDEZVOUS"),
                    master = text_of(environment, "MASTER_ADDR");
  const bool one_host = numbers.local_size == numbers.size;
  if (!rendezvous.empty()) {
    const std::size_t colon = rendezvous.rfind(':');
    const std::int64_t port = colon == std::string::npos ? 0 : parse_number(rendezvous.substr(colon + 1)).value_or(0);
    std::string host = rendezvous.substr(0, colon);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
    if (port < 1 || port > kMaxPort || host.empty()) {
      throw UsageError(fmt::format("LADDER_RENDEZVOUS={}: host:port is right, as in node7:29501", rendezvous));
    }
    return {.host = host, .first_port = static_cast<int>(port), .num_ports = 1, .loopback = is_loopback(host)};
  }
  const bool several_hosts =
      (numbers.local_size && !one_host) ||
      (numbers.of_slurm && parse_number(text_of(environment, "SLURM_STEP_NUM_NODES")).value_or(1) > 1);
  if (master.empty() && several_hosts) {
    throw UsageError(
        "several hosts without MASTER_ADDR: export MASTER_ADDR=$(scontrol show hostnames "
        "\"$SLURM_JOB_NODELIST\" | head -1), or the name of rank 0's host");
  }
  const int port =
      environment("MASTER_PORT") ? number_of(environment, "MASTER_PORT", 1, kMaxPort - kPorts) : kMasterPort;
  const bool loopback = one_host || is_loopback(master);
  const std::string host = is_loopback(master) && !master.empty() ? master : loopback ? "127.0.0.1" : master;
  return {.host = host, .first_port = port + 1, .num_ports = kPorts, .loopback = loopback};
}

std::string find_token(const Environment& environment, const RankNumbers& numbers, const std::string& flags_digest) {
  const auto text = [&](const char* name) { return text_of(environment, name); };
  std::string run;
  if (environment("LADDER_RUN")) {
    run = "run " + text("LADDER_RUN");
  } else if (!text("TORCHELASTIC_RUN_ID").empty() &&
             text("TORCHELASTIC_RUN_ID") != "none") {  // torchrun's default: none
    run = fmt::format("torchrun {} {}", text("TORCHELASTIC_RUN_ID"), text("TORCHELASTIC_RESTART_COUNT"));
  } else if (environment("SLURM_JOB_ID")) {
    // NOTE: mpirun starts the first host's ranks outside of a step, the others' in one.
    run = fmt::format("slurm {} {} {}", text("SLURM_JOB_ID"), text("SLURM_RESTART_COUNT"),
                      numbers.of_slurm ? text("SLURM_STEP_ID") : "");
  } else {
    run = fmt::format("address {} {}", find_address(environment, numbers).str(), flags_digest);
  }
  io::Digest digest;
  digest.add(run.data(), run.size());
  return digest.hex();
}

World::World(const Environment& environment, const std::string& flags_digest, double start_timeout_s)
    : numbers_(find_rank(environment)), hosts_(static_cast<std::size_t>(numbers_.size)) {
  shared_->signs.resize(hosts_.size());
  shared_->data.resize(hosts_.size());
  hosts_[static_cast<std::size_t>(rank())] = host_name();
  if (size() == 1) return;
  const Member member{find_token(environment, numbers_, flags_digest), rank(), size(), host_name()};
  const RendezvousAddress address = find_address(environment, numbers_);
  const auto time = std::chrono::duration_cast<Deadline::duration>(std::chrono::duration<double>(start_timeout_s));
  const auto now = [] { return std::chrono::steady_clock::now(); };
  if (rank() == 0) {
    try {
      peers_ = accept_ranks(address, member, now() + time);
    } catch (const Failure& failure) {
      // Such a shell is task 0 of a step whose other tasks ended at once, yet may start a step of all ranks itself.
      if (!numbers_.of_slurm || !environment("SLURM_PTY_PORT")) throw;
      throw Failure(
          fmt::format("{}; a shell of `srun --pty` is one of {} tasks: `unset SLURM_STEP_ID` in it to train "
                      "in one process",
                      failure.what(), size()));
    }
    for (int r = 0; r < size(); ++r) hosts_[r] = peers_[r].host;
    const std::string hosts = nlohmann::json(hosts_).dump();
    for (int r = 1; r < size(); ++r) send_frame(peers_[r].connection, FrameKind::data, hosts);
    return;
  }
  peers_.push_back(find_rank_0(address, member, now() + time));
  hosts_[0] = peers_[0].host;
  // Rank 0 may have started later: its own deadline comes first.
  const std::optional<Frame> frame = receive_frame(peers_[0].connection, now() + time + std::chrono::seconds(10));
  if (!frame) end(0, "its connection closed before all ranks were there", false);
  if (frame->kind == FrameKind::last_words) throw RankEnded(0, frame->bytes, true);
  hosts_ = nlohmann::json::parse(frame->bytes).get<std::vector<std::string>>();
}

void World::tell_all(std::string_view message) noexcept {
  // A collective that sends for longer waits for a rank that does not read: words would never arrive.
  const std::unique_lock lock(shared_->sends, std::chrono::seconds(1));
  if (!lock) return;
  for (Peer& peer : peers_) {
    if (peer.connection) send_frame(peer.connection, FrameKind::last_words, message);
  }
  for (Peer& peer : peers_) {
    if (peer.connection) drain(peer.connection);
  }
}

void World::send_last_words(std::string_view words) noexcept {
  try {
    tell_all(fmt::format("{} {}", rank(), one_line(words, 2000)));
  } catch (...) {  // a rank that cannot say why it ends closes its connection
    return;
  }
}

void World::end(int ended, const std::string& words, bool last_words) {
  // The others close their connections as soon as they are told: a second thread that sees this says the same as the first.
  const std::lock_guard lock(shared_->end_mutex);
  if (!shared_->ended) {
    shared_->ended.emplace(ended, fmt::format("rank {} (host {}) ended: {}", ended, host(ended), words), last_words);
    if (rank() == 0) tell_all(fmt::format("{} {}", ended, words));
  }
  throw RankEnded(*shared_->ended);
}

// Sends a sign unless it would wait for a rank that does not read: the side that asks does so again.
void World::send_sign(const Socket& connection, FrameKind kind, std::string_view text) {
  const std::unique_lock lock(shared_->sends, std::chrono::milliseconds(100));
  pollfd target{.fd = connection.fd(), .events = POLLOUT, .revents = 0};
  if (lock && poll(&target, 1, 0) > 0) send_frame(connection, kind, text);
}

void World::ask() {
  for (const Peer& peer : peers_) {
    if (peer.connection) send_sign(peer.connection, FrameKind::ask, {});
  }
}

void World::set_step(std::int64_t step) { shared_->step = step; }

std::vector<Sign> World::signs() const {
  const std::lock_guard lock(shared_->signs_mutex);
  return shared_->signs;
}

// Reads a rank's next frame: keeps data for take(), answers and notes signs of life, throws RankEnded at last words.
void World::read(int from) {
  const Socket& connection = peers_[static_cast<std::size_t>(from)].connection;
  std::optional<Frame> frame = receive_frame(connection);
  if (!frame) end(from, "its connection closed", false);
  if (frame->kind == FrameKind::data) {
    shared_->data[static_cast<std::size_t>(from)].push_back(std::move(frame->bytes));
    return;
  }
  if (frame->kind == FrameKind::ask) {
    send_sign(connection, FrameKind::alive, std::to_string(shared_->step));
    return;
  }
  if (frame->kind == FrameKind::alive) {
    const std::lock_guard lock(shared_->signs_mutex);
    shared_->signs[static_cast<std::size_t>(from)] = {.at = std::chrono::steady_clock::now(),
                                                      .step = std::strtoll(frame->bytes.c_str(), nullptr, 10)};
    return;
  }
  int ended = from;
  const char* text = frame->bytes.data();
  const auto [number_end, error] = std::from_chars(text, text + frame->bytes.size(), ended);
  const bool valid = error == std::errc{} && ended >= 0 && ended < size() && *number_end == ' ';
  end(valid ? ended : from, valid ? number_end + 1 : text, true);
}

// Takes a rank's next data.
std::string World::take(int from) {
  std::deque<std::string>& data = shared_->data[static_cast<std::size_t>(from)];
  while (data.empty()) read(from);
  std::string bytes = std::move(data.front());
  data.pop_front();
  return bytes;
}

void World::check() {
  const std::unique_lock lock(shared_->collective, std::try_to_lock);
  if (!lock) return;
  for (int r = 0; r < static_cast<int>(peers_.size()); ++r) {
    pollfd source{.fd = peers_[r].connection.fd(), .events = POLLIN, .revents = 0};
    if (peers_[r].connection && poll(&source, 1, 0) > 0) read(r);
  }
}

// Returns the bytes of all ranks on rank 0.
World::Texts World::gather(std::string bytes) {
  std::vector<pollfd> sources;
  for (const Peer& peer : peers_) sources.push_back({.fd = peer.connection.fd(), .events = POLLIN, .revents = 0});
  const auto missing = [&] {
    return std::any_of(shared_->data.begin() + 1, shared_->data.end(), [](const auto& data) { return data.empty(); });
  };
  while (missing()) {
    poll(sources.data(), sources.size(), -1);
    for (int r = 1; r < size(); ++r) {
      if (sources[r].revents != 0) read(r);  // a rank whose bytes are here sends signs or has ended
    }
  }
  Texts all{std::move(bytes)};
  for (int r = 1; r < size(); ++r) all.push_back(take(r));
  return all;
}

// Returns the `num_results` texts that rank 0 makes of all ranks' bytes.
World::Texts World::collect(std::string bytes, std::size_t num_results, const std::function<Texts(Texts)>& combine) {
  if (size() == 1) return combine({std::move(bytes)});
  const std::lock_guard lock(shared_->collective);
  const auto send = [&](const Peer& peer, const Texts& texts) {
    const std::lock_guard sends(shared_->sends);
    return std::ranges::all_of(
        texts, [&](const std::string& text) { return send_frame(peer.connection, FrameKind::data, text); });
  };
  if (rank() > 0) {
    if (!send(peers_[0], {std::move(bytes)})) take(0);  // rank 0's words, if it sent any
    Texts results(num_results);
    for (std::string& one : results) one = take(0);
    return results;
  }
  Texts results = combine(gather(std::move(bytes)));
  int closed = 0;
  for (int r = 1; r < size(); ++r) {
    if (!send(peers_[r], results)) closed = r;
  }
  if (closed > 0) take(closed);
  return results;
}

std::vector<std::string> World::exchange(std::string_view bytes) {
  return collect(std::string(bytes), static_cast<std::size_t>(size()), [](Texts texts) { return texts; });
}

std::string World::reduce(std::string bytes, const Combine& combine) {
  return std::move(collect(std::move(bytes), 1, [&](Texts texts) { return Texts{combine(std::move(texts))}; })[0]);
}

void compare_greetings(World& world, const Greeting& greeting, bool may_share_gpu) {
  struct Field {
    const char* name;
    std::string Greeting::*value;
  };
  static constexpr Field kFields[] = {{"commit", &Greeting::commit},
                                      {"size", &Greeting::size},
                                      {"data digest", &Greeting::data_digest},
                                      {"promotions", &Greeting::promotions},
                                      {"flags digest", &Greeting::flags_digest}};
  std::vector<std::string> values;
  for (const Field& field : kFields) values.push_back(greeting.*field.value);
  values.insert(values.end(), {greeting.host, greeting.gpu_uuid});
  std::vector<std::vector<std::string>> all;
  for (const std::string& text : world.exchange(nlohmann::json(values).dump()))
    all.push_back(nlohmann::json::parse(text));
  for (std::size_t f = 0; f < std::size(kFields); ++f) {
    for (int r = 1; r < world.size(); ++r) {
      if (all[r][f] == all[0][f]) continue;
      throw Failure(fmt::format("ranks differ in {}: rank 0 (host {}) has '{}', rank {} (host {}) has '{}'",
                                kFields[f].name, world.host(0), one_line(all[0][f], 200), r, world.host(r),
                                one_line(all[r][f], 200)));
    }
  }
  std::map<std::pair<std::string, std::string>, int> ranks;
  for (int r = 0; r < world.size() && !may_share_gpu; ++r) {
    const std::string& host = all[r][std::size(kFields)];
    const std::string& gpu = all[r].back();
    const auto [first, added] = ranks.emplace(std::pair(host, gpu), r);
    if (gpu.empty() || added) continue;  // the emulator has no GPU
    throw Failure(
        fmt::format("ranks {} and {} have one GPU, {} of host {}: start one rank a GPU, no more ranks than GPUs",
                    first->second, r, gpu, host));
  }
}

}  // namespace ladder::train
