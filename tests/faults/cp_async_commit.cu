#include "tests/faults/tiles.h"

LADDER_FAULT("cp_async_commit", "no cp.async.commit_group: the wait waits for nothing", ({.value = true}),
             ladder::faults::run_pipeline<ladder::faults::Break::commit>);
