// Protocol between a judge and a candidate's process over two pipes. A frame is a line of JSON, followed by as many raw
// bytes as its field "bytes" states.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace ladder {

struct Frame {
  nlohmann::json head;
  std::vector<float> values;  // the raw bytes
};

class Channel {
 public:
  // Does not own the descriptors. `seconds`: limit of the total time spent waiting for the other side; none by default.
  Channel(int in, int out, std::optional<double> seconds = {});

  // send() and receive() throw Failure if the other side violates the protocol, Late once the time is up.
  void send(nlohmann::json head, const std::vector<float>& values = {});
  // Returns nothing at the end of the stream. Throws Failure for more than `most_values` values.
  std::optional<Frame> receive(std::size_t most_values);

 private:
  void wait_for(int descriptor, short events);
  void write_all(const char* bytes, std::size_t size);
  std::size_t read_some(char* bytes, std::size_t size);  // 0 at the end of the stream

  int in_;
  int out_;
  std::optional<double> seconds_left_;
  std::string read_;  // bytes read, not yet returned
};

// Keeps freed memory for the next array, for a process that makes arrays of a gigabyte again and again: the kernel then
// zeroes no pages anew.
void keep_freed_memory();

struct Late : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace ladder
