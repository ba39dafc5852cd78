// Queries of the Python half besides operators, through ctypes: JSON in, JSON out.
#include <nlohmann/json.hpp>
#include <string>

#include "core/backend.h"
#include "core/registry.h"
#include "python/csrc/plans.h"
#include "python/csrc/policy.h"

namespace ladder::python {
namespace {

using nlohmann::json;

json versions(const std::string& path) {
  json found = json::array();
  for (const Version* version : all_versions()) {
    if (version->pass->path() == path) found.push_back(version->label());
  }
  return found;
}

json answer(const json& question) {
  if (question.contains("use")) {
    Choices::instance().use(question.at("use").get<std::string>());
    return nullptr;
  }
  if (question.contains("explain")) return Choices::instance().explain();
  if (question.contains("policy")) return ask_policy(question.at("policy"));
  if (question.contains("versions")) return versions(question.at("versions").get<std::string>());
  json passes = json::array();
  for (const Pass* pass : all_passes()) passes.push_back(pass->path());
  const char* reason = backend::unavailable();
  return {{"passes", passes}, {"unavailable", reason ? reason : ""}};
}

std::string reply(const char* question) {
  try {
    return json{{"answer", answer(json::parse(question))}}.dump();
  } catch (const std::exception& error) {
    return json{{"wrong", error.what()}}.dump();
  }
}

}  // namespace
}  // namespace ladder::python

// Questions: {"use": text}, {"explain": true}, {"versions": "groupnorm/forward"}, {"policy": see ask_policy()} or {}.
// Returns {"answer": ...}, or {"wrong": one line} for an invalid question, such as an unknown version. The text is
// valid until the thread's next call.
extern "C" [[gnu::visibility("default")]] const char* ladder_torch_ask(const char* question) {
  thread_local std::string text;
  text = ladder::python::reply(question);
  return text.c_str();  // NOLINT(clang-analyzer-cplusplus.InnerPointer): the thread keeps it
}
