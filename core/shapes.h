// Named problems: dev/<layer>/shapes.txt lists a layer's cases, one a line, under the sets that --set names.
//
//     # a comment
//     [ci]
//     square:  n1 h8 w8 c16 k16
//
// A problem without a dtype word stands for every dtype of the version at hand.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/registry.h"

namespace ladder {

struct NamedLine {
  std::string name;     // "square"
  std::string problem;  // "n1 h8 w8 c16 k16", as written
};

struct ShapeSet {
  std::string name;  // "ci"
  std::vector<NamedLine> lines;
};

struct NamedCase {
  std::string name;
  Case problem;
};

// Reads the text of a shapes file. Throws Failure, one line with `file` and the line's number, where it is malformed:
// an entry without a name or a heading above it, a set or name that is there twice, an empty set.
std::vector<ShapeSet> parse_shapes(std::string_view text, const std::string& file);

// All sets of a layer, in the file's order; empty where the layer has no file.
std::vector<ShapeSet> shape_sets(const std::string& layer);

// The cases of one set of the pass's layer, parsed. Throws UsageError listing the sets for an unknown
// one, Failure for a problem that does not parse.
std::vector<NamedCase> named_cases(const Pass& pass, std::string_view set);

}  // namespace ladder
