"""PyTorch's convolution of conv_stem, alone or with ReLU and max pooling, eager and compiled, as a baseline.

x lies in memory as [n, h, w, c]; PyTorch sees it as (n, c, h, w), channels_last. The nchw plans work on copies made
beforehand. Products are rounded to TF32 where the problem says allow_tf32, and only there.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import worker

LAYER = "conv_stem"
PASSES = ("fprop", "relu_pool")


def plans(torch, case, tensors):
    """Eager channels_last first: what a user gets who changes nothing."""
    kinds = [("eager", "nhwc", None, "heuristic"), ("eager", "nchw", None, "listed")]
    for words, mode, search in (
        ("compile", "default", "listed"),
        ("compile max-autotune", "max-autotune-no-cudagraphs", "all"),
    ):
        kinds += [(words, layout, mode, search) for layout in ("nhwc", "nchw")]
    return [
        worker.Plan(f"PyTorch {words} {layout}", search, _setup(torch, case, tensors, layout, mode))
        for words, layout, mode, search in kinds
    ]


def stored(torch, case, name, out):
    return out.permute(0, 2, 3, 1).contiguous()


def layer(torch, case):
    """The function of (x, w, bias)."""
    functional = torch.nn.functional
    stride, padding = case.number("stride"), case.number("pad")

    def fprop(x, w, bias):
        return functional.conv2d(x, w, bias, stride, padding)

    def relu_pool(x, w, bias):
        return functional.max_pool2d(functional.relu(fprop(x, w, bias)), 3, stride=2)

    return {"fprop": fprop, "relu_pool": relu_pool}[case.pass_name]


def _setup(torch, case, tensors, layout, mode):
    def image(name):
        seen = tensors[name].permute(0, 3, 1, 2)
        return seen if layout == "nhwc" else seen.contiguous()

    def setup():
        torch.backends.cudnn.allow_tf32 = "allow_tf32" in case.words
        function = layer(torch, case)
        if mode:
            function = torch.compile(function, mode=mode, dynamic=False)
        x, w, bias = image("x"), image("w"), tensors.get("bias")

        def run():
            with torch.no_grad():
                return {"y": function(x, w, bias)}

        return run

    return setup


def random_inputs(torch, case):
    """For trying the script by hand."""
    r, c, k = (case.number(letter) for letter in "rck")
    shapes = {"x": tuple(case.number(letter) for letter in "nhwc"), "w": (k, r, r, c)}
    if "bias" in case.words:
        shapes["bias"] = (k,)
    return worker.random_tensors(torch, case, shapes)


if __name__ == "__main__":
    sys.exit(worker.main(sys.modules[__name__]))
