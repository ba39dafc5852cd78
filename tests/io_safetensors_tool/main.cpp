// io_safetensors_tool --copy IN OUT       reads a safetensors file and writes what it holds, dtypes and order kept
// io_safetensors_tool --floats IN OUT     the same, all tensors converted to fp32
// io_safetensors_tool --check FILE...     a line for each file: ok, or what is wrong with it
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/program.h"
#include "io/safetensors.h"

namespace ladder::io {
namespace {

void copy(const std::string& in, const std::string& out) {
  const SafetensorsFile file(in);
  SafetensorsWriter writer(out, file.tensors(), file.metadata());
  for (const StoredTensor& tensor : file.tensors()) {
    const std::vector<std::byte> bytes = file.bytes(tensor.name);
    writer.append(bytes.data(), bytes.size());
  }
  writer.finish();
}

void convert(const std::string& in, const std::string& out) {
  const SafetensorsFile file(in);
  std::vector<std::vector<float>> values;
  std::vector<FloatTensor> tensors;
  for (const StoredTensor& tensor : file.tensors()) {
    values.push_back(file.floats(tensor.name));
    tensors.push_back({tensor.name, tensor.shape, values.back()});
  }
  write_floats(out, tensors, file.metadata());
}

void check(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    try {
      const SafetensorsFile file(path);
      for (const StoredTensor& tensor : file.tensors()) file.bytes(tensor.name);
      fmt::print("ok\n");
    } catch (const Failure& failure) {
      fmt::print("{}\n", failure.what());
    }
  }
}

int run(int argc, char** argv) {
  CLI::App app("What the trainer makes of safetensors files, for comparison with the format's own library.");
  std::vector<std::string> copied, converted, checked;
  app.add_option("--copy", copied, "read a file and write what it holds")->expected(2);
  app.add_option("--floats", converted, "the same, in fp32")->expected(2);
  app.add_option("--check", checked, "say what is wrong with files");
  app.require_option(1);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    throw UsageError(fmt::format("{}; --help lists what there is", error.what()));
  }
  if (!copied.empty()) copy(copied[0], copied[1]);
  if (!converted.empty()) convert(converted[0], converted[1]);
  check(checked);
  return 0;
}

}  // namespace
}  // namespace ladder::io

int main(int argc, char** argv) {
  return ladder::program_status("io_safetensors_tool", [&] { return ladder::io::run(argc, argv); });
}
