#include "runtime/promoted.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <fstream>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "core/check/check.h"
#include "core/error.h"
#include "core/paths.h"

namespace ladder {
namespace {

constexpr const char* kOtherwise = "h200";
constexpr const char* kOff = "off";
constexpr std::size_t kNumCells = 8;  // as tools/records/promotion.py writes them; only the first three matter here

// Returns the cells of a line, which two or more spaces separate.
std::vector<std::string> cells_of(std::string_view line) {
  std::vector<std::string> cells;
  while (true) {
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    if (line.empty()) return cells;
    const std::string_view cell = line.substr(0, line.find("  "));
    line.remove_prefix(cell.size());
    cells.emplace_back(cell.substr(0, cell.find_last_not_of(' ') + 1));
  }
}

std::string labels_of(const Pass& pass) {
  std::vector<std::string> labels;
  for (const Version* v : versions_of(pass)) labels.push_back(v->label());
  return labels.empty() ? "none" : fmt::format("{}", fmt::join(labels, ", "));
}

// Returns the pass of "conv3x3/fprop". Throws UsageError naming the existing passes.
const Pass& pass_named(std::string_view path) {
  const auto slash = path.find('/');
  return find_pass(path.substr(0, slash), slash == std::string_view::npos ? "" : path.substr(slash + 1));
}

// Returns the version of "v07", "7" or "v07_wmma_double_buffer"; null for another word.
const Version* version_named(const Pass& pass, std::string_view word) {
  for (const Version* v : versions_of(pass)) {
    if (v->label() == word) return v;
  }
  if (word.starts_with('v')) word.remove_prefix(1);
  int number = 0;
  const auto [parse_end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc{} || parse_end != word.data() + word.size()) return nullptr;
  for (const Version* v : versions_of(pass)) {
    if (v->number == number) return v;
  }
  return nullptr;
}

// Nothing for a line of a layer without versions in this program.
std::optional<Promotions::Line> parse_line(std::string_view text) {
  const std::vector<std::string> cells = cells_of(text);
  if (cells.size() != kNumCells) {
    throw UsageError(fmt::format("{} columns, two or more spaces apart, where a line has {}", cells.size(), kNumCells));
  }
  const auto is_of_layer = [&](const Version* v) { return cells[0].starts_with(v->pass->layer + "/"); };
  if (std::ranges::none_of(all_versions(), is_of_layer)) return std::nullopt;
  const Pass& pass = pass_named(cells[0]);
  Promotions::Line line{.problem = pass.parse(cells[1])};
  if (!line.problem.names_dtype) throw UsageError(fmt::format("the problem '{}' names no dtype", cells[1]));
  for (const Version* v : versions_of(pass)) {
    if (v->label() == cells[2]) line.version = v;
  }
  if (!line.version) {
    throw UsageError(fmt::format("{} has no version {}; it has: {}", cells[0], cells[2], labels_of(pass)));
  }
  return line;
}

// Split a problem's line into its first word and the others: "n32" and " h64 w64 c64 k64 bf16".
std::pair<std::string_view, std::string_view> split_batch(std::string_view text) {
  const auto end = std::min(text.find(' '), text.size());
  return {text.substr(0, end), text.substr(end)};
}

// Letters and number of a problem's first word, as in "n32".
struct Batch {
  std::string_view letters;
  double number = 0;
};
std::optional<Batch> batch_of(std::string_view word) {
  const auto digits = word.find_first_of("0123456789");
  if (digits == std::string_view::npos) return std::nullopt;
  long long number = 0;
  const auto [parse_end, error] = std::from_chars(word.data() + digits, word.data() + word.size(), number);
  if (error != std::errc{} || parse_end != word.data() + word.size() || number <= 0) return std::nullopt;
  return Batch{.letters = word.substr(0, digits), .number = static_cast<double>(number)};
}

double ratio_between(double a, double b) {
  if (a <= 0 || b <= 0) return a == b ? 0 : INFINITY;
  return std::abs(std::log(a / b));
}

// Distance of the batches of two problems, as |log(ratio)|; nothing if the problems differ in more than the batch.
std::optional<double> batch_distance(const Case& a, const Case& b) {
  const auto [first_a, others_a] = split_batch(a.text);
  const auto [first_b, others_b] = split_batch(b.text);
  const std::optional<Batch> batch_a = batch_of(first_a);
  const std::optional<Batch> batch_b = batch_of(first_b);
  if (others_a != others_b || !batch_a || !batch_b || batch_a->letters != batch_b->letters) return std::nullopt;
  return ratio_between(batch_a->number, batch_b->number);
}

double work_distance(const Case& a, const Case& b) {
  if (a.flops > 0 && b.flops > 0) return ratio_between(a.flops, b.flops);
  return ratio_between(a.traffic.bytes(), b.traffic.bytes());
}

int words_in_common(std::string_view a, std::string_view b) {
  int common = 0;
  const std::string padded = fmt::format(" {} ", b);
  while (!a.empty()) {
    const auto end = std::min(a.find(' '), a.size());
    common += padded.find(fmt::format(" {} ", a.substr(0, end))) != std::string::npos;
    a.remove_prefix(std::min(end + 1, a.size()));
  }
  return common;
}

std::filesystem::path table_file(std::string_view device) {
  return std::filesystem::path(data_dir()) / "runtime" / "promoted" / fmt::format("{}.txt", device);
}

// Returns the devices whose tables serve `slug`, the first that has a problem deciding: its own, if there is one, that of
// kOtherwise, and for a GPU all others by name.
std::vector<std::string> tables_for(std::string_view slug) {
  std::vector<std::string> others;
  if (slug != "emulator" && std::filesystem::exists(table_file(kOtherwise).parent_path())) {
    for (const auto& entry : std::filesystem::directory_iterator(table_file(kOtherwise).parent_path())) {
      const std::string device = entry.path().stem();
      if (entry.path().extension() == ".txt" && device != slug && device != kOtherwise) others.push_back(device);
    }
  }
  std::ranges::sort(others);
  if (slug != kOtherwise) others.insert(others.begin(), kOtherwise);
  if (slug == kOtherwise || std::filesystem::exists(table_file(slug))) others.insert(others.begin(), std::string(slug));
  return others;
}

}  // namespace

Promotions Promotions::load(const std::filesystem::path& file) {
  std::ifstream in(file);
  if (!in) {
    throw Failure(
        fmt::format("cannot read {}: `./ladder promote` makes it from the records of results/", file.string()));
  }
  Promotions made;
  std::string text;
  for (int number = 1; std::getline(in, text); ++number) {
    text.resize(std::min(text.find('#'), text.size()));
    text.resize(text.find_last_not_of(" \t\r") + 1);  // npos + 1 is 0
    if (text.empty()) continue;
    try {
      std::optional<Line> line = parse_line(text);
      if (!line) continue;
      for (const Line& known : made.lines_) {
        if (known.problem.pass == line->problem.pass && known.problem.text == line->problem.text) {
          throw UsageError(fmt::format("{} {} is there twice", line->problem.pass->path(), line->problem.text));
        }
      }
      made.lines_.push_back(std::move(*line));
    } catch (const UsageError& error) {
      throw Failure(fmt::format("{}:{}: {}", file.string(), number, error.what()));
    }
  }
  if (in.bad()) throw Failure(fmt::format("{}: reading it failed", file.string()));
  return made;
}

Promotions Promotions::for_device(std::string_view slug) {
  const std::vector<std::string> tables = tables_for(slug);
  Promotions made = load(table_file(tables.front()));
  const std::size_t num_lines = made.lines_.size();
  std::vector<std::string> others;
  for (const std::string& table : std::span(tables).subspan(1)) {
    const std::size_t before = made.lines_.size();
    for (Line& line : load(table_file(table)).lines_) {
      const auto same = [&](const Line& known) {
        return known.problem.pass == line.problem.pass && known.problem.text == line.problem.text;
      };
      if (std::ranges::none_of(made.lines_, same)) made.lines_.push_back(std::move(line));
    }
    if (made.lines_.size() > before) others.push_back(table);
  }
  const bool is_own = tables.front() == slug;
  if (!is_own) others.insert(others.begin(), tables.front());
  const std::string of_others = fmt::format("{} of {}", others.size() > 1 ? "those" : "that", fmt::join(others, ", "));
  if (!is_own) made.note_ = fmt::format("no table for '{}': taking {}", slug, of_others);
  if (is_own && !others.empty()) {
    made.note_ = fmt::format("{} problems of the table of '{}', others of {}", num_lines, slug, of_others);
  }
  return made;
}

void Promotions::use(std::string_view text, std::string_view flag) {
  const auto error = [&](const std::string& says) {
    return UsageError(fmt::format("{} '{}': {}", flag, one_line(text, 120), says));
  };
  auto used = used_;
  auto off = off_;
  for (std::string_view left = text; true;) {
    const std::string_view word = left.substr(0, left.find(','));
    const auto equals = word.find('=');
    if (equals == std::string_view::npos) {
      throw error("<layer>/<pass>=<version>, as in conv3x3/fprop=v07");
    }
    const std::string_view version = word.substr(equals + 1);
    const Pass* pass = nullptr;
    try {
      pass = &pass_named(word.substr(0, equals));
    } catch (const UsageError& unknown) {
      throw error(unknown.what());
    }
    used.erase(pass);
    off.erase(pass);
    if (version == kOff) {
      off.insert(pass);
    } else if (const Version* const named = version_named(*pass, version)) {
      used[pass] = named;
    } else {
      throw error(
          fmt::format("{} has no version '{}'; it has: {}", pass->path(), one_line(version, 40), labels_of(*pass)));
    }
    if (word.size() == left.size()) break;
    left.remove_prefix(word.size() + 1);
  }
  used_ = std::move(used);
  off_ = std::move(off);
}

bool Promotions::use_can(const Case& c) const {
  const auto used = used_.find(c.pass);
  if (is_off(*c.pass)) return false;
  return used == used_.end() || why_not(*used->second, c).empty();
}

VersionChoice Promotions::choose(const Case& c) const {
  if (is_off(*c.pass)) throw Failure(fmt::format("--use {}={}: nothing else runs '{}'", c.pass->path(), kOff, c.text));
  std::string besides;  // why --use did not decide
  if (const auto used = used_.find(c.pass); used != used_.end()) {
    const std::string reason = why_not(*used->second, c);
    if (reason.empty()) return {.version = used->second, .reason = "--use"};
    besides = fmt::format("; --use {} cannot: {}", used->second->label(), reason);
  }

  // Table lines that could serve, the best first.
  struct Candidate {
    const Line* line;
    bool other_work;
    double distance;
    int words_apart;
    auto key() const { return std::tuple(other_work, distance, words_apart); }
  };
  std::vector<Candidate> candidates;
  for (const Line& line : lines_) {
    if (line.problem.pass != c.pass || line.problem.dtype != c.dtype) continue;
    const std::optional<double> by_batch = batch_distance(line.problem, c);
    candidates.push_back({.line = &line,
                          .other_work = !by_batch,
                          .distance = by_batch ? *by_batch : work_distance(line.problem, c),
                          .words_apart = -words_in_common(line.problem.text, c.text)});
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.key() < b.key(); });
  for (const Candidate& candidate : candidates) {
    const auto& [problem, version] = *candidate.line;
    if (!why_not(*version, c).empty()) continue;
    const std::string reason = problem.text == c.text ? "recorded"
                               : candidate.other_work ? fmt::format("nearest: {}", problem.text)
                                                      : fmt::format("recorded for {}", split_batch(problem.text).first);
    return {.version = version, .reason = reason + besides};
  }

