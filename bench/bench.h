// A bench program: command line, checks, times, table, record.
#pragma once

namespace ladder {

// main() of bench_<layer>. Returns 0 if every check passed or was skipped with a reason, 1 if one failed, 2 for wrong
// usage; errors are one line on stderr.
int bench_main(const char* layer, int argc, char** argv);

}  // namespace ladder
