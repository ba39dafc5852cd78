#include "tests/faults/tiles.h"

LADDER_FAULT("cp_async_last_wait", "wait_group 1 on the last tile too, whose copy may then be pending",
             ({.value = true}), ladder::faults::run_pipeline<ladder::faults::Break::last_wait>);
