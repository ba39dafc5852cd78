// TCP connections of a run's ranks: rank 0 listens, every other rank holds one connection to it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ladder::train {

using Deadline = std::chrono::steady_clock::time_point;

// A file descriptor, closed at the end.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket();
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Rank 0 listens on the first free port of [first_port, first_port + num_ports).
struct RendezvousAddress {
  std::string host = "127.0.0.1";
  int first_port = 0;
  int num_ports = 1;
  bool loopback = true;  // all ranks are of one host: other hosts cannot connect

  std::string str() const;  // "node7:29501-29516"
};

struct Member {
  std::string token;  // of the run, 32 characters
  int rank = 0;
  int size = 1;
  std::string host;
};

// Another rank as seen by this one.
struct Peer {
  Socket connection;
  std::string host;
};

// Returns the peers of rank 0 by their rank; the entry of rank 0 has no connection. Throws Failure if ranks are missing at
// the deadline, if two processes have one rank, or if all ports are taken.
std::vector<Peer> accept_ranks(const RendezvousAddress& address, const Member& member, Deadline deadline);

// Returns the connection of a rank above 0 to rank 0. Connects again and again until the deadline.
Peer find_rank_0(const RendezvousAddress& address, const Member& member, Deadline deadline);

enum class FrameKind : std::uint32_t { data = 1, last_words = 2, ask = 3, alive = 4 };

struct Frame {
  FrameKind kind = FrameKind::data;
  std::string bytes;
};

// Returns false if the connection is closed.
bool send_frame(const Socket& connection, FrameKind kind, std::string_view bytes);
// Returns nothing if the connection is closed, carries no frame, or is silent until the deadline.
std::optional<Frame> receive_frame(const Socket& connection, Deadline deadline = Deadline::max());
// Waits for at most a second until the other side has read all and closed: close() drops words that are still on their way.
void drain(const Socket& connection);

}  // namespace ladder::train
