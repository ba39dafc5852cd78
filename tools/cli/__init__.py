"""The `./ladder` command line: pick a backend, install missing tools, build, and exec the C++ programs."""
