#include "train/rendezvous.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "core/error.h"

namespace ladder::train {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kMagic[] = "LADDER1";                               // 8 bytes with its zero
constexpr seconds kConnectTime{2}, kAnswerTime{2}, kHelloTime{5};  // a stranger that is silent for longer is dropped
constexpr milliseconds kTick{100};
constexpr std::uint64_t kMaxFrameBytes = std::uint64_t{1} << 32;

// First bytes in both directions.
struct Hello {
  char magic[8];
  char token[32];
  std::uint32_t rank, size;
  char host[64];  // ends with a zero
};
constexpr std::size_t kRunBytes = sizeof(Hello::magic) + sizeof(Hello::token);

struct FrameHeader {
  FrameKind kind;
  std::uint32_t zero;
  std::uint64_t num_bytes;
};

Hello hello_of(const Member& member) {
  Hello hello{};
  std::memcpy(hello.magic, kMagic, sizeof(kMagic));
  member.token.copy(hello.token, sizeof(hello.token));
  member.host.copy(hello.host, sizeof(hello.host) - 1);
  hello.rank = static_cast<std::uint32_t>(member.rank);
  hello.size = static_cast<std::uint32_t>(member.size);
  return hello;
}

Deadline now() { return std::chrono::steady_clock::now(); }

// Waits for a socket; false at the deadline.
bool wait_for(const Socket& socket, short events, Deadline deadline) {
  for (;;) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - now()).count();
    pollfd source{.fd = socket.fd(), .events = events, .revents = 0};
    const int found = poll(&source, 1, static_cast<int>(std::clamp<long long>(left, 0, 60'000)));
    if (found > 0) return true;
    if (now() >= deadline) return false;
  }
}

bool send_all(const Socket& socket, const void* bytes, std::size_t size) {
  for (const char* next = static_cast<const char*>(bytes); size > 0;) {
    const ssize_t sent = send(socket.fd(), next, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) {
      wait_for(socket, POLLOUT, Deadline::max());
      continue;
    }
    if (sent <= 0) return false;
    next += sent;
    size -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool receive_all(const Socket& socket, void* bytes, std::size_t size, Deadline deadline) {
  for (char* next = static_cast<char*>(bytes); size > 0;) {
    if (!wait_for(socket, POLLIN, deadline)) return false;
    const ssize_t got = recv(socket.fd(), next, size, MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return false;
    next += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

// Sets options of a connection. The kernel's keepalive finds a host that is gone, within two minutes.
void set_options(const Socket& socket) {
  const auto set = [&](int level, int option, int value) {
    setsockopt(socket.fd(), level, option, &value, sizeof(value));
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 60);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(IPPROTO_TCP, TCP_KEEPCNT, 6);
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve(const char* host, int port, std::string* error) {
  const addrinfo hints{.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  const int status = getaddrinfo(host, std::to_string(port).c_str(), &hints, &found);
  if (status != 0) *error = fmt::format("{}: {}", host ? host : "any address", gai_strerror(status));
  return {status == 0 ? found : nullptr, freeaddrinfo};
}

Socket listen_on(const RendezvousAddress& address) {
  std::string error = "no address";
  for (int port = address.first_port; port < address.first_port + address.num_ports; ++port) {
    // NOTE: not MASTER_ADDR: Debian's /etc/hosts gives a host's own name as 127.0.1.1.
    const Addresses addresses = resolve(address.loopback ? address.host.c_str() : nullptr, port, &error);
    for (int family : {AF_INET6, AF_INET}) {  // an IPv6 socket takes IPv4 too
      for (const addrinfo* a = addresses.get(); a; a = a->ai_next) {
        if (a->ai_family != family) continue;
        Socket socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        const int on = 1, off = 0;
        setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        if (family == AF_INET6) setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
        if (bind(socket.fd(), a->ai_addr, a->ai_addrlen) == 0 && listen(socket.fd(), 1024) == 0) return socket;
        error = fmt::format("port {}: {}", port, std::strerror(errno));
        if (errno == EADDRINUSE) break;
      }
    }
  }
  throw Failure(
      fmt::format("rank 0 cannot listen on {}: {}; set MASTER_PORT, or LADDER_RENDEZVOUS=host:port, to a free one",
                  address.str(), error));
}

// A connection that has not said yet which rank it is.
struct Stranger {
  Socket connection;
  std::string received;
  Deadline deadline;
};

// Reads from a stranger. Returns false if it is none of this run.
bool read_hello(Stranger& stranger, const Hello& expected) {
  char bytes[sizeof(Hello)];
  const ssize_t got = recv(stranger.connection.fd(), bytes, sizeof(Hello) - stranger.received.size(), MSG_DONTWAIT);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
  if (got > 0) stranger.received.append(bytes, static_cast<std::size_t>(got));
  const std::size_t compared = std::min(stranger.received.size(), kRunBytes);
  return std::memcmp(stranger.received.data(), &expected, compared) == 0 && now() < stranger.deadline;
}

bool is_closed(const Socket& connection) {
  char byte = 0;
  const ssize_t got = recv(connection.fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

// Tells every connected rank, then throws.
[[noreturn]] void refuse(const std::vector<Peer>& peers, const Socket* stranger, const std::string& message) {
  if (stranger) send_frame(*stranger, FrameKind::last_words, message);
  for (const Peer& peer : peers) {
    if (peer.connection) send_frame(peer.connection, FrameKind::last_words, message);
  }
  throw Failure(message);
}

// Makes a stranger with a complete hello the peer of its rank.
void admit(std::vector<Peer>& peers, Socket connection, const Hello& mine, const Hello& hello) {
  const std::string host(hello.host, strnlen(hello.host, sizeof(hello.host)));
  if (!send_all(connection, &mine, sizeof(mine))) return;
  if (hello.size != mine.size) {
    refuse(peers, &connection,
           fmt::format("rank 0 (host {}) has {} ranks and rank {} (host {}) has {}: start all with one "
                       "number of ranks",
                       mine.host, mine.size, hello.rank, host, hello.size));
  }
  if (hello.rank >= mine.size) return;
  if (hello.rank == 0 || (peers[hello.rank].connection && !is_closed(peers[hello.rank].connection))) {
    refuse(peers, &connection,
           fmt::format("two processes are rank {}: on host {} and on host {}; give every process a rank "
                       "of its own, and every run its own LADDER_RUN",
                       hello.rank, peers[hello.rank].host, host));
  }
  peers[hello.rank] = {std::move(connection), host};
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

std::string RendezvousAddress::str() const {
  const std::string last = num_ports > 1 ? fmt::format("-{}", first_port + num_ports - 1) : "";
  return fmt::format("{}:{}{}", host, first_port, last);
}

std::vector<Peer> accept_ranks(const RendezvousAddress& address, const Member& member, Deadline deadline) {
  const Socket listener = listen_on(address);
  const Hello mine = hello_of(member);
  std::vector<Peer> peers(static_cast<std::size_t>(member.size));
  peers[0].host = member.host;
  std::vector<Stranger> strangers;
  for (;;) {
    std::vector<int> missing;
    for (int r = 1; r < member.size; ++r) {
      if (peers[r].connection && is_closed(peers[r].connection)) peers[r] = Peer{};
      if (!peers[r].connection) missing.push_back(r);
    }
    if (missing.empty()) return peers;
    if (now() >= deadline) {
      refuse(peers, nullptr,
             fmt::format("rank 0 (host {}) waited at {} for all {} ranks: missing {} {}", member.host, address.str(),
                         member.size, missing.size() > 1 ? "ranks" : "rank", fmt::join(missing, ", ")));
    }
    std::vector<pollfd> sources{{.fd = listener.fd(), .events = POLLIN, .revents = 0}};
    for (const Stranger& s : strangers) sources.push_back({.fd = s.connection.fd(), .events = POLLIN, .revents = 0});
    poll(sources.data(), sources.size(), static_cast<int>(kTick.count()));
    std::vector<Stranger> waiting;
    for (Stranger& stranger : strangers) {
      if (!read_hello(stranger, mine)) continue;
      if (stranger.received.size() < sizeof(Hello)) {
        waiting.push_back(std::move(stranger));
        continue;
      }
      Hello hello;
      std::memcpy(&hello, stranger.received.data(), sizeof(hello));
      admit(peers, std::move(stranger.connection), mine, hello);
    }
    strangers = std::move(waiting);
    while (Socket accepted{accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC)}) {
      set_options(accepted);
      strangers.push_back({std::move(accepted), {}, now() + kHelloTime});
    }
  }
}

Peer find_rank_0(const RendezvousAddress& address, const Member& member, Deadline deadline) {
  const Hello mine = hello_of(member);
  std::string error = "no answer";
  while (now() < deadline) {
    for (int port = address.first_port; port < address.first_port + address.num_ports; ++port) {
      const Addresses addresses = resolve(address.host.c_str(), port, &error);
      for (const addrinfo* a = addresses.get(); a && now() < deadline; a = a->ai_next) {
        Socket socket(::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        set_options(socket);
        int status = connect(socket.fd(), a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
        if (status == EINPROGRESS) {
          socklen_t size = sizeof(status);
          const bool ended = wait_for(socket, POLLOUT, std::min(deadline, now() + kConnectTime));
          if (!ended)
            status = ETIMEDOUT;
          else
            getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &status, &size);
        }
        Hello answer;
        if (status != 0) {
          if (status != ECONNREFUSED) error = fmt::format("port {}: {}", port, std::strerror(status));
        } else if (!send_all(socket, &mine, sizeof(mine)) ||
                   !receive_all(socket, &answer, sizeof(answer), std::min(deadline, now() + kAnswerTime)) ||
                   std::memcmp(&mine, &answer, kRunBytes) != 0 || answer.rank != 0) {
          error = fmt::format("port {} answered as no rank 0 of this run", port);
        } else {
          fcntl(socket.fd(), F_SETFL, 0);  // blocking again
          return {std::move(socket), std::string(answer.host, strnlen(answer.host, sizeof(answer.host)))};
        }
      }
    }
    std::this_thread::sleep_for(kTick);
  }
  throw Failure(
      fmt::format("rank {} (host {}) found no rank 0 of this run at {}: {}; MASTER_ADDR, MASTER_PORT, LADDER_RUN "
                  "and flags must be the same for all ranks",
                  member.rank, member.host, address.str(), error));
}

bool send_frame(const Socket& connection, FrameKind kind, std::string_view bytes) {
  const FrameHeader header{.kind = kind, .zero = 0, .num_bytes = bytes.size()};
  return send_all(connection, &header, sizeof(header)) && send_all(connection, bytes.data(), bytes.size());
}

std::optional<Frame> receive_frame(const Socket& connection, Deadline deadline) {
  FrameHeader header{};
  if (!receive_all(connection, &header, sizeof(header), deadline) || header.num_bytes > kMaxFrameBytes) return {};
  Frame frame{.kind = header.kind, .bytes = std::string(header.num_bytes, '\0')};
  if (!receive_all(connection, frame.bytes.data(), frame.bytes.size(), deadline)) return {};
  return frame;
}

void drain(const Socket& connection) {
  const Deadline deadline = now() + seconds(1);
  shutdown(connection.fd(), SHUT_WR);
  for (char bytes[4096]; wait_for(connection, POLLIN, deadline);) {
    if (recv(connection.fd(), bytes, sizeof(bytes), MSG_DONTWAIT) <= 0) return;
  }
}

}  // namespace ladder::train
