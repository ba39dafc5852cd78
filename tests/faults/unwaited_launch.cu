#include "tests/faults/unwaited.h"

LADDER_FAULT("unwaited_launch", "lets the next kernel start before it waits for the one in front",
             ({.report = true, .says = "griddepcontrol.launch_dependents before griddepcontrol.wait"}),
             ladder::faults::run_unwaited<ladder::faults::Unwaited::launch>);
