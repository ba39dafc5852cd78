#include "reference/baseline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "core/error.h"

namespace ladder {
namespace {

struct Registered {
  BaselineFactory factory;
  std::string library;
};

std::map<std::tuple<const Pass*, int, std::string>, Registered>& registered() {
  static std::map<std::tuple<const Pass*, int, std::string>, Registered> instance;
  return instance;
}

// One library's baseline, its plans under the library's name.
class NamedBaseline final : public Baseline {
 public:
  NamedBaseline(const std::string& library, std::unique_ptr<Baseline> baseline, Searched searched)
      : baseline_(std::move(baseline)), searched_(searched), tried_(baseline_->tried()) {
    for (BaselinePlan& plan : tried_) plan.library = library;
    best_ = baseline_->plan(Choice::best);
    heuristic_ = baseline_->plan(Choice::heuristic);
    best_.library = heuristic_.library = library;
  }

  std::string library() const override { return baseline_->library(); }
  std::string missing() const override { return baseline_->missing(); }
  const std::vector<BaselinePlan>& tried() const override { return tried_; }
  const BaselinePlan& plan(Choice choice) const override { return choice == Choice::best ? best_ : heuristic_; }
  Searched searched() const override { return searched_; }
  std::size_t workspace_bytes() const override { return baseline_->workspace_bytes(); }
  bool makes(const TensorSpec& output) const override { return baseline_->makes(output); }
  Dtype takes(const TensorSpec& input) const override { return baseline_->takes(input); }
  std::function<void(Stream)> work(Choice choice) override { return baseline_->work(choice); }
  double sample(Choice choice) override { return baseline_->sample(choice); }
  double empty_seconds() const override { return baseline_->empty_seconds(); }
  void answer() override { baseline_->answer(); }

 private:
  std::unique_ptr<Baseline> baseline_;
  Searched searched_;
  std::vector<BaselinePlan> tried_;
  BaselinePlan best_;
  BaselinePlan heuristic_;
};

class MergedBaseline final : public Baseline {
 public:
  MergedBaseline(std::vector<std::unique_ptr<Baseline>> baselines, std::string missing)
      : baselines_(std::move(baselines)), missing_(std::move(missing)) {
    LADDER_CHECK(!baselines_.empty());
    best_ = baselines_.front().get();
    for (const auto& baseline : baselines_) {
      library_ += (library_.empty() ? "" : ", ") + baseline->library();
      if (const std::string more = baseline->missing(); !more.empty())
        missing_ += (missing_.empty() ? "" : "; ") + more;
      tried_.insert(tried_.end(), baseline->tried().begin(), baseline->tried().end());
      searched_ = std::min(searched_, baseline->searched());
      if (baseline->plan(Choice::best).seconds < best_->plan(Choice::best).seconds) best_ = baseline.get();
    }
  }

  std::string library() const override { return library_; }
  std::string missing() const override { return missing_; }
  const std::vector<BaselinePlan>& tried() const override { return tried_; }
  const BaselinePlan& plan(Choice choice) const override { return of(choice).plan(choice); }
  Searched searched() const override { return searched_; }
  std::size_t workspace_bytes() const override { return best_->workspace_bytes(); }
  bool makes(const TensorSpec& output) const override { return best_->makes(output); }
  Dtype takes(const TensorSpec& input) const override { return best_->takes(input); }
  std::function<void(Stream)> work(Choice choice) override { return of(choice).work(choice); }
  double sample(Choice choice) override { return of(choice).sample(choice); }
  double empty_seconds() const override { return best_->empty_seconds(); }
  void answer() override { best_->answer(); }

 private:
  Baseline& of(Choice choice) const { return choice == Choice::best ? *best_ : *baselines_.front(); }

