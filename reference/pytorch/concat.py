"""PyTorch's cat, the copies of its gradient, and those with the sum that a skip connection needs, as a baseline."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import worker

LAYER = "concat"
PASSES = ("join", "split", "split_add")


def plans(torch, case, tensors):
    return worker.plans_of(torch, functions(torch, case)[case.pass_name], tensors)


def functions(torch, case):
    c = case.number("c")
    return {
        "join": lambda at: {"y": torch.cat([at["a"], at["b"]], dim=3)},
        "split": lambda at: {"da": at["dy"][..., :c].contiguous(), "db": at["dy"][..., c:].contiguous()},
        "split_add": lambda at: {"da": at["dy"][..., :c].contiguous(), "db": at["dy"][..., c:] + at["e"]},
    }


def stored(torch, case, name, out):
    return out


def random_inputs(torch, case):
    """For trying the script by hand."""
    n, h, w, c, k = (case.number(letter) for letter in "nhwck")
    shapes = {"a": c, "b": k} if case.pass_name == "join" else {"dy": c + k, "e": k}
    return worker.random_tensors(torch, case, {name: (n, h, w, channels) for name, channels in shapes.items()})


if __name__ == "__main__":
    sys.exit(worker.main(sys.modules[__name__]))
