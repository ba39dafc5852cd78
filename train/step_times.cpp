#include "train/step_times.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"

namespace ladder::train {
namespace {

// The operations of a step, each once. The last entry stands for the copies after all operations.
class Numbered {
 public:
  explicit Numbered(const Step& step) {
    for (const Program* program : step.programs()) {
      first_[program] = operations.size();
      for (std::size_t i = 0; i < program->tape().operations().size(); ++i) {
        operations.push_back({.operation = &program->tape().operations()[i], .choice = &program->choice(i)});
      }
    }
    operations.emplace_back();
  }

  // Counts a run of an operation; returns the operation's number.
  std::size_t number(const Program& program, std::size_t operation) {
    const std::size_t number = first_.at(&program) + operation;
    ++operations[number].runs;
    return number;
  }
  std::size_t trailing_copies() const { return operations.size() - 1; }

  std::vector<StepTimes::Timed> operations;

 private:
  std::map<const Program*, std::size_t> first_;
};

// Means over replays. Drops the entry for trailing copies if these took no time.
StepTimes mean_of(Numbered numbered, const std::vector<std::vector<Span>>& replays, std::string by,
                  Graph::Edges edges) {
  for (const std::vector<Span>& spans : replays) {
    const std::vector<OperationTime> times = operation_times(spans, numbered.operations.size());
    for (std::size_t i = 0; i < times.size(); ++i) {
      OperationTime& sum = numbered.operations[i].time;
      sum.busy_us += times[i].busy_us / static_cast<double>(replays.size());
      sum.gap_us += times[i].gap_us / static_cast<double>(replays.size());
      sum.overlap_us += times[i].overlap_us / static_cast<double>(replays.size());
    }
  }
  if (numbered.operations.back().time == OperationTime{}) numbered.operations.pop_back();
  return {.operations = std::move(numbered.operations), .by = std::move(by), .edges = edges};
}

StepTimes time_by_records(const Step& step, int replays, KernelRecords& records) {
  Numbered numbered(step);
  std::map<std::uint64_t, std::size_t> operation_of;
  const Graph graph = Graph::capture([&](Stream on) {
    std::set<const void*> known;
    // Copies before an operation count as part of that operation.
    const auto take = [&](std::size_t number) {
      for (const void* node : captured_nodes(on)) {
        if (known.insert(node).second) operation_of[records.id_of(node)] = number;
      }
    };
    step.enqueue(on, [&](const Program& program, std::size_t i) { take(numbered.number(program, i)); });
    take(numbered.trailing_copies());
  });
  for (int i = 0; i < replays; ++i) graph.replay(step.stream());
  return mean_of(std::move(numbered), replays_of(records.take(), operation_of, static_cast<std::size_t>(replays)),
                 "kernel records", graph.edges());
}

StepTimes time_by_marks(const Step& step, int replays, const std::string& why) {
  Numbered numbered(step);
  std::vector<std::unique_ptr<Event>> marks;
  std::vector<std::size_t> numbers;  // the operation before each mark, from the third mark on
  const Graph graph = Graph::capture([&](Stream on) {
    const auto mark = [&] {
      marks.push_back(std::make_unique<Event>());
      marks.back()->mark(on);
    };
    mark();
    mark();  // two in a row, to measure the time of a mark itself
    step.enqueue(on, [&](const Program& program, std::size_t i) {
      mark();
      numbers.push_back(numbered.number(program, i));
    });
  });
  std::vector<std::vector<Span>> spans;
  for (int replay = 0; replay < replays; ++replay) {
    graph.replay(step.stream());
    marks.back()->synchronize();
    const double empty = marks[1]->seconds_since(*marks[0]);
    std::int64_t begin_ns = 0;
    spans.emplace_back();
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const double seconds = std::max(0.0, marks[i + 2]->seconds_since(*marks[i + 1]) - empty);
      const auto ns = static_cast<std::int64_t>(1e9 * seconds);
      spans.back().push_back({.operation = numbers[i], .begin_ns = begin_ns, .end_ns = begin_ns + ns});
      begin_ns += ns;
    }
  }
  return mean_of(std::move(numbered), spans, fmt::format("event marks ({})", why), graph.edges());
}

}  // namespace

std::vector<OperationTime> operation_times(std::vector<Span> spans, std::size_t operations) {
  std::ranges::sort(spans, {}, [](const Span& span) { return std::pair(span.begin_ns, span.end_ns); });
  std::vector<OperationTime> times(operations);
  std::int64_t covered = spans.empty() ? 0 : spans.front().begin_ns;  // all time before this is attributed
  for (const Span& span : spans) {
    OperationTime& time = times.at(span.operation);
    time.gap_us += 1e-3 * static_cast<double>(std::max<std::int64_t>(0, span.begin_ns - covered));
    const std::int64_t from = std::max(span.begin_ns, covered);
    time.busy_us += 1e-3 * static_cast<double>(std::max<std::int64_t>(0, span.end_ns - from));
    time.overlap_us += 1e-3 * static_cast<double>(std::min(span.end_ns, from) - span.begin_ns);
    covered = std::max(covered, span.end_ns);
  }
  return times;
}

std::vector<std::vector<Span>> replays_of(const std::vector<NodeRecord>& records,
                                          const std::map<std::uint64_t, std::size_t>& operation_of,
                                          std::size_t replays) {
  std::map<std::uint64_t, std::vector<Span>> by_node;
  for (const NodeRecord& record : records) {
    const auto found = operation_of.find(record.node);
    if (found == operation_of.end())
      throw Failure(fmt::format("a kernel record names node {}, of no operation", record.node));
    by_node[record.node].push_back({found->second, record.begin_ns, record.end_ns});
  }
  std::vector<std::vector<Span>> made(replays);
  if (by_node.size() != operation_of.size()) {
    throw Failure(fmt::format("kernel records of {} nodes out of {}", by_node.size(), operation_of.size()));
  }
  for (auto& [node, spans] : by_node) {
    if (spans.size() != replays) {
      throw Failure(fmt::format("{} kernel records of a node that was replayed {} times", spans.size(), replays));
    }
    std::ranges::sort(spans, {}, &Span::begin_ns);
    for (std::size_t i = 0; i < replays; ++i) made[i].push_back(spans[i]);
  }
  return made;
}

StepTimes time_step(const Step& step, int replays) {
  try {
    KernelRecords records;
    return time_by_records(step, replays, records);
  } catch (const Failure& failure) {
    return time_by_marks(step, replays, failure.what());
  }
}

}  // namespace ladder::train
