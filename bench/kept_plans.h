// Best plans of the baselines' full searches, kept from run to run in ${LADDER_CACHE:-$XDG_CACHE_HOME/ladder}/plans
// (~/.cache where there is no XDG_CACHE_HOME): a JSON file for each pass, problem with its dtype, GPU and release of a library.
#pragma once

#include <filesystem>
#include <string>

#include "core/registry.h"
#include "reference/baseline.h"

namespace ladder {

// --baseline: how far to look, and what kept plans have to do with it.
struct BaselineSearch {
  Search::Extent extent = Search::all;
  bool takes_kept = false;  // instead of a search, where there is a plan
  bool keeps = false;       // the best plan of a full search

  Search of(const Case& c) const;
};

// Empty where the environment names no folder.
std::filesystem::path kept_plans_folder();

// The name of the plan kept for a case and a library, "cuDNN 9.19.0". Empty without a readable file of this very key.
std::string kept_plan(const std::filesystem::path& folder, const Case& c, const std::string& library);

// Keeps the best plan of `searched`, and every plan with its time. A folder that cannot be written keeps nothing.
void keep_plans(const std::filesystem::path& folder, const Case& c, const Baseline& searched);

}  // namespace ladder
