// conformance --out FILE             runs every wrapper on this build's backend and dumps what it computes
// conformance --compare A B          compares two dumps, wrapper by wrapper; exit 1 on a difference
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/program.h"
#include "tests/conformance/wrappers.h"

namespace ladder::conformance {
namespace {

using nlohmann::json;

constexpr int kSchema = 1;

// {"schema": 1, "device": ..., "arch": 90, "wrappers": {NAME: {"shape": [...], "tolerance": {"absolute": x,
//  "relative": y}, "values": ["3f800000", ...]}}}
void dump(const std::string& path) {
  if (const char* reason = backend::unavailable()) throw Failure(reason);
  std::ofstream file(path);
  if (!file) throw UsageError(fmt::format("--out {}: cannot be written", path));
  json root = {{"schema", kSchema}, {"device", backend::device().name}, {"arch", backend::device().arch}};
  for (const Wrapper& wrapper : all()) {
    const Output output = wrapper.run();
    std::vector<std::string> values;
    for (const std::uint32_t word : output.words) values.push_back(fmt::format("{:08x}", word));
    root["wrappers"][wrapper.name] = {{"shape", output.shape},
                                      {"tolerance", {{"absolute", output.absolute}, {"relative", output.relative}}},
                                      {"values", values}};
  }
  file << root.dump(1) << '\n';
  if (!file.flush()) throw Failure(fmt::format("{}: write failed", path));
  std::printf("%zu wrappers on %s: %s\n", all().size(), backend::device().name.c_str(), path.c_str());
}

json read(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw UsageError(fmt::format("{}: no such file, or not readable", path));
  json root = json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded()) throw Failure(fmt::format("{}: not JSON, or cut short", path));
  if (!root.is_object() || root.value("schema", 0) != kSchema || !root.contains("wrappers") ||
      !root["wrappers"].is_object()) {
    throw Failure(fmt::format("{}: not a conformance dump of schema {}", path, kSchema));
  }
  return root;
}

struct Difference {
  std::size_t count = 0;
  std::size_t first = 0;
  double worst = 0;  // |x - y| over all words, in fp32; for bit-for-bit wrappers the number of words that differ
};

std::vector<std::uint32_t> words_of(const json& wrapper) {
  std::vector<std::uint32_t> words;
  for (const json& value : wrapper.at("values")) {
    words.push_back(static_cast<std::uint32_t>(std::stoul(value.get<std::string>(), nullptr, 16)));
  }
  return words;
}

Difference difference(const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b, double absolute,
                      double relative) {
  Difference d;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;
    bool close = false;
    if (absolute > 0 || relative > 0) {
      const double x = std::bit_cast<float>(a[i]);
      const double y = std::bit_cast<float>(b[i]);
      const double error = std::fabs(x - y);
      close = error <= absolute + relative * std::max(std::fabs(x), std::fabs(y)) || (std::isnan(x) && std::isnan(y));
      if (!(error <= d.worst)) d.worst = error;
    }
    if (!close && d.count++ == 0) d.first = i;
  }
  return d;
}

// One line of the table; true if the wrapper passes.
bool compare_one(const std::string& name, const json& a, const json& b) {
  auto line = [&](const char* verdict, const std::string& words) {
    std::printf("%-26s %-5s %s\n", name.c_str(), verdict, words.c_str());
  };
  if (a.is_null() || b.is_null()) {
    line("FAIL", a.is_null() ? "missing in the first dump" : "missing in the second dump");
    return false;
  }
  if (a.at("shape") != b.at("shape") || a.at("tolerance") != b.at("tolerance") ||
      a.at("values").size() != b.at("values").size()) {
    line("FAIL", "shape, tolerance or number of values differ");
    return false;
  }
  const double absolute = a.at("tolerance").at("absolute").get<double>();
  const double relative = a.at("tolerance").at("relative").get<double>();
  const auto words_a = words_of(a);
  const auto words_b = words_of(b);
  const Difference d = difference(words_a, words_b, absolute, relative);
  const bool bitwise = absolute == 0 && relative == 0;
  std::string words = fmt::format("{:6} values, ", words_a.size());
  words +=
      bitwise ? "bit for bit" : fmt::format("worst {:.2e}, allowed {:.2e} + {:.2e} |x|", d.worst, absolute, relative);
  if (d.count > 0) {
    words +=
        fmt::format("; {} differ, first [{}]: {:08x} and {:08x}", d.count, d.first, words_a[d.first], words_b[d.first]);
  }
  line(d.count == 0 ? "PASS" : "FAIL", words);
  return d.count == 0;
}

int compare(const std::string& path_a, const std::string& path_b) {
  const json a = read(path_a);
  const json b = read(path_b);
  std::set<std::string> names;
  for (const json* root : {&a, &b}) {
    for (const auto& item : root->at("wrappers").items()) names.insert(item.key());
  }
  if (names.empty()) throw Failure("neither dump holds a wrapper");
  std::printf("%s against %s\n", a.value("device", "?").c_str(), b.value("device", "?").c_str());
  std::size_t passed = 0;
  for (const std::string& name : names) {
    passed += compare_one(name, a["wrappers"].value(name, json()), b["wrappers"].value(name, json()));
  }
  std::printf("%zu of %zu wrappers agree\n", passed, names.size());
  return passed == names.size() ? 0 : 1;
}

int run(int argc, char** argv) {
  CLI::App app("What every wrapper computes on this build's backend, and whether two backends agree.");
  std::string out;
  std::vector<std::string> dumps;
  auto* out_option = app.add_option("--out", out, "write a dump to this file");
  app.add_option("--compare", dumps, "compare two dumps")->expected(2)->excludes(out_option);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    throw UsageError(fmt::format("{}; use --out FILE or --compare A B", error.what()));
  }
  if (out.empty() && dumps.empty()) throw UsageError("nothing to do; use --out FILE or --compare A B");
  if (!out.empty()) {
    dump(out);
    return 0;
  }
  try {
    return compare(dumps[0], dumps[1]);
  } catch (const json::exception& error) {
    throw Failure(fmt::format("a dump is damaged: {}", error.what()));
  }
}

}  // namespace
}  // namespace ladder::conformance

int main(int argc, char** argv) {
  return ladder::program_status("conformance", [&] { return ladder::conformance::run(argc, argv); });
}
