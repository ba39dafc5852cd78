#include "python/csrc/plans.h"

#include <fmt/format.h>

#include "core/backend.h"

namespace ladder::python {

Choices& Choices::instance() {
  static Choices choices;
  return choices;
}

Choice& Choices::none(const Pass& pass, std::string problem, int device, std::string reason) {
  const std::lock_guard lock(mutex_);
  Choice& choice = made_.emplace_back();
  choice.pass = &pass;
  choice.problem = std::move(problem);
  choice.device = device;
  choice.reason = std::move(reason);
  return choice;
}

Choice& Choices::make(const Case& c, int device) {
  VersionChoice chosen;
  try {
    const std::lock_guard lock(mutex_);
    chosen = known_table(device).choose(c);
  } catch (const Failure& failure) {
    chosen.reason = failure.what();
  }
  Choice& choice = none(*c.pass, c.text, device, chosen.reason);
  choice.version = chosen.version;
  return choice;
}

Promotions Choices::table(int device) {
  const std::lock_guard lock(mutex_);
  return known_table(device);
}

const Promotions& Choices::known_table(int device) {
  const auto known = tables_.find(device);
  if (known != tables_.end()) return known->second;
  Promotions made = Promotions::for_device(backend::device().slug);
  if (!used_.empty()) made.use(used_);
  return tables_.emplace(device, std::move(made)).first->second;
}

void Choices::use(const std::string& text) {
  if (!text.empty()) Promotions().use(text);
  const std::lock_guard lock(mutex_);
  used_ = text;
  tables_.clear();
  ++generation_;
}

nlohmann::json Choices::explain() const {
  const std::lock_guard lock(mutex_);
  return rows_of(made_);
}

nlohmann::json rows_of(const std::deque<Choice>& choices) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Choice& choice : choices) {
    rows.push_back({{"pass", choice.pass->path()},
                    {"problem", choice.problem},
                    {"device", choice.device},
                    {"version", choice.version ? choice.version->label() : "PyTorch"},
                    {"reason", choice.reason},
                    {"calls", choice.calls.load()}});
  }
  return rows;
}

void fail(const Choice& choice, const std::exception& error) {
  throw Failure(fmt::format("{} {}: {}\nto reproduce: ./ladder bench {} --version {} --problem '{}'",
                            choice.pass->path(), choice.version->label(), error.what(), choice.pass->path(),
                            choice.version->number, choice.problem));
}

}  // namespace ladder::python
