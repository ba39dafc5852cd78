"""PyTorch's group_norm with its activation, eager and compiled, as a baseline: forward and gradients.

The image lies in memory as [n, h, w, c]; PyTorch sees it as (n, c, h, w), channels_last. The nchw plans work on copies
made beforehand.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import worker

LAYER = "groupnorm"
PASSES = ("forward", "backward")


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
    """Images as NHWC; the gradients of gamma and beta are fp32 with us unless it is params16, whatever PyTorch has."""
    if name in ("y", "dx"):
        return out.permute(0, 2, 3, 1).contiguous()
    return out if "params16" in case.words and name != "de" else out.float()


def layer(torch, case):
    """The function of (x, gamma, beta)."""
    groups = case.number("g")
    activation = activation_of(torch, case)
    eps = epsilon_of(case)

    def function(x, gamma, beta):
        return activation(torch.nn.functional.group_norm(x, groups, gamma, beta, eps))

    return function


def epsilon_of(case):
    return next((float(word[3:]) for word in case.words if word.startswith("eps")), 1e-5)


def activation_of(torch, case):
    functional = torch.nn.functional
    known = {
        "relu": functional.relu,
        "silu": functional.silu,
        "gelu": functional.gelu,
        "gelu-tanh": lambda z: functional.gelu(z, approximate="tanh"),
        "mish": functional.mish,
    }
    return next((known[word] for word in case.words if word in known), lambda z: z)


def _setup(torch, case, tensors, layout, mode):
    def image(name):
        seen = tensors[name]
        if name == "x" and "x_rest" in tensors:
            seen = torch.cat((seen, tensors["x_rest"]), dim=3)  # once, and not timed
        seen = seen.permute(0, 3, 1, 2)
        return seen if layout == "nhwc" else seen.contiguous()

    def parameter(name):
        # Eager group_norm wants parameters of x's type; their values are representable in it.
        return tensors[name].to(tensors["x"].dtype) if name in tensors else None

    def setup():
        function = layer(torch, case)
        if mode:
            function = torch.compile(function, mode=mode, dynamic=False)
        x, gamma, beta = image("x"), parameter("gamma"), parameter("beta")
        if case.pass_name == "forward":

            def forward():
                with torch.no_grad():
                    return {"y": function(x, gamma, beta)}

            return forward

        # The forward pass leaves its statistics here, once; what is timed runs on what it saved, again and again.
        if mode:
            from torch._functorch import config

            config.donated_buffer = False  # or the first gradient would overwrite what the next one needs
        dy = image("dy")
        addends = [image(name) for name in ("addend", "addend2") if name in tensors]
        first = case.number_or("first", 0)
        pitch = case.number_or("embedding", 0)
        de = tensors["de"].clone() if "de" in tensors else x.new_empty(x.shape[0], pitch).float() if pitch else None
        leaves = [tensor.detach().requires_grad_() for tensor in (x, gamma, beta) if tensor is not None]
        y = function(*leaves, *[None] * (3 - len(leaves)))

        def backward():
            outputs = dict(zip(("dx", "dgamma", "dbeta"), torch.autograd.grad(y, leaves, dy, retain_graph=True)))
            for addend in addends:
                outputs["dx"] = outputs["dx"] + addend
            if de is not None:
                de[:, first : first + x.shape[1]] = outputs["dx"].sum((2, 3), dtype=torch.float32)
                outputs["de"] = de
            return outputs

        return backward

    return setup


def random_inputs(torch, case):
    """For trying the script by hand."""
    shape = [case.number(letter) for letter in "nhwc"]
    dtype = worker.dtype_of(torch, case.words[-1])
    made = {"x": 2 * torch.randn(shape), "dy": torch.randn(shape)}
    if "no-affine" not in case.words:
        made |= {"gamma": torch.randn(shape[-1:]), "beta": torch.randn(shape[-1:])}
    return {name: tensor.to(dtype).cuda() for name, tensor in made.items()}


if __name__ == "__main__":
    sys.exit(worker.main(sys.modules[__name__]))