  const std::string highest =
      candidates.empty() ? "no record: highest version" : "no recorded version can: highest version";
  const std::vector<const Version*> versions = versions_of(*c.pass);
  std::string last;  // why the highest that has the dtype cannot
  bool has_dtype = false;
  for (auto it = versions.rbegin(); it != versions.rend(); ++it) {
    const std::string reason = why_not(**it, c);
    if (reason.empty()) return {.version = *it, .reason = highest + besides};
    if ((*it)->has(c.dtype) && !std::exchange(has_dtype, true)) last = fmt::format("{}: {}", (*it)->label(), reason);
  }
  if (!has_dtype) throw Failure(fmt::format("no version of {} has {}", c.pass->path(), name(c.dtype)));
  throw Failure(fmt::format("no version of {} runs '{}' here; {}", c.pass->path(), c.text, last));
}

bool Promotions::serves(const Case& c) const {
  if (used_.contains(c.pass) || is_off(*c.pass)) return use_can(c);
  return std::ranges::any_of(lines_, [&](const Line& line) {
    return line.problem.pass == c.pass && line.problem.dtype == c.dtype && why_not(*line.version, c).empty();
  });
}

std::string Promotions::str() const {
  std::vector<std::string> uses;
  for (const auto& [pass, version] : used_)
    uses.push_back(fmt::format("--use {}={}\n", pass->path(), version->label()));
  for (const Pass* pass : off_) uses.push_back(fmt::format("--use {}={}\n", pass->path(), kOff));
  std::sort(uses.begin(), uses.end());  // the maps are in the order of addresses
  std::string text = fmt::format("{}", fmt::join(uses, ""));
  for (const auto& [problem, version] : lines_) {
    text += fmt::format("{}  {}  {}\n", problem.pass->path(), problem.text, version->label());
  }
  return text;
}

}  // namespace ladder
