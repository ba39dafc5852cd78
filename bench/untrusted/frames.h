// What a judge and a candidate's process say to each other over two pipes: a frame is a line of JSON, then as many raw
// bytes as its "bytes" says.
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
  // Owns neither. Without `seconds`, the most that it waits for the other side in all, it waits for ever.
  Channel(int in, int out, std::optional<double> seconds = {});

  // Both throw Failure where the other side does not keep to this, Late once the time is up.
  void send(nlohmann::json head, const std::vector<float>& values = {});
  // Nothing at the end of the stream. More than `most_values` are a Failure.
  std::optional<Frame> receive(std::size_t most_values);

 private:
  void wait_for(int descriptor, short events);
  bool read_more();

  int in_;
  int out_;
  std::optional<double> seconds_left_;
  std::string read_;  // and not yet handed out
};

struct Late : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace ladder
