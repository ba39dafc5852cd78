// Where the project's files are at run time.
#pragma once

#include <string>

namespace ladder {

// The source folder, for tests and baselines: the environment's LADDER_SOURCE_DIR, else where this was compiled.
std::string source_dir();

// What has dev/<layer>/shapes.txt and the promotion tables, as they lie in the source folder: the environment's
// LADDER_SOURCE_DIR; else the folder "ladder_data" beside the program or shared library that this code is in, if there is
// one; else the source folder.
std::string data_dir();

// The source line that a report begins with, as compilers show it, for one that begins with "dev/a/b.cu:23: " or
// "dev/a/b.cu:23:7: "; empty for any other.
std::string source_excerpt(const std::string& report);

}  // namespace ladder
