#include "bench/untrusted/frames.h"

#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "core/error.h"

namespace ladder {
namespace {

constexpr std::size_t kMostHead = 1 << 16;

Failure nonsense() { return Failure("it does not keep to the protocol: something else writes to its pipe"); }

}  // namespace

Channel::Channel(int in, int out, std::optional<double> seconds) : in_(in), out_(out), seconds_left_(seconds) {
  if (!seconds_left_) return;
  for (const int descriptor : {in_, out_}) fcntl(descriptor, F_SETFL, O_NONBLOCK);
}

void Channel::wait_for(int descriptor, short events) {
  if (!seconds_left_) return;
  using Clock = std::chrono::steady_clock;
  pollfd one{.fd = descriptor, .events = events, .revents = 0};
  for (bool ready = false; !ready;) {
    if (*seconds_left_ <= 0) throw Late("the time is up");
    const Clock::time_point began = Clock::now();
    ready = poll(&one, 1, static_cast<int>(std::min(1e3 * *seconds_left_ + 1, 1e6))) > 0;
    *seconds_left_ -= std::chrono::duration<double>(Clock::now() - began).count();
  }
}

void Channel::send(nlohmann::json head, const std::vector<float>& values) {
  head["bytes"] = values.size() * sizeof(float);
  const std::string line = head.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
  write_all(line.data(), line.size());
  write_all(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

void Channel::write_all(const char* bytes, std::size_t size) {
  while (size > 0) {
    wait_for(out_, POLLOUT);
    const ssize_t count = write(out_, bytes, size);
    if (count < 0 && errno != EAGAIN && errno != EINTR) throw Failure("it reads no more");
    if (count <= 0) continue;
    bytes += count;
    size -= static_cast<std::size_t>(count);
  }
}

std::size_t Channel::read_some(char* bytes, std::size_t size) {
  for (;;) {
    wait_for(in_, POLLIN);
    const ssize_t count = read(in_, bytes, size);
    if (count >= 0 || (errno != EAGAIN && errno != EINTR)) return static_cast<std::size_t>(std::max<ssize_t>(count, 0));
  }
}

std::optional<Frame> Channel::receive(std::size_t most_values) {
  std::size_t end = 0;
  while ((end = read_.find('\n')) == std::string::npos) {
    if (read_.size() > kMostHead) throw nonsense();
    char buffer[1 << 12];
    const std::size_t count = read_some(buffer, sizeof(buffer));
    if (count == 0) return {};
    read_.append(buffer, count);
  }
  Frame frame{.head = nlohmann::json::parse(read_.substr(0, end), nullptr, false), .values = {}};
  read_.erase(0, end + 1);
  if (end > kMostHead || !frame.head.is_object()) throw nonsense();
  const auto bytes = frame.head.find("bytes");
  if (bytes == frame.head.end() || !bytes->is_number_unsigned()) throw nonsense();
  const auto count = bytes->get<std::size_t>();
  if (count % sizeof(float) != 0 || count / sizeof(float) > most_values) throw nonsense();
  frame.values.resize(count / sizeof(float));
  char* const values = reinterpret_cast<char*>(frame.values.data());
  std::size_t done = std::min(count, read_.size());
  std::copy_n(read_.data(), done, values);
  read_.erase(0, done);
  while (done < count) {
    const std::size_t more = read_some(values + done, count - done);
    if (more == 0) return {};
    done += more;
  }
  return frame;
}

void keep_freed_memory() {
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
}

}  // namespace ladder
