"""PyTorch's cat as a baseline."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import worker

LAYER = "concat"
PASSES = ("join",)


def plans(torch, case, tensors):
    return worker.plans_of(torch, lambda at: {"y": torch.cat([at["a"], at["b"]], dim=3)}, tensors)


def stored(torch, case, name, out):
    return out


def random_inputs(torch, case):
    """For trying the script by hand."""
    n, h, w, c, k = (case.number(letter) for letter in "nhwck")
    return worker.random_tensors(torch, case, {"a": (n, h, w, c), "b": (n, h, w, k)})


if __name__ == "__main__":
    sys.exit(worker.main(sys.modules[__name__]))
