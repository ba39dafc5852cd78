#include "tests/faults/unwaited.h"

LADDER_FAULT("unwaited_read", "reads what the kernel in front writes before it waits for that",
             ({.report = true,
               .says = "a read before griddepcontrol.wait: the kernel in front may not have written it yet: x + "}),
             ladder::faults::run_unwaited<ladder::faults::Unwaited::read>);
