#include "tests/faults/unwaited.h"

LADDER_FAULT("unwaited_flags", "lets the next kernel start while it takes ready flags, and never waits itself",
             ({.report = true, .says = "no thread executes griddepcontrol.wait"}),
             ladder::faults::run_unwaited<ladder::faults::Unwaited::flags>);
