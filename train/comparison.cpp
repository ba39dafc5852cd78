#include "train/comparison.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/backend.h"
#include "core/dependent_launch.h"
#include "core/early_tensors.h"
#include "core/error.h"
#include "io/aside_file.h"
#include "train/step_bench.h"

namespace ladder::train {
namespace {

using Json = nlohmann::json;

constexpr const char* kFlag = "--compare";
constexpr std::string_view kPromoted = "promoted";

struct Switch {
  std::string_view name;  // a key with the values "on" and "off"
  bool Side::*member;
};
constexpr std::array kSwitches = {
    Switch{"overlap", &Side::overlap},
    Switch{"early", &Side::early},
    Switch{"branches", &Side::branches},
    Switch{"batches", &Side::batches},
};

struct Key {
  std::string_view name;
  std::vector<std::string_view> values;
};

UsageError error_in(std::string_view text, std::string_view says) {
  return UsageError(fmt::format("{} '{}': {}", kFlag, one_line(text, 120), says));
}

std::vector<Key> keys_of(std::string_view text) {
  std::vector<Key> keys;
  for (std::string_view left = text; true;) {
    std::string_view word = left.substr(0, left.find(','));
    const std::size_t length = word.size();
    if (const auto equals = word.find('='); equals != std::string_view::npos) {
      keys.push_back({.name = word.substr(0, equals), .values = {}});
      word.remove_prefix(equals + 1);
    }
    if (keys.empty() || word.empty()) throw error_in(text, "<layer>/<pass>=<version>,<version>, or overlap=on,off");
    keys.back().values.push_back(word);
    if (length == left.size()) return keys;
    left.remove_prefix(length + 1);
  }
}

// A side with its step and the promotions, including the versions that the side asks for.
struct Built {
  Side side;
  Promotions promotions;
  std::unique_ptr<Step> step;
  float first_loss = 0;
  std::vector<double> seconds;  // of each replay, two per round
};

// Calls visit(operation, its choice) for each operation of a step.
template <class Visit>
void for_each_operation(const Step& step, const Visit& visit) {
  for (const Program* program : step.programs()) {
    for (std::size_t i = 0; i < program->tape().operations().size(); ++i) {
      visit(program->tape().operations()[i], program->choice(i));
    }
  }
}

// Throws Failure where a requested version runs no operation of the step.
void check_used(const Built& built) {
  for (const auto& [pass, version] : built.promotions.used()) {
    int operations = 0;
    int taken = 0;
    std::string reason;
    for_each_operation(*built.step,
                       [&, pass = pass, version = version](const Operation& o, const VersionChoice& choice) {
                         if (o.problem.pass != pass) return;
                         ++operations;
                         if (choice.version == version) ++taken;
                         if (reason.empty()) reason = choice.reason;
                       });
    if (operations == 0) throw Failure(fmt::format("{}: the step has no operation of {}", kFlag, pass->path()));
    if (taken == 0) {
      throw Failure(fmt::format("{}: {} {} runs none of the step's {} operations: {}", kFlag, pass->path(),
                                version->label(), operations, reason));
    }
  }
}

// Returns the version that runs each problem of `passes`, with the number of operations.
Json versions_of(const Step& step, const std::set<const Pass*>& passes) {
  std::map<std::tuple<std::string, std::string, std::string>, int> counts;
  for_each_operation(step, [&](const Operation& o, const VersionChoice& choice) {
    if (passes.contains(o.problem.pass)) ++counts[{o.problem.pass->path(), o.problem.text, choice.version->label()}];
  });
  Json versions = Json::array();
  for (const auto& [key, count] : counts) {
    const auto& [path, problem, version] = key;
    versions.push_back({{"pass", path}, {"problem", problem}, {"version", version}, {"operations", count}});
  }
  return versions;
}

// Replays the sides in turn, forth and back (A B B A), and appends two times per round to each side's `seconds`.
void replay(std::deque<Built>& sides, int rounds, Stream stream) {
  std::vector<Built*> order;
  order.reserve(2 * sides.size());
  for (Built& side : sides) order.push_back(&side);
  for (auto side = sides.rbegin(); side != sides.rend(); ++side) order.push_back(&*side);
  std::vector<std::unique_ptr<Event>> marks;
  const auto mark = [&] {
    marks.push_back(std::make_unique<Event>());
    marks.back()->record(stream);
  };
  mark();
  for (int round = 0; round < rounds; ++round) {
    for (const Built* side : order) {
      side->step->replay(stream);
      mark();
    }
  }
  marks.back()->synchronize();
  for (std::size_t i = 0; i + 1 < marks.size(); ++i) {
    order[i % order.size()]->seconds.push_back(marks[i + 1]->seconds_since(*marks[i]));
  }
}

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Returns the loss of step `number`, run with a learning rate of 0 so that the weights do not change.
float loss_of(StepBench& bench, Built& built, int number) {
  bench.submit(*built.step, number, 0.0f);
  const float loss = built.step->collect()->loss;
  if (!std::isfinite(loss)) throw Failure(fmt::format("{}: the loss of {} is {}", kFlag, built.side.name, loss));
  return loss;
}

}  // namespace

std::vector<Side> sides_of(std::string_view text) {
  const std::vector<Key> keys = keys_of(text);
  std::vector<Side> sides(keys[0].values.size());
  std::set<std::string_view> seen;
  for (const Key& key : keys) {
    if (!seen.insert(key.name).second) throw error_in(text, fmt::format("{} is there twice", key.name));
    if (key.values.size() < 2) throw error_in(text, fmt::format("{} has one value: two or more compare", key.name));
    if (key.values.size() != sides.size()) throw error_in(text, "every key has as many values as the first");
    for (std::size_t i = 0; i < sides.size(); ++i) {
      const std::string_view value = key.values[i];
      const std::string word = fmt::format("{}={}", key.name, value);
      sides[i].name += (sides[i].name.empty() ? "" : ",") + word;
      if (const auto* s = std::ranges::find(kSwitches, key.name, &Switch::name); s != kSwitches.end()) {
        if (value != "on" && value != "off") {
          throw error_in(text, fmt::format("{} is on or off, not '{}'", s->name, value));
        }
        sides[i].*s->member = value == "on";
      } else if (value != kPromoted) {
        sides[i].use += (sides[i].use.empty() ? "" : ",") + word;
      }
    }
  }
  return sides;
}

int compare(const TrainingConfig& config, const TrainingOptions& options, const std::string& text, int rounds,
            const std::filesystem::path& file) {
  // Train first on a GPU: initial weights are partly zeros, and arithmetic on zeros draws less power. The emulator has
  // no power limit.
  const bool on_gpu = backend::kind() == backend::Kind::gpu;
  const int training_steps = on_gpu ? 100 : 1;
  const int warm_up_rounds = on_gpu ? 10 : 0;
  const std::vector<Side> wanted = sides_of(text);
  StepBench bench(config, options);
  std::deque<Built> sides;  // a deque, because steps keep references to their promotions
  std::set<const Pass*> passes;
  for (const Side& side : wanted) {
    Built& built = sides.emplace_back(Built{.side = side, .promotions = bench.promotions(), .step = nullptr});
    if (!side.use.empty()) built.promotions.use(side.use, kFlag);
    for (const auto& [pass, version] : built.promotions.used()) passes.insert(pass);
  }
  std::size_t bytes = bench.bytes();
  for (Built& built : sides) {
    overlap_launches(built.side.overlap);
    load_early(built.side.early);
    StepOptions of_step = bench.options();
    of_step.branches = of_step.branches && built.side.branches;
    of_step.batches = of_step.batches && built.side.batches;
    built.step = bench.step(built.promotions, of_step);
    check_used(built);
    bytes += built.step->bytes();
  }
  overlap_launches(true);
  load_early(true);

  bench.seconds_a_step(*sides[0].step, 0, training_steps);
  for (Built& built : sides) built.first_loss = loss_of(bench, built, training_steps + 1);
  const Stream stream = sides[0].step->stream();
  replay(sides, warm_up_rounds, stream);
  for (Built& built : sides) built.seconds.clear();
  const double began = unix_seconds();
  replay(sides, rounds, stream);
  const double ended = unix_seconds();

  Json record = record_of(config, "ladder.step-comparison/1");
  record.update({{"slug", backend::device().slug},
                 {"emulator", !on_gpu},
                 {"compared", text},
                 {"use", options.use},
                 {"rounds", rounds},
                 {"began", began},
                 {"ended", ended},
                 {"device_bytes", bytes},
                 {"sides", Json::array()}});
  for (Built& built : sides) {
    record["sides"].push_back({{"name", built.side.name},
                               {"overlap", built.side.overlap},
                               {"graph_nodes", built.step->num_nodes()},
                               {"versions", versions_of(*built.step, passes)},
                               {"losses", {built.first_loss, loss_of(bench, built, training_steps + 1)}},
                               {"seconds", built.seconds}});
  }
  io::write_text(file, record.dump(1) + "\n");
  return 0;
}

}  // namespace ladder::train
