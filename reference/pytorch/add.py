"""PyTorch's sums of images, of images and embeddings, and over pixels, as a baseline."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import worker  # noqa: E402

LAYER = "add"
PASSES = ("residual", "embedding", "embedding_backward")


def plans(torch, case, tensors):
    return worker.plans_of(torch, functions(torch, case)[case.pass_name], tensors)


def functions(torch, case):
    return {
        "residual": lambda at: {"y": at["a"] + at["b"]},
        "embedding": lambda at: {"y": at["x"] + at["e"][:, None, None, :]},
        "embedding_backward": lambda at: {"de": at["dy"].sum(dim=(1, 2), dtype=torch.float32)},
    }


def stored(torch, case, name, out):
    return out


def random_inputs(torch, case):
    """For trying the script by hand."""
    n, h, w, c = (case.number(letter) for letter in "nhwc")
    image = (n, h, w, c)
    return worker.random_tensors(torch, case, {"a": image, "b": image, "x": image, "e": (n, c), "dy": image})


if __name__ == "__main__":
    sys.exit(worker.main(sys.modules[__name__]))
