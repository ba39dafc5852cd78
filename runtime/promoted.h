// Choice of the version that the trainer runs for a problem: runtime/promoted/<device>.txt, which `./ladder promote`
// makes from the records (tools/records/promotion.py says how), with the replacements of `--use`.
//     Promotions promotions = Promotions::for_device(backend::device().slug);
//     promotions.use("conv3x3/fprop=v07");
//     const VersionChoice choice = promotions.choose(pass.parse("n32 h64 w64 c64 k64 bias bf16"));
//     // choice.version->label() is "v09_wgmma_halo", choice.reason "nearest: n32 h64 w64 c64 k64 bf16"
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/registry.h"

namespace ladder {

struct VersionChoice {
  const Version* version = nullptr;
  // Reason in one phrase, for a table: "recorded", "recorded for n64", "nearest: n32 h64 w64 c64 k64 bf16", "no record:
  // highest version", "no recorded version can: highest version", "--use"; after it, why the version of --use cannot,
  // if so.
  std::string reason;
};

class Promotions {
 public:
  // A line of the table.
  struct Line {
    Case problem;
    const Version* version = nullptr;
  };

  // Load a table. Throws Failure, one line with file and line number, for a file that cannot be read, a malformed line,
  // a problem that is there twice or does not parse, a pass or version that this program does not have. Lines of a layer
  // are skipped in a program that has none of its versions.
  static Promotions load(const std::filesystem::path& file);

  // Load runtime/promoted/<slug>.txt of data_dir(). Problems that this table lacks come from that of h200 and, on a GPU,
  // then from those of other devices, with a note.
  static Promotions for_device(std::string_view slug);

  // Use a version for a whole pass: "conv3x3/fprop=v07", or several with commas between; v07_wmma_double_buffer and 7
  // mean the same. A later one replaces an earlier one of its pass. Throws UsageError naming the existing ones, and
  // then changes nothing; `flag` is the source of the text. "policy/step=off" uses no version of a pass that does the
  // work of several others: these run instead.
  void use(std::string_view text, std::string_view flag = "--use");

  // Choose, among the versions that can run the case on this device, the first of:
  // 1. the version of --use;
  // 2. the version of the case's line;
  // 3. of the lines of the same problem with another batch (the first number of a problem: images, for gemm rows), the
  // nearest in ratio;
  // 4. of the lines of the pass and dtype, the nearest by FLOPs (by bytes where there is no arithmetic), and of several
  // equally near ones the one with most words in common;
  // 5. the version with the highest number.
  // Throws Failure if no version can run the case, or --use turned the pass off.
  VersionChoice choose(const Case& c) const;

  // Returns false if --use names a version for the case's pass that cannot run it, or turns the pass off.
  bool use_can(const Case& c) const;

  // Returns true if the version of --use, or without one some version of the table, can run the case. Ask this of a
  // problem that does the work of several: if none of these versions can, the several are faster than the first version
  // that happens to support it.
  bool serves(const Case& c) const;

  const std::vector<Line>& lines() const { return lines_; }  // in the file's order
  const std::map<const Pass*, const Version*>& used() const { return used_; }
  bool is_off(const Pass& pass) const { return off_.contains(&pass); }
  const std::string& note() const { return note_; }  // "no table for 'emulator': taking that of h200", or empty

  // All that decides choices, as text for checkpoints: a line "--use conv3x3/fprop=v07_wmma" for each override, then a
  // line "conv3x3/fprop  n32 h64 w64 c64 k64 bf16  v09_wgmma_halo" for each line of the table, without times.
  // Promotions with equal texts choose equally on the same kind of device.
  std::string str() const;

 private:
  std::vector<Line> lines_;
  std::map<const Pass*, const Version*> used_;
  std::set<const Pass*> off_;
  std::string note_;
};

}  // namespace ladder
