"""PyTorch's sums of images, of images and embeddings, and over pixels, as a baseline."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import worker

LAYER = "add"
PASSES = ("residual", "embedding", "embedding_backward")


def plans(torch, case, tensors):
    return worker.plans_of(torch, functions(torch, case)[case.pass_name], tensors)


def functions(torch, case):
    first, channels = case.number_or("first", 0), case.number("c")

    def embedding(at):
        e = at["e"][:, first : first + channels].to(at["x"].dtype)
        return {"y": at["x"] + e[:, None, None, :]}

    def embedding_backward(at):
        de = at["dy"].sum(dim=(1, 2), dtype=torch.float32)
        if "de" not in at:
            return {"de": de}
        whole = at["de"].clone()
        whole[:, first : first + channels] = de
        return {"de": whole}

    return {
        "residual": lambda at: {"y": at["a"] + at["b"]},
        "embedding": embedding,
        "embedding_backward": embedding_backward,
    }


def stored(torch, case, name, out):
    return out


def random_inputs(torch, case):
    """For trying the script by hand."""
    n, h, w, c = (case.number(letter) for letter in "nhwc")
    image = (n, h, w, c)
    row = case.number_or("pitch", c)
    return worker.random_tensors(
        torch, case, {"a": image, "b": image, "x": image, "e": (n, row), "de": (n, row), "dy": image}
    )


if __name__ == "__main__":
    sys.exit(worker.main(sys.modules[__name__]))
