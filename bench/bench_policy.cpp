#include "bench/bench.h"

int main(int argc, char** argv) { return ladder::bench_main("policy", argc, argv); }
