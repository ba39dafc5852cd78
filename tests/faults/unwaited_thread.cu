#include "tests/faults/unwaited.h"

LADDER_FAULT("unwaited_thread", "one of a block's threads does not wait for the kernel in front",
             ({.report = true,
               .says = "a read before griddepcontrol.wait: the kernel in front may not have written it yet: x + "}),
             ladder::faults::run_unwaited<ladder::faults::Unwaited::thread>);
