// Which version the trainer runs for a problem: runtime/promoted/<device>.txt, which `./ladder promote` makes of the
// records (tools/records/promotion.py says how), with what `--use` puts in its place.
//
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
  // One phrase for a table: "recorded", "recorded for n64", "nearest: n32 h64 w64 c64 k64 bf16", "no record: highest
  // version", "no recorded version can: highest version", "--use"; after it, why the version of --use cannot, if so.
  std::string reason;
};

class Promotions {
 public:
  // One line of the table.
  struct Line {
    Case problem;
    const Version* version = nullptr;
  };

  // Throws Failure, one line with file and line number, for a file that cannot be read, a malformed line, a problem
  // that is there twice or does not parse, a pass or version that this program does not have.
  // Lines of a layer are passed over in a program that has none of its versions.
  static Promotions load(const std::filesystem::path& file);

  // runtime/promoted/<slug>.txt of data_dir() and, with a note, that of h200 for the problems that this device's lacks.
  static Promotions for_device(std::string_view slug);

  // Takes a version for a whole pass: "conv3x3/fprop=v07", or several with commas between; v07_wmma_double_buffer and 7
  // mean the same. A later one replaces an earlier one of its pass. Throws UsageError naming what there is, and then
  // takes none; `flag` is where the text comes from. "policy/step=off" takes no version of a pass that does the work of
  // several others: these run instead.
  void use(std::string_view text, std::string_view flag = "--use");

  // Of those versions that can run the case on this device, in this order: the one of --use; that of the case's line;
  // of the line of the same problem with another batch (the first number of a problem: images, for gemm rows), the
  // nearest in ratio; of the line of the pass and dtype that is nearest by FLOPs (by bytes where there is no
  // arithmetic), where several are equally near the one with most words in common; the one with the highest number.
  // Throws Failure where no version can, or --use turned the pass off.
  VersionChoice choose(const Case& c) const;

  // False where --use names a version for the case's pass that cannot run it, or turns the pass off.
  bool use_can(const Case& c) const;

  // Whether the version of --use, or without one some version of the table, can run the case. For a problem that does the
  // work of several: where none can, those are faster than the first version that happens to know it.
  bool serves(const Case& c) const;

  const std::vector<Line>& lines() const { return lines_; }  // in the file's order
  const std::map<const Pass*, const Version*>& used() const { return used_; }
  bool is_off(const Pass& pass) const { return off_.contains(&pass); }
  const std::string& note() const { return note_; }  // "no table for 'emulator': taking that of h200", or empty

  // What decides every choice, for checkpoints: a line "--use conv3x3/fprop=v07_wmma" for each override, then a line
  // "conv3x3/fprop  n32 h64 w64 c64 k64 bf16  v09_wgmma_halo" for each of the table, without times. Two that are equal
  // choose equally on the same kind of device.
  std::string str() const;

 private:
  std::vector<Line> lines_;
  std::map<const Pass*, const Version*> used_;
  std::set<const Pass*> off_;
  std::string note_;
};

}  // namespace ladder
