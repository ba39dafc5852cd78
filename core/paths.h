// Folders of the project's files at run time.
#pragma once

#include <string>

namespace ladder {

// Source folder, for tests and baselines: LADDER_SOURCE_DIR of the environment, else the folder at compile time.
std::string source_dir();

// Folder of dev/<layer>/shapes.txt and the promotion tables, in the source folder's layout: LADDER_SOURCE_DIR of the
// environment; else the folder "ladder_data" beside the program or shared library that contains this code, if there is
// one; else the source folder.
std::string data_dir();

// Source line, as compilers show it, of a report that begins with "dev/a/b.cu:23: " or "dev/a/b.cu:23:7: "; empty for
// any other report.
std::string source_excerpt(const std::string& report);

}  // namespace ladder