  std::vector<std::unique_ptr<Baseline>> baselines_;
  std::string missing_;
  std::string library_;
  std::vector<BaselinePlan> tried_;
  Searched searched_ = Searched::all;
  Baseline* best_ = nullptr;
};

// One library's baseline. A kept plan that the library no longer has, or that no longer runs, is as good as none.
std::unique_ptr<Baseline> make_one(const Registered& entry, const Case& c, const Pointers& pointers,
                                   const Search& search, const Measure& measure) {
  std::string kept;
  Search remembering = search;
  remembering.kept_plan = [&](const std::string& library) { return kept = search.kept_plan(library); };
  std::unique_ptr<Baseline> baseline = entry.factory(c, pointers, remembering, measure);
  const auto is_kept = [&](const BaselinePlan& plan) { return plan.name == kept && plan.seconds > 0; };
  if (!kept.empty() && std::ranges::any_of(baseline->tried(), is_kept)) {
    return std::make_unique<NamedBaseline>(entry.library, std::move(baseline), Searched::kept);
  }
  if (!kept.empty() && search.extent != Search::heuristic) {
    baseline.reset();  // its memory first
    baseline = entry.factory(c, pointers, search.extent, measure);
  }
  if (search.extent == Search::all && search.keep) search.keep(*baseline);
  const Searched searched = search.extent == Search::all      ? Searched::all
                            : search.extent == Search::listed ? Searched::listed
                                                              : Searched::heuristic;
  return std::make_unique<NamedBaseline>(entry.library, std::move(baseline), searched);
}

}  // namespace

const char* name(Searched searched) {
  switch (searched) {
    case Searched::heuristic:
      return "heuristic";
    case Searched::listed:
      return "listed";
    case Searched::kept:
      return "kept";
    case Searched::all:
      break;
  }
  return "all";
}

double typical_seconds(const std::function<double()>& sample) {
  constexpr std::size_t kSamples = 5;
  constexpr double kSlowSeconds = 10e-3;
  std::vector<double> seconds = {sample()};
  while (seconds.size() < kSamples && seconds.front() < kSlowSeconds) seconds.push_back(sample());
  const auto middle = seconds.begin() + std::ssize(seconds) / 2;
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

double Baseline::sample(Choice) { throw Failure(library() + " has no timer of its own"); }

bool register_baseline(const Pass& pass, const char* library, int rank, BaselineFactory factory) {
  return registered().emplace(std::tuple(&pass, rank, library), Registered{std::move(factory), library}).second;
}

void replace_baselines(const Pass& pass, const std::string& name, BaselineFactory factory) {
  std::erase_if(registered(), [&](const auto& entry) { return std::get<0>(entry.first) == &pass; });
  registered().emplace(std::tuple(&pass, 0, name), Registered{std::move(factory), name});
}

std::unique_ptr<Baseline> merged(std::vector<std::unique_ptr<Baseline>> baselines, std::string missing) {
  return std::make_unique<MergedBaseline>(std::move(baselines), std::move(missing));
}

std::unique_ptr<Baseline> make_baseline(const Case& c, const Pointers& pointers, const Search& search,
                                        const Measure& measure) {
  std::vector<std::unique_ptr<Baseline>> baselines;
  std::string missing;
  for (const auto& [key, entry] : registered()) {
    if (std::get<0>(key) != c.pass) continue;
    try {
      baselines.push_back(make_one(entry, c, pointers, search, measure));
    } catch (const std::exception& error) {
      missing += (missing.empty() ? "" : "; ") + std::string(error.what());
    }
  }
#ifndef LADDER_CUDNN
  missing += std::string(missing.empty() ? "" : "; ") + "no cuDNN in this build";
#endif
  if (baselines.empty()) throw Failure(missing.empty() ? "no library has " + c.pass->path() : missing);
  return merged(std::move(baselines), missing);
}

Verdict judged(Baseline& baseline, const Case& c, DeviceTensors& tensors, const ReferenceRun& run) {
  tensors.reset();
  baseline.answer();
  std::vector<bool> makes;
  for (const TensorSpec* spec : written(c.tensors)) makes.push_back(baseline.makes(*spec));
  std::optional<HostTensors> rounded;
  for (const TensorSpec& spec : c.tensors) {
    const Dtype dtype = baseline.takes(spec);
    if (!spec.is_read() || dtype == spec.dtype) continue;
    if (!rounded) rounded = run.inputs;
    for (float& value : (*rounded)[spec.name]) value = round_to(dtype, value);
  }
  const ExpectedOutputs rounded_expected = rounded ? reference_outputs(c, *rounded) : ExpectedOutputs();
  return compare(c, Pattern::normal, tensors.outputs(), rounded ? rounded_expected : run.expected, {}, makes);
}

}  // namespace ladder
