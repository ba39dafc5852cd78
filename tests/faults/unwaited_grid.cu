#include "tests/faults/unwaited.h"

LADDER_FAULT("unwaited_grid", "no thread waits for the kernel in front",
             ({.report = true, .says = "no thread executes griddepcontrol.wait"}),
             ladder::faults::run_unwaited<ladder::faults::Unwaited::grid>);
