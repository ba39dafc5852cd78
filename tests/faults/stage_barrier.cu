#include "tests/faults/tiles.h"

LADDER_FAULT("stage_barrier", "no __syncthreads before a stage of the double buffer is filled again",
             ({.value = true, .order = true}), ladder::faults::run_pipeline<ladder::faults::Break::stage_barrier>);
