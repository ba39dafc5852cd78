#include "tests/faults/unwaited.h"

LADDER_FAULT("unwaited_write", "writes what the kernel in front reads before it waits for that",
             ({.report = true,
               .says = "a write before griddepcontrol.wait: the kernel in front may still use what lies there: y + "}),
             ladder::faults::run_unwaited<ladder::faults::Unwaited::write>);
