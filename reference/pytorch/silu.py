"""PyTorch's silu and its gradient, as a baseline."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import worker

LAYER = "silu"
PASSES = ("forward", "backward")


def plans(torch, case, tensors):
    return worker.plans_of(torch, functions(torch, case)[case.pass_name], tensors)


def functions(torch, case):
    return {
        "forward": lambda at: {"y": torch.nn.functional.silu(at["x"])},
        "backward": lambda at: {"dx": torch.ops.aten.silu_backward(at["dy"], at["x"])},
    }


def stored(torch, case, name, out):
    return out


def random_inputs(torch, case):
    """For trying the script by hand."""
    shape = (case.number("n"), case.number("c"))
    return worker.random_tensors(torch, case, {"x": shape, "dy": shape})


if __name__ == "__main__":
    sys.exit(worker.main(sys.modules[__name__]))
