#include "dev/policy/layout.h"

namespace ladder::policy {
namespace {

constexpr int kDownTaps = 3;

// Appends stages, each to the one before.
class Builder {
 public:
  explicit Builder(const Problem& p) : p_(p), length_(p.l), channels_(p.d) {}

  void res(int width) {
    const bool widens = channels_ + joined_ != width;
    Stage& first = convolution(width, p_.taps);
    normalise(first, p_.groups);
    first.film = network_.film_row;
    network_.film_row += 2 * width;
    const int residual_weights = network_.weights;
    const int residual_bias = network_.vectors;
    if (widens) {
      network_.weights += width * first.c;
      network_.vectors += width;
    }
    Stage& second = convolution(width, p_.taps);
    normalise(second, p_.groups);
    second.residual = widens ? Residual::convolution : Residual::identity;
    second.residual_weights = residual_weights;
    second.residual_bias = residual_bias;
  }

  void down() {
    convolution(channels_, kDownTaps).stride2 = true;
    length_ = (length_ + 1) / 2;
  }

  void up() {
    convolution(channels_, conv1d::kTransposedTaps).transposed = true;
    length_ *= 2;
  }

  void out() {
    normalise(convolution(p_.dims[0], p_.taps), kLastGroups);
    convolution(p_.d, 1);
  }

  // Appends the channels of joined_stage's value to the next stage's input.
  void join(int joined_stage) {
    joined_stage_ = joined_stage;
    joined_ = network_.stages[joined_stage].k;
  }

  int last() const { return network_.count - 1; }

  // Counts the values, which only now have their lengths.
  Network take() {
    for (int i = 0; i < network_.count; ++i) {
      Stage& stage = network_.stages[i];
      stage.value = network_.values;
      network_.values += stage.out_l() * stage.k;
    }
    return network_;
  }

 private:
  Stage& convolution(int width, int taps) {
    Stage& stage = network_.stages[network_.count];
    stage = {.l = length_,
             .c = channels_ + joined_,
             .joined = joined_,
             .k = width,
             .taps = taps,
             .source = network_.count == 0 ? kSample : last(),
             .joined_stage = joined_ > 0 ? joined_stage_ : kNone,
             .film = kNone,
             .weights = network_.weights,
             .bias = network_.vectors};
    network_.weights += width * taps * stage.c;
    network_.vectors += width;
    channels_ = width;
    joined_ = 0;
    ++network_.count;
    return stage;
  }

  void normalise(Stage& stage, int groups) {
    stage.groups = groups;
    network_.vectors += 2 * stage.k;
  }

  const Problem& p_;
  Network network_;
  int length_;
  int channels_;
  int joined_stage_ = kNone;
  int joined_ = 0;
};

}  // namespace

Network network_of(const Problem& p) {
  Builder network(p);
  int skips[kMaxLevels] = {};
  for (int level = 0; level < p.levels; ++level) {
    network.res(p.dims[level]);
    network.res(p.dims[level]);
    skips[level] = network.last();
    if (level + 1 < p.levels) network.down();
  }
  network.res(p.dims[p.levels - 1]);
  network.res(p.dims[p.levels - 1]);
  for (int level = p.levels - 1; level > 0; --level) {
    network.join(skips[level]);
    network.res(p.dims[level - 1]);
    network.res(p.dims[level - 1]);
    network.up();
  }
  network.out();
  return network.take();
}

}  // namespace ladder::policy
