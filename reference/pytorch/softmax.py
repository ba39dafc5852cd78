"""PyTorch's softmax over the last dimension and its gradient, as a baseline."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import worker

LAYER = "softmax"
PASSES = ("forward", "backward")


def plans(torch, case, tensors):
    return worker.plans_of(torch, functions(torch, case)[case.pass_name], tensors)


def functions(torch, case):
    return {
        "forward": lambda at: {"y": torch.nn.functional.softmax(at["x"], dim=-1)},
        "backward": lambda at: {"dx": torch.ops.aten._softmax_backward_data(at["dy"], at["y"], -1, at["y"].dtype)},
    }


def stored(torch, case, name, out):
    return out


def random_inputs(torch, case):
    """For trying the script by hand."""
    shape = (case.number("m"), case.number("n"))
    tensors = worker.random_tensors(torch, case, {"x": shape, "y": shape, "dy": shape})
    return tensors | {"y": tensors["y"].softmax(-1)}


if __name__ == "__main__":
    sys.exit(worker.main(sys.modules[__name__]))
