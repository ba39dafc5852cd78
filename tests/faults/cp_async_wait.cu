#include "tests/faults/tiles.h"

LADDER_FAULT("cp_async_wait", "no cp.async.wait_group before the barrier", ({.value = true}),
             ladder::faults::run_pipeline<ladder::faults::Break::wait>);
