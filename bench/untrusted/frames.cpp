#include "bench/untrusted/frames.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

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
  std::string all = head.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
  all.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  std::size_t written = 0;
  while (written < all.size()) {
    wait_for(out_, POLLOUT);
    const ssize_t count = write(out_, all.data() + written, all.size() - written);
    if (count > 0) written += static_cast<std::size_t>(count);
    if (count < 0 && errno != EAGAIN && errno != EINTR) throw Failure("it reads no more");
  }
}

bool Channel::read_more() {
  char buffer[1 << 16];
  for (;;) {
    wait_for(in_, POLLIN);
    const ssize_t count = read(in_, buffer, sizeof(buffer));
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (count > 0) read_.append(buffer, static_cast<std::size_t>(count));
    return count > 0;
  }
}

std::optional<Frame> Channel::receive(std::size_t most_values) {
  std::size_t end = 0;
  while ((end = read_.find('\n')) == std::string::npos) {
    if (read_.size() > kMostHead) throw nonsense();
    if (!read_more()) return {};
  }
  Frame frame{.head = nlohmann::json::parse(read_.substr(0, end), nullptr, false), .values = {}};
  read_.erase(0, end + 1);
  if (end > kMostHead || !frame.head.is_object()) throw nonsense();
  const auto bytes = frame.head.find("bytes");
  if (bytes == frame.head.end() || !bytes->is_number_unsigned()) throw nonsense();
  const auto count = bytes->get<std::size_t>();
  if (count % sizeof(float) != 0 || count / sizeof(float) > most_values) throw nonsense();
  while (read_.size() < count) {
    if (!read_more()) return {};
  }
  frame.values.resize(count / sizeof(float));
  if (count > 0) std::memcpy(frame.values.data(), read_.data(), count);
  read_.erase(0, count);
  return frame;
}

}  // namespace ladder
